// Package cost holds the tests of what a task's life costs Redis, in counts that no
// other work on the machine changes: calls of commands, and instructions.
package cost
