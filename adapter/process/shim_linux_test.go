package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// bootNow reads the clock that deadlines are of.
func bootNow() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

func overdue(p process.Process) bool { return p.(interface{ Overdue() bool }).Overdue() }

// The shim kills the tree at its deadline, the first one too, and not while it
// is put off.
func TestShimKeepsTheDeadline(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		s := treeShape{name: "two", script: `setsid sleep 1000 & echo up > $1; read x < $1.go; echo on > $1; wait`}
		tr := launchTree(t, s, level, process.Job{KillAt: bootNow() + 30*time.Second})
		first := bootNow() + 300*time.Millisecond
		d := tr.proc.(process.DeadlineKeeper)
		d.KillAt(first)
		d.KillAt(first + time.Hour)
		for bootNow() < first+200*time.Millisecond {
			time.Sleep(50 * time.Millisecond)
		}
		if err := os.WriteFile(tr.post.Path+".go", nil, 0); err != nil {
			t.Fatal(err)
		}
		tr.post.Read(t) // it lives
		last := bootNow() + 100*time.Millisecond
		d.KillAt(last)
		tr.awaitDeath(t)
		t.Logf("dead %s after the deadline", (bootNow() - last).Round(time.Millisecond))
		if bootNow() < last || !overdue(tr.proc) || tr.proc.Exit().Signal != "SIGKILL" {
			t.Errorf("dead %s before the deadline, overdue %v, %+v", last-bootNow(), overdue(tr.proc), tr.proc.Exit())
		}
		if left := tr.marks.Find(); len(left) > 0 {
			t.Errorf("%v survived", left)
		}
	})
}

func TestFirstDeadlineHolds(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		tr := launchTree(t, treeShapes[3], level, process.Job{KillAt: bootNow() + 2*time.Second})
		tr.awaitDeath(t)
		if left := tr.marks.Find(); len(left) > 0 || !overdue(tr.proc) {
			t.Errorf("%v survived, overdue %v", left, overdue(tr.proc))
		}
	})
}

// SIGTERM reaches everybody of the tree, also those outside of its group, once
// each: many programs take a second one for "at once".
func TestTerminateReachesEverybodyOnce(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		s := treeShape{name: "heed", script: `
w='trap "echo $0 >> $2.heard" TERM; : > $2.$0; while :; do sleep 1000 & wait $!; done'
sh -c "$w" child $1 $2 & setsid sh -c "$w" session $1 $2 &
trap 'echo leader >> $2.heard' TERM
while [ ! -e $2.child -o ! -e $2.session ]; do sleep 0.01; done
echo up > $1
while :; do sleep 1000 & wait $!; done`}
		tr := launchTree(t, s, level, process.Job{})
		heard := filepath.Join(tr.marks.Dir, "work", tr.marks.Word+".heard")
		tr.proc.Terminate()
		words := func() []string {
			b, _ := os.ReadFile(heard)
			return strings.Fields(string(b))
		}
		proctest.Eventually(t, func() bool { return len(words()) >= 3 }, "not everybody heard it")
		tr.proc.Kill()
		tr.awaitDeath(t)
		got := words()
		slices.Sort(got)
		if !slices.Equal(got, []string{"child", "leader", "session"}) {
			t.Errorf("heard by %v", got)
		}
	})
}

// Stopped is true only while everybody is.
func TestStopped(t *testing.T) {
	for _, level := range proctest.Levels(t) {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			tr := launchTree(t, treeShape{name: "two", script: `sleep 1000 & echo $! > $1.pid; echo up > $1; wait`},
				level,
				process.Job{})
			child, _ := os.ReadFile(tr.post.Path + ".pid")
			pid, err := strconv.Atoi(strings.TrimSpace(string(child)))
			if err != nil {
				t.Fatal(err)
			}
			o := tr.proc.(process.Observer)
			proctest.Stop(t, tr.proc.PID())
			proctest.Eventually(t, func() bool { return proctest.State(tr.proc.PID()) == 'T' },
				"the leader does not stop")
			if o.Stopped() {
				t.Error("its child runs")
			}
			proctest.Stop(t, pid)
			proctest.Eventually(t, o.Stopped, "all are stopped, but Stopped is false")
			tr.proc.Kill()
			tr.awaitDeath(t)
			if o.Stopped() {
				t.Error("nobody is there any more")
			}
		})
	}
}

