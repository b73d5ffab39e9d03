package process

import (
	"slices"
	"strings"
	"sync"

	"github.com/picket-dev/picket"
)

// ShimName is what a shim is called in a list of processes: the small process between adapter and
// agent that kills the agent's tree when the adapter is killed, stopped or told to.
const ShimName = "picket-shim"

// BestContainment returns the best containment that works here, and why no better one works. why is
// empty if it is the best of all. It is found out by trying, once.
func BestContainment() (level, why string) {
	levels := availableLevels()
	return levels.level, levels.why
}

// containmentLevels are what a shim of this machine can do.
type containmentLevels struct {
	level        string
	why          string // nothing better is possible
	cgroupParent string
	controls     controllerDirs // of leaves in cgroupParent
}

// availableLevels tries what works here, once.
var availableLevels = sync.OnceValue(probeLevels)

// CheckContainment returns a *picket.Error with CodeValidation for a level that
// is unknown or not available.
func CheckContainment(level string) error {
	switch {
	case level == "" || level == picket.ContainmentGroup:
		return nil
	case !slices.Contains(picket.Containments, level):
		return picket.Invalid("Containment",
			"Use "+strings.Join(picket.Containments, ", ")+", or leave it out for the best one.",
			"%q is not a way to hold a process tree", level)
	}
	l := availableLevels()
	if slices.Index(picket.Containments, level) < slices.Index(picket.Containments, l.level) {
		return picket.Invalid("Containment",
			"Use "+l.level+
				", or leave it out; to make it work, run the adapter in a delegated cgroup v2 (systemd: Delegate=yes).",
			"%s containment does not work here: %s", level, l.why)
	}
	return nil
}
