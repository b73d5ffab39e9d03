package process_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// treeShape is a process tree that an agent builds. Its script is given a FIFO to
// say at that it stands ($1), a word that every process of the tree shall keep
// in its arguments where it leaves environment and directory ($2), and a file
// whose existence ends who else would go on for ever ($3).
type treeShape struct {
	name    string // as docs/guarantees.md calls it
	script  string
	program string // an agent of this test program that plays it instead
	escapes bool   // the process group
}

var treeShapes = []treeShape{
	{name: "a child in the background", script: `sleep 1000 & sleep 1000 & echo up > $1; wait`},
	{name: "a double fork", script: `(sleep 1000 & sleep 1000 &) ; echo up > $1; exec sleep 1000`},
	{name: "`setsid`", escapes: true,
		script: `setsid sh -c 'echo up > $1; exec sleep 1000' sh $1 & wait`},
	{name: "a double fork with `setsid`", escapes: true,
		script: `(setsid sh -c 'sleep 1000 & echo up > $1; wait' sh $1 &) ; exec sleep 1000`},
	{name: "`nohup`", script: `nohup sh -c 'echo up > $1; sleep 1000; :' sh $1 > /dev/null 2>&1 & wait`},
	{
		name:   "stopped processes",
		script: `sleep 1000 & kill -STOP $!; sh -c 'sleep 1000 & echo up > $1; kill -STOP $$; wait' sh $1 & wait`,
	},
	{name: "a process group of its own", program: "own-group", escapes: true},
	{name: "a holder of the output pipe", escapes: true,
		script: `echo said; setsid sh -c 'echo up > $1; exec sleep 1000' sh $1 & exec > /dev/null 2>&1; wait`},
	{
		name:   "ignores SIGTERM",
		script: `trap '' TERM HUP INT; sh -c 'trap "" TERM; while :; do sleep 1000; done' & sleep 1000 & echo up > $1; while :; do wait; done`,
	},
	{
		name:   "a burst of 200 children",
		script: `i=0; while [ $i -lt 200 ]; do sleep 1000 & i=$((i+1)); done; echo up > $1; wait`,
	},
	{
		name:    "a daemon that closes its files",
		escapes: true,
		script:  `setsid sh -c 'cd /; (sh -c "echo up > $1; exec sleep 1000 <&- >&- 2>&-" sh $1 $2 <&- >&- 2>&- &)' sh $1 $2; exec sleep 1000`,
	},
	{
		name:   "a deep chain",
		script: `d='[ $3 -gt 0 ] && { sh -c "$0" "$0" $1 $2 $(($3-1)) & wait; exit; }; echo up > $1; sleep 1000; :'; sh -c "$d" "$d" $1 $2 40 & wait`,
	},
	{name: "clears its environment and renames itself", program: "disguise", escapes: true},
	{name: "leaves its cgroup, clears its environment and renames itself", program: "leave-cgroup", escapes: true},
	{name: "a process whose first thread has ended", program: "headless", escapes: true},
	{
		name:   "a chain of exec",
		script: `e='[ $3 -gt 0 ] && exec sh -c "$0" "$0" $1 $2 $(($3-1)); sleep 1000 & echo up > $1; wait'; exec sh -c "$e" "$e" $1 $2 40`,
	},
	{
		name:   "forks while it dies",
		script: `g='[ -e $3 ] || { sh -c "$0" "$0" $1 $2 $3 & exit; }'; sh -c "$g" "$g" $1 $2 $3; echo up > $1; exec sleep 1000`,
	},
	{
		name:    "forks while it dies, with `setsid`",
		escapes: true,
		script:  `g='[ -e $3 ] || { setsid sh -c "$0" "$0" $1 $2 $3 & exit; }'; sh -c "$g" "$g" $1 $2 $3; echo up > $1; exec sleep 1000`,
	},
}

func init() {
	if len(os.Args) > 2 && os.Args[2] == "headless" {
		runtime.LockOSThread() // here it is the first one
	}
	// headless goes on in another thread, in another session. What is left of
	// the first one looks like a dead process.
	proctest.Scripts["headless"] = func() int {
		if !child() {
			return spawn(&syscall.SysProcAttr{Setsid: true})
		}
		go func() {
			for stat := ""; !strings.Contains(stat, ") Z "); {
				b, err := os.ReadFile("/proc/self/stat")
				if stat = string(b); err != nil {
					os.Exit(proctest.Failed(err))
				}
			}
			os.Exit(proctest.Failed(errors.Join(os.WriteFile(os.Args[3], []byte("up"), 0), syscall.Pause())))
		}()
		_, _, err := syscall.Syscall(syscall.SYS_EXIT, 0, 0, 0) // of this thread
		return proctest.Failed(err)
	}
	// own-group leaves the group without leaving the session.
	proctest.Scripts["own-group"] = func() int {
		if child() {
			return proctest.Failed(errors.Join(os.WriteFile(os.Args[3], []byte("up"), 0), syscall.Pause()))
		}
		return spawn(&syscall.SysProcAttr{Setpgid: true})
	}
	// leave-cgroup moves out of its cgroup, which root may do, starts a disguised
	// process and ends, so that nobody of the run is that one's parent.
	proctest.Scripts["leave-cgroup"] = func() int {
		if !child() {
			return proctest.Failed(errors.Join(spawnedChildren(nil), syscall.Pause()))
		}
		leaveCgroup()
		away := exec.Cmd{
			Path:        "/bin/sh",
			Args:        disguisedProgram(),
			Env:         []string{},
			Dir:         "/",
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		}
		return proctest.Failed(away.Start())
	}
	// disguise goes to / in another session, as another program, under another
	// name and without a variable.
	proctest.Scripts["disguise"] = func() int {
		if !child() {
			return spawn(&syscall.SysProcAttr{Setsid: true})
		}
		if err := os.Chdir("/"); err != nil {
			return proctest.Failed(err)
		}
		return proctest.Failed(syscall.Exec("/bin/sh", disguisedProgram(), nil))
	}
}

