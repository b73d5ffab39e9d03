package proctest

import (
	"bytes"
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

// FIFO is a named pipe through which an agent reports how far it has come.
type FIFO struct{ Path string }

// NewFIFO makes a FIFO in a temporary directory of the test.
func NewFIFO(t *testing.T) FIFO {
	t.Helper()
	s := FIFO{filepath.Join(t.TempDir(), "signpost")}
	if err := syscall.Mkfifo(s.Path, 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// Read waits for an agent to write and returns its words.
func (s FIFO) Read(t *testing.T) []string {
	t.Helper()
	got := make(chan string, 1)
	go func() {
		b, _ := os.ReadFile(s.Path)
		got <- string(b)
	}()
	select {
	case text := <-got:
		return strings.Fields(text)
	case <-Patience(t).Done():
		os.WriteFile(s.Path, nil, 0) // lets the reader go
		t.Fatal("the agent did not come that far")
		return nil
	}
}

// stat returns the fields of a stat file of /proc from the state on, which is
// field 3 there. It returns nil when there is no such process.
func stat(proc string) [][]byte {
	b, _ := os.ReadFile(filepath.Join(proc, "stat"))
	return bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
}

// Alive reports whether a process runs; a zombie does not.
func Alive(pid string) bool {
	f := stat("/proc/" + pid)
	return len(f) > 0 && f[0][0] != 'Z' && f[0][0] != 'X'
}

// State is the state of a process as in /proc/PID/stat, such as R, S, T or Z. It
// is 0 when there is no such process.
func State(pid int) byte {
	if f := stat("/proc/" + strconv.Itoa(pid)); len(f) > 0 {
		return f[0][0]
	}
	return 0
}

// StartTime is when a process was started, in clock ticks since boot.
func StartTime(t *testing.T, pid int) uint64 {
	t.Helper()
	f := stat("/proc/" + strconv.Itoa(pid))
	if len(f) < 20 {
		t.Fatalf("process %d is gone", pid)
	}
	start, err := strconv.ParseUint(string(f[19]), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return start
}

// GroupAlive reports whether a process of the group is alive.
func GroupAlive(group int) bool {
	procs, _ := filepath.Glob("/proc/[0-9]*")
	return slices.ContainsFunc(procs, func(proc string) bool {
		f := stat(proc)
		return len(f) > 2 && string(f[2]) == strconv.Itoa(group) && Alive(filepath.Base(proc))
	})
}

// Send sends a signal to a process.
func Send(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// Stop stops a process and waits until each of its threads stands still. A signal alone
// leaves threads that run elsewhere time to see what the test does next.
func Stop(t *testing.T, pid int) {
	t.Helper()
	Send(t, pid, syscall.SIGSTOP)
	AwaitStopped(t, pid)
}

// AwaitStopped waits until each thread of a process stands still or is gone.
func AwaitStopped(t *testing.T, pid int) {
	t.Helper()
	Eventually(t, func() bool {
		threads, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/[0-9]*")
		return !slices.ContainsFunc(threads, func(thread string) bool {
			f := stat(thread)
			return len(f) > 0 && !bytes.ContainsAny(f[0], "TtZX") && !waitsInVfork(thread, f[0])
		})
	}, "process "+strconv.Itoa(pid)+" does not stop")
}

// waitsInVfork reports whether a thread waits for a child that was stopped between vfork and exec. It
// cannot go on before the child does, and its state is D until then.
func waitsInVfork(thread string, state []byte) bool {
	children, _ := os.ReadFile(thread + "/children")
	return string(state) == "D" && slices.ContainsFunc(bytes.Fields(children), func(child []byte) bool {
		f := stat("/proc/" + string(child))
		return len(f) > 0 && string(f[0]) == "T"
	})
}

// Levels are the ways of containment that work on this machine. The log of the
// test names what is skipped.
func Levels(t *testing.T) []string {
	t.Helper()
	best, why := process.BestContainment()
	if why != "" {
		t.Logf("best here is %s: %s", best, why)
	}
	return picket.Containments[slices.Index(picket.Containments, best):]
}

// EachShimLevel runs a test at the levels that have a shim.
func EachShimLevel(t *testing.T, test func(t *testing.T, level string)) {
	for _, level := range Levels(t) {
		if level != picket.ContainmentGroup {
			t.Run(level, func(t *testing.T) {
				t.Parallel()
				test(t, level)
			})
		}
	}
}

// Record is what an adapter writes about the processes of a run.
type Record struct {
	BootID string
	Shim   struct {
		PID   int
		Start uint64
	}
	Leader struct {
		PID   int
		Start uint64
	}
	Cgroup      string
	Containment string
}

// ReadRecord reads the record in the directory of a run.
func ReadRecord(t *testing.T, dir string) (r Record) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "process.json"))
	if err == nil {
		err = stdjson.Unmarshal(b, &r)
	}
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// Marks are what the processes of a run have on them, whatever their parents
// are: a variable of their environment, a word among their arguments, or their
// directory.
type Marks struct {
	Run    string // the value of PICKET_RUN_ID
	Word   string
	Dir    string
	Except int // a process that has the marks and does not belong to the run
}

// Find looks at every process of the machine. The dead do not count.
func (m Marks) Find() (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == m.Except {
			continue
		}
		proc := filepath.Join("/proc", e.Name())
		if Alive(e.Name()) && m.on(proc) || slices.ContainsFunc(threads(proc), m.on) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// threads are those of a process whose first one has ended: nothing else shows
// its marks any more.
func threads(proc string) []string {
	if Alive(filepath.Base(proc)) {
		return nil
	}
	all, _ := filepath.Glob(proc + "/task/*")
	return all
}

func (m Marks) on(proc string) bool {
	has := func(file string, matches func(field string) bool) bool {
		b, _ := os.ReadFile(filepath.Join(proc, file))
		return slices.ContainsFunc(bytes.Split(b, []byte{0}), func(f []byte) bool { return matches(string(f)) })
	}
	cwd, _ := os.Readlink(filepath.Join(proc, "cwd"))
	return has("environ", func(f string) bool { return f == "PICKET_RUN_ID="+m.Run }) ||
		has("cmdline", func(f string) bool { return f == m.Word }) ||
		strings.HasPrefix(cwd, m.Dir+"/")
}
