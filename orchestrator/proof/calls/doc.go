// Package calls lists every way to call every script that changes state, each
// with its setup and what it must leave in the store. The suites of lost
// replies and of store faults run them all.
package calls