// What cannot be started says why, and leaves nobody behind.
func TestShimCannotStart(t *testing.T) {
	dir := t.TempDir()
	deaf := filepath.Join(dir, "deaf")
	if err := os.WriteFile(deaf, []byte("no program"), 0o700); err != nil {
		t.Fatal(err)
	}
	script := filepath.Join(dir, "script")
	if err := os.WriteFile(script, []byte("#! /nonexistent/sh -e\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		for _, tt := range []struct {
			name    string
			command string
			job     process.Job
			want    error
		}{
			{"no such program", "/nonexistent/agent", process.Job{Dir: dir}, fs.ErrNotExist},
			{"no interpreter", script, process.Job{Dir: dir}, fs.ErrNotExist},
			{"no program", deaf, process.Job{Dir: dir}, syscall.ENOEXEC},
			{"no such directory", "sh", process.Job{Dir: filepath.Join(dir, "gone")}, fs.ErrNotExist},
			{"nowhere to note it", "sh", process.Job{Dir: dir, StateDir: filepath.Join(dir, "gone")}, fs.ErrNotExist},
		} {
			tt.job.Lease.RunID = "run_cannot" + level
			_, err := process.CommandLauncher{Command: []string{tt.command}, Containment: level}.Launch(t.Context(),
				tt.job)
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.command) ||
				strings.Contains(err.Error(), "names /nonexistent/sh") != (tt.command == script) {
				t.Errorf("%s: %v", tt.name, err)
			}
		}
		if left := shimsOf("run_cannot" + level); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := (process.CommandLauncher{Command: []string{"sh"}}).Launch(ctx, process.Job{}); !errors.Is(err,
		context.Canceled) {
		t.Errorf("a start that was called off: %v", err)
	}
}

// shimsOf finds what the cgroup hierarchy still has of a run.
func shimsOf(run string) []string {
	left, _ := filepath.Glob("/sys/fs/cgroup/*/picket-" + run + "-*")
	more, _ := filepath.Glob("/sys/fs/cgroup/picket-" + run + "-*")
	return append(left, more...)
}

// The agent finds itself as if it had been started plainly: three files, no
// signal ignored, and none of the shim's own variables. Of the shim nobody
// learns what the agent's secret is.
func TestAgentInheritsNothing(t *testing.T) {
	const secret = "s3cret-of-the-lease"
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		var out bytes.Buffer
		s := treeShape{
			name:   "look",
			script: `ls /proc/$$/fd; grep -E '^Sig(Ign|Blk)' /proc/self/status; env | grep SHIM; echo end; echo up > $1; exec sleep 1000`,
		}
		tr := launchTree(t, s, level, process.Job{Env: []string{"TOKEN=" + secret}, Stdout: &out})
		shim := "/proc/" + strconv.Itoa(proctest.ReadRecord(t, tr.state).Shim.PID)
		for _, file := range []string{"/cmdline", "/environ"} {
			b, err := os.ReadFile(shim + file)
			if err != nil || len(b) == 0 || bytes.Contains(b, []byte(secret)) {
				t.Errorf("%s of the shim: %q, %v", file, b, err)
			}
		}
		tr.proc.Kill()
		tr.awaitDeath(t)
		got := strings.Fields(out.String())
		want := strings.Fields("0 1 2 SigBlk: 0000000000000000 SigIgn: 0000000000000000 end")
		if i := slices.Index(got, "SigIgn:"); i >= 0 {
			ignored, err := strconv.ParseUint(got[i+1], 16, 64)
			got[i+1] = fmt.Sprintf("%016x", ignored&^ignoredHere(t))
			if err != nil {
				t.Error(err)
			}
		}
		got = slices.DeleteFunc(got, func(fd string) bool { return fd == "10" || fd == "255" }) // a shell's own
		if !slices.Equal(got, want) {
			t.Errorf("the agent sees %q", got)
		}
	})
}

