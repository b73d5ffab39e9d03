// Package frozen holds the golden files of everything that others can observe:
// JSON members, commands and flags, settings, routes, events, Redis keys and
// metrics. A refactoring may not change any of them by accident.
//
// The tests name no private identifier. They read type information, ask the
// built binary, or look at what a running server leaves in its store. A test
// that fails prints the lines that are missing and the lines that are new.
//
// If a change of the surface is intended, run
//
//	go test ./internal/frozen -update
//
// or "make frozen UPDATE=1", and review the difference of testdata/*.golden
// like any other change of a contract.
package frozen
