package process

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/picket-dev/picket"
)

// RunShim lets a program be the shim of its own agents: the small process between adapter and agent
// that kills the agent's tree when the adapter is killed, stopped or told to. Call it first in
// main, and in TestMain. In a process that was started as a shim it serves and never returns. In
// every other process it returns at once. Programs that do not call it, and name no other program
// in CommandLauncher.Shim, hold their agents with picket.ContainmentGroup only.
func RunShim() {
	serveShim()
	canBeShim.Store(true)
}

// ShimName is what a shim is called in a list of processes.
const ShimName = "picket-shim"

// canBeShim says that this program called RunShim.
var canBeShim atomic.Bool

// BestContainment returns the best containment that works here, for a program that called RunShim,
// and why no better one works. why is empty if it is the best of all. It is found out by trying,
// once.
func BestContainment() (level, why string) {
	levels := availableLevels()
	if !canBeShim.Load() {
		return picket.ContainmentGroup, "this program does not call process.RunShim"
	}
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
// is unknown or not available. shim is as in CommandLauncher.
func CheckContainment(level string, shim []string) error {
	switch {
	case level == "" || level == picket.ContainmentGroup:
		return nil
	case !slices.Contains(picket.Containments, level):
		return picket.Invalid("Containment",
			"Use "+strings.Join(picket.Containments, ", ")+", or leave it out for the best one.",
			"%q is not a way to hold a process tree", level)
	}
	l := availableLevels()
	if len(shim) == 0 && !canBeShim.Load() {
		return picket.Invalid("Containment",
			"Call process.RunShim first thing in main, name a program that does in CommandLauncher.Shim, or leave Containment out.",
			"%s needs a shim, and this program cannot be one", level)
	}
	if slices.Index(picket.Containments, level) < slices.Index(picket.Containments, l.level) {
		return picket.Invalid("Containment",
			"Use "+l.level+
				", or leave it out; to make it work, run the adapter in a delegated cgroup v2 (systemd: Delegate=yes).",
			"%s containment does not work here: %s", level, l.why)
	}
	return nil
}
