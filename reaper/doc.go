// Package reaper keeps a namespace honest while nobody looks: it moves store
// time on, ends leases that nobody renewed, judges agents by their silence,
// does the book-keeping that a transition left behind, deletes what is older
// than its retention and holds what there is against the invariants, a batch
// at a time. It also measures how much memory the namespace takes.
//
// Reapers share nothing and have no leader. Every sweep is one atomic step of
// the store that does nothing when somebody else did it first, so any number
// of them may run side by side.
package reaper
