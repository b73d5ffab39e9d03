package process

import (
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/files"
)

// processFile is in a run's own directory and names its processes, for an
// adapter that comes after this one: it is there before the agent's program
// can act.
const processFile = "process.json"

// Record is what a launcher writes about the processes of a run into the state
// directory of the run. Process ids identify a process only together with the
// boot id and the start time.
type Record struct {
	BootID      string    `json:"bootId"`
	Shim        processID `json:"shim"`   // 0 when the agent was started without one
	Leader      processID `json:"leader"` // 0 for the moment before it is started
	Cgroup      string    `json:"cgroup"` // an absolute directory, or empty
	Containment string    `json:"containment"`
}

// processID is a process that cannot be mistaken for another one of this boot.
type processID struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // in clock ticks since boot: field 22 of /proc/PID/stat
}

// write replaces the record in the run's directory dir in one step.
func (r Record) write(dir string) error {
	return files.WriteJSON(filepath.Join(dir, processFile), r) // no use after a restart of the machine
}

// ReadRecord reads the record in the state directory of a run. The error is [os.ErrNotExist] if no process of the
// run was recorded, and that of the file or of its JSON otherwise.
func ReadRecord(dir string) (r Record, err error) {
	err = files.ReadJSON(filepath.Join(dir, processFile), &r)
	return r, err
}

// BootID identifies this boot of the machine. It is empty on systems that have
// no such id.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(b))
}

// processStart is when this program was started, for clocks that begin with it.
var processStart = time.Now()
