// Package kit is what the proof suites share: a fixture on both stores, planted
// bugs, replays of the event log and checks of a whole store. Only tests import
// it.
package kit
