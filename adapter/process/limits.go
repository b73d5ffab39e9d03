package process

import (
	"cmp"
	"fmt"

	"github.com/picket-dev/picket"
)

// Limits bound what an agent, and the programs that calls of the tool exec run beside it, take of
// the machine. A program beyond its limits is killed with all that it started, and its result
// reports that. If an agent wants more processes than its limit, the system refuses them. They hold
// on Linux. They are exact if the processes are in cgroups of their own with the controllers pids
// and memory. Otherwise they hold as far as [ExecJob] says.
type Limits struct {
	// Processes is how many processes and threads an agent's tree may have at
	// once, programs of exec included; it takes a cgroup. Defaults to 8192;
	// negative is any number.
	Processes int
	// ExecProcesses is how many one program of exec may have with all that it
	// starts. Defaults to 2048; negative is any number.
	ExecProcesses int
	// ExecMemory is how much memory one program of exec may use with all that it
	// starts, in bytes, at least 16 MiB. Defaults to half of the machine's;
	// negative is any amount.
	ExecMemory int64
}

const (
	defaultTreeProcesses = 8192
	defaultExecProcesses = 2048
	minExecMemory        = 16 << 20
)

// Fill sets the limits that are 0 to their defaults. It refuses limits out of
// bounds.
func (l *Limits) Fill() error {
	l.Processes = cmp.Or(l.Processes, defaultTreeProcesses)
	l.ExecProcesses = cmp.Or(l.ExecProcesses, defaultExecProcesses)
	l.ExecMemory = cmp.Or(l.ExecMemory, machineMemory()/2&^(1<<20-1), -1)
	if l.ExecMemory > 0 && l.ExecMemory < minExecMemory {
		return picket.Invalid("Limits.ExecMemory", "Set at least 16 MiB, or a negative number for any amount.",
			"no program runs in %d bytes of memory", l.ExecMemory)
	}
	return nil
}

// treeLimits is what bounds one program and all that it starts; what is not above
// 0 is not a bound.
type treeLimits struct {
	Processes int   `json:"processes,omitzero"`
	Memory    int64 `json:"memory,omitzero"` // bytes
}

func (l Limits) execLimits() treeLimits {
	return treeLimits{max(l.ExecProcesses, 0), max(l.ExecMemory, 0)}
}

// controllerDir is where a controller of cgroups can be used.
type controllerDir struct {
	Unified bool   `json:"unified,omitzero"` // in the leaf itself
	V1Dir   string `json:"older,omitzero"`   // else: the directory in which the leaf's twin is made
}

// controllerDirs maps each controller that can be used, pids and memory, to its directory.
type controllerDirs map[string]controllerDir

// tooManyProcesses and tooMuchMemory are what a program is stopped for.
func (c treeLimits) tooManyProcesses() string {
	return fmt.Sprintf("more than %d processes", c.Processes)
}

func (c treeLimits) tooMuchMemory() string {
	return "more than " + formatBytes(c.Memory) + " of memory"
}

// exceeded counts, where nothing else does.
func (c treeLimits) exceeded(living func() int) string {
	if c.Processes > 0 && living() > c.Processes {
		return c.tooManyProcesses()
	}
	return ""
}

// formatBytes writes a number of bytes for people.
func formatBytes(n int64) string {
	for i, unit := range []string{"GiB", "MiB"} {
		if size := int64(1) << (30 - 10*i); n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, unit)
		}
	}
	if n >= 1<<20 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