// ignoredHere are the signals that anyone who started the tests ignores, as does
// everybody below him.
func ignoredHere(t *testing.T) uint64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var set uint64
	if _, err := fmt.Sscanf(string(status[bytes.Index(status, []byte("SigIgn:")):]), "SigIgn: %x", &set); err != nil {
		t.Fatal(err)
	}
	return set
}

// What a terminal, a service manager or a person in a hurry sends does not end
// a shim, and so not the run.
func TestShimIgnoresSignals(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		tr := launchTree(t, treeShape{name: "one", script: `echo up > $1; read x < $1.go; exit 5`}, level,
			process.Job{})
		for _, sig := range []syscall.Signal{unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM, unix.SIGPIPE,
			unix.SIGUSR1, unix.SIGUSR2, unix.SIGTSTP, unix.SIGCHLD} {
			proctest.Send(t, proctest.ReadRecord(t, tr.state).Shim.PID, sig)
		}
		if err := os.WriteFile(tr.post.Path+".go", nil, 0); err != nil {
			t.Fatal(err)
		}
		tr.awaitDeath(t)
		if got := tr.proc.Exit(); got != (process.Exited{Code: 5}) {
			t.Errorf("the agent ended with %+v", got)
		}
	})
}

// A cgroup holds who left everything else, also when the shim is killed that
// would have found him.
func TestCgroupHoldsWithoutItsShim(t *testing.T) {
	if levels := proctest.Levels(t); levels[0] != picket.ContainmentCgroup {
		t.Skip("no cgroup here")
	}
	i := slices.IndexFunc(treeShapes, func(s treeShape) bool { return s.program == "disguise" })
	tr := launchTree(t, treeShapes[i], picket.ContainmentCgroup, process.Job{})
	proctest.Send(t, proctest.ReadRecord(t, tr.state).Shim.PID, syscall.SIGKILL)
	tr.awaitDeath(t)
	if left := tr.marks.Find(); len(left) > 0 {
		t.Errorf("%v survived", left)
	}
}

// An agent that runs as root can leave its cgroup. Once it also killed its shim,
// nothing may lead to it any more, and nothing is promised of it. Anyone who is in
// the cgroup is dead all the same.
func TestRootLeavesItsCgroupAndKillsItsShim(t *testing.T) {
	if levels := proctest.Levels(t); levels[0] != picket.ContainmentCgroup || os.Geteuid() != 0 {
		t.Skip("this needs root and cgroups")
	}
	i := slices.IndexFunc(treeShapes, func(s treeShape) bool { return s.program == "leave-cgroup" })
	tr := launchTree(t, treeShapes[i], picket.ContainmentCgroup, process.Job{})
	record := proctest.ReadRecord(t, tr.state)
	away := slices.DeleteFunc(tr.marks.Find(), func(pid int) bool { return inside(t, pid, record.Cgroup) })
	proctest.Send(t, record.Shim.PID, syscall.SIGKILL)
	tr.awaitDeath(t)
	left := tr.marks.Find()
	t.Logf("%d left the cgroup, %d survived", len(away), len(left))
	for _, pid := range left {
		if !slices.Contains(away, pid) {
			t.Errorf("process %d survived in its cgroup", pid)
		}
	}
}

// inside reports whether a process is in the cgroup of a directory, or in one of
// its twins in the older hierarchies.
func inside(t *testing.T, pid int, dir string) bool {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cgroup"))
	if err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(strings.Split(string(b), "\n"), func(line string) bool {
		return strings.Contains(line+"/", "/"+filepath.Base(dir)+"/")
	})
}

// A shim that is started without an adapter reports that.
func TestShimStartedByHand(t *testing.T) {
	for _, version := range []string{"1", "99"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"PICKET_SHIM=" + version}
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.HasPrefix(string(out), "picket-shim: ") {
			t.Errorf("version %s: %v, %s", version, err, out)
		}
	}
}
