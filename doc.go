// Package picket is the vocabulary of the Picket orchestrator: the nouns that
// all packages share: task, run, lease, report, hand-off, review, event and error. It
// holds words and rules, no I/O.
//
// The types here are the wire types: what a handler answers is what a client
// decodes, field for field. Times are UTC with milliseconds ([Instant]), money
// is a decimal number ([budget.Money]), durations carry their unit in the
// field's name.
package picket
