// Package branches counts which branches of the Lua scripts run. [Cover] takes
// every branch of every script.
package branches
