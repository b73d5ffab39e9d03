package process

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// CanSweepOrphans reports whether dead adapters can be told from living ones on
// this system.
const CanSweepOrphans = true

// KillLeftovers kills every process that certainly belongs to a run, until none
// is left. A process that merely has the number of one of them is left alone. The
// error reports that some were still alive after atMost.
func KillLeftovers(left Record, runID string, atMost time.Duration) error {
	leaf, inLeaf := recordedCgroup(left, runID)
	struck := map[processID]bool{} // they need not be found again to be waited for
	for end := time.Now().Add(atMost); ; time.Sleep(5 * time.Millisecond) {
		if inLeaf {
			_ = leaf.kill()
		}
		for _, id := range stopSurvivors(left, runID) {
			struck[id] = true
		}
		maps.DeleteFunc(struck, func(id processID, _ bool) bool { return !id.alive() })
		if len(struck) == 0 && !(inLeaf && leaf.populated()) {
			break
		}
		if time.Now().After(end) {
			return fmt.Errorf("%d processes do not die of SIGKILL", len(struck))
		}
		for id := range struck {
			// The shim adopts what the others leave behind: it goes last.
			if id != left.Shim || len(struck) == 1 {
				id.signal(unix.SIGKILL)
			}
		}
	}
	if inLeaf {
		_ = leaf.remove() // an empty one does no harm
	}
	return nil
}

// recordedCgroup is the noted cgroup if it is named by the run: a path that is not
// belongs to somebody else.
func recordedCgroup(left Record, runID string) (leaf cgroup, ok bool) {
	return cgroup{left.Cgroup}, filepath.IsAbs(left.Cgroup) && strings.Contains(filepath.Base(left.Cgroup), runID)
}

// stopSurvivors stops the survivors until there are no new ones, so that none slips
// away while its parent dies, and answers them.
func stopSurvivors(left Record, runID string) []processID {
	stopped := map[processID]bool{}
	for {
		found, fresh := survivors(left, runID), false
		for _, id := range found {
			if !stopped[id] {
				id.signal(unix.SIGSTOP)
				stopped[id], fresh = true, true
			}
		}
		if !fresh {
			return found
		}
	}
}

// survivors are the living processes of a run: those that were recorded with number and start, the
// group of a recorded leader, those in its cgroup or with the run in their environment, and all
// descendants of these.
func survivors(left Record, runID string) []processID {
	all := processes(nil)
	byPID := make(map[int]procStat, len(all))
	for _, p := range all {
		byPID[p.PID] = p
	}
	leader := left.Leader.PID != 0 && byPID[left.Leader.PID].processID == left.Leader
	mine := map[int]processID{}
	add := func(p procStat) {
		if !p.dead() {
			mine[p.PID] = p.processID
		}
	}
	var inside []int
	if leaf, ok := recordedCgroup(left, runID); ok {
		inside = leaf.pids()
	}
	for _, p := range all {
		if p.processID == left.Shim || slices.Contains(inside, p.PID) || p.processID == left.Leader ||
			leader && p.group == left.Leader.PID || hasEnvVariable(p.PID, "PICKET_RUN_ID="+runID) {
			add(p)
			for _, child := range descendants(all, p.PID) {
				add(child)
			}
		}
	}
	// An agent may have started us, too.
	for pid := os.Getpid(); pid > 1; pid = byPID[pid].parent {
		delete(mine, pid)
	}
	return slices.Collect(maps.Values(mine))
}
