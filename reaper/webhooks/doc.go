// Package webhooks posts events to webhooks: in order, at least once, one event a
// request, signed as Standard Webhooks says.
//
// Deliverers share nothing and have no leader. Each claims a target that has
// something to be sent, for half a minute of store time, and moves the target's
// position by compare-and-set, so any number of them may run side by side; one
// that dies is followed by another when its claims are over. What was sent
// twice carries the same webhook-id.
package webhooks
