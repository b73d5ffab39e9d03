package orchestrator

// ClockOffset is how far a store is ahead of this machine.
var ClockOffset = clockOffset
