// Package heartbeat reads the wake policy of an agent, which is its file HEARTBEAT.md, and
// decides whether a session of the agent may be woken. Everything in it is pure: it has no
// store, no clock and no network, and takes every instant as an argument.
//
// [Parse] reads a file. [Windows] knows the hours in which wakes are allowed. [Health] judges
// a session, [Plan] says when the scheduler has to look at it, and [Decide] decides about one
// wake. [Prompt] writes the text that a woken session gets.
package heartbeat

// SchemaVersion is the version of the format of HEARTBEAT.md, and the only value of its field
// version.
const SchemaVersion = 1