// disguisedProgram are the arguments of a shell under another name, for as long as
// nobody writes to its FIFO.
func disguisedProgram() []string {
	return []string{"[kworker/0:1]", "-c", `echo up > $1; read x < $1.go`, "sh", os.Args[3], os.Args[4]}
}

// leaveCgroup moves this process to the root of every mounted hierarchy, or to a
// new cgroup there, where that is allowed. A cgroup that hands controllers on
// takes no process itself.
func leaveCgroup() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		os.Exit(proctest.Failed(err))
	}
	self := []byte(strconv.Itoa(os.Getpid()))
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if len(f) < 3 || !strings.HasPrefix(f[2], "cgroup") ||
			os.WriteFile(filepath.Join(f[1], "cgroup.procs"), self, 0) == nil {
			continue
		}
		refuge := escapeCgroup(f[1], os.Args[3])
		if os.Mkdir(refuge, 0o755) == nil {
			_ = os.WriteFile(filepath.Join(refuge, "cgroup.procs"), self, 0)
		}
	}
}

// escapeCgroup names the cgroup to which the agent of a signpost moves.
func escapeCgroup(mount, signpost string) string {
	sum := sha256.Sum256([]byte(signpost))
	return filepath.Join(mount, "picket-test-refuge-"+hex.EncodeToString(sum[:8]))
}

// removeEscapeCgroups removes what leaveCgroup made.
func removeEscapeCgroups(t *testing.T, signpost string) {
	t.Helper()
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		t.Error(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); len(f) > 2 && strings.HasPrefix(f[2], "cgroup") {
			refuge := escapeCgroup(f[1], signpost)
			for end := time.Now().Add(5 * time.Second); ; time.Sleep(time.Millisecond) {
				// A cgroup is busy until the kernel has buried its last process.
				if err := os.Remove(refuge); err == nil || os.IsNotExist(err) || !errors.Is(err, syscall.EBUSY) {
					break
				} else if time.Now().After(end) {
					t.Errorf("remove %s: %v", refuge, err)
					break
				}
			}
		}
	}
}

// child reports whether this process is one that spawn started.
func child() bool { return len(os.Args) > 6 }

// spawn starts this very agent as a child and stays with it.
func spawn(attr *syscall.SysProcAttr) int { return proctest.Failed(spawnedChildren(attr)) }

func spawnedChildren(attr *syscall.SysProcAttr) error {
	cmd := exec.Command(os.Args[0], append(os.Args[1:], "child")...)
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// launchedTree is a shape that was launched.
type launchedTree struct {
	treeShape
	proc   process.Process
	marks  proctest.Marks
	post   proctest.FIFO
	stop   string // made to end who goes on for ever
	state  string // the run's own directory
	level  string
	launch time.Duration
}

var trees atomic.Int64

// launchTree launches a shape and waits until it stands.
func launchTree(t *testing.T, s treeShape, level string, job process.Job) *launchedTree {
	t.Helper()
	dir := t.TempDir()
	work := filepath.Join(dir, "work")
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	post := proctest.NewFIFO(t)
	if err := syscall.Mkfifo(post.Path+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	id := strconv.FormatInt(trees.Add(1), 10) + "x" + strconv.Itoa(os.Getpid())
	tr := &launchedTree{
		treeShape: s,
		post:      post,
		stop:      filepath.Join(dir, "stop"),
		state:     dir,
		level:     level,
		marks:     proctest.Marks{Run: "run_" + id, Word: "mark-" + id, Dir: dir},
	}
	command := []string{"sh", "-c", s.script, "sh"}
	if s.program != "" {
		command = proctest.Agent(s.program)
	}
	command = append(command, post.Path, tr.marks.Word, tr.stop)
	job.Lease = picket.Lease{RunID: tr.marks.Run}
	job.Dir, job.StateDir = work, dir
	job.Env = append(job.Env, "PICKET_RUN_ID="+tr.marks.Run)
	start := time.Now()
	var err error
	tr.proc, err = process.CommandLauncher{Command: command, Containment: level}.Launch(context.Background(), job)
	if err != nil {
		t.Fatal(err)
	}
	tr.launch = time.Since(start)
	t.Cleanup(func() { tr.destroy(t) })
	post.Read(t)
	return tr
}

// awaitDeath waits until the launcher says that the tree is dead.
func (tr *launchedTree) awaitDeath(t *testing.T) {
	t.Helper()
	select {
	case <-tr.proc.Done():
	case <-proctest.Patience(t).Done():
		t.Fatalf("%s, %s: the process does not end; there are still %v", tr.name, tr.level, tr.marks.Find())
	}
}

// destroy leaves nothing of the test behind, whatever its launcher can do.
func (tr *launchedTree) destroy(t *testing.T) {
	tr.proc.Kill()
	<-tr.proc.Done()
	if err := os.WriteFile(tr.stop, nil, 0o600); err != nil {
		t.Error(err)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		left := tr.marks.Find()
		if len(left) == 0 {
			break
		}
		if time.Now().After(end) {
			t.Errorf("%s: %v do not die", tr.name, left)
			return
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	if tr.program == "leave-cgroup" {
		removeEscapeCgroups(t, tr.post.Path)
	}
}
