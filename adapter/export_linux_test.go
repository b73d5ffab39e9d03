package adapter

// GroupRuns reports whether a process of the group is alive.
var GroupRuns = groupRuns
