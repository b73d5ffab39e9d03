package adapter_test

import (
	"context"
	stdjson "encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() {
	// worker is an adapter in a process of its own: worker LEVEL COMMAND …,
	// with LEASE, URL and STATE in its environment.
	proctest.Scripts["worker"] = func() int {
		var lease picket.Lease
		if err := stdjson.Unmarshal([]byte(os.Getenv("LEASE")), &lease); err != nil {
			return proctest.Failed(err)
		}
		a, err := adapter.New(adapter.Config{
			BaseURL: os.Getenv("URL"), StateDir: os.Getenv("STATE"), Command: os.Args[4:], Containment: os.Args[3],
		})
		if err != nil {
			return proctest.Failed(err)
		}
		_, err = a.RunLease(context.Background(), lease)
		return proctest.Failed(err)
	}
}

// stubbornTree is a tree that is hard to kill: somebody in the leader's group,
// somebody who left it, and an orphan in a session of its own.
const stubbornTree = `sleep 1000 & setsid sleep 1000 & (setsid sh -c 'echo up > $1; sleep 1000; :' sh $1 &) ; trap '' TERM; while :; do sleep 1000; done`

// treeRun is a run of grove and what is needed to harm it.
type treeRun struct {
	s     *adaptertest.Server
	lease picket.Lease
	marks proctest.Marks
	state string
	from  time.Time // the lease was not confirmed before

	launched chan struct{} // closed when the adapter in this process has launched; nil: another has
}

func newTreeRun(t *testing.T, window time.Duration) (*treeRun, []string) {
	t.Helper()
	s := adaptertest.Start(t)
	w := &treeRun{
		s:     s,
		lease: s.Grant(adaptertest.Task{Window: window, Retries: 9}),
		state: t.TempDir(),
		from:  time.Now(),
	}
	w.marks = proctest.Marks{Run: w.lease.RunID, Word: "mark-" + w.lease.RunID, Dir: w.state}
	post := proctest.NewFIFO(t)
	t.Cleanup(func() {
		for _, pid := range w.marks.Find() {
			t.Errorf("process %d is left", pid)
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return w, []string{"sh", "-c", stubbornTree, "sh", post.Path, w.marks.Word}
}

// leader waits for the agent's first process to be on record.
func (w *treeRun) leader(t *testing.T) (pid int) {
	t.Helper()
	proctest.Eventually(t, func() bool {
		pid = proctest.ReadRecord(t, filepath.Join(w.state, w.lease.RunID)).Leader.PID
		return pid != 0
	}, "there is no leader on record")
	return pid
}

// awaitTree waits until the tree stands and answers its shim.
func (w *treeRun) awaitTree(t *testing.T, command []string) (shim int) {
	t.Helper()
	proctest.FIFO{Path: command[4]}.Read(t)
	if w.launched != nil {
		select {
		case <-w.launched: // the agent may act before the shim has informed of it
		case <-proctest.Patience(t).Done():
			t.Fatal("the launch does not end")
		}
	}
	r := proctest.ReadRecord(t, filepath.Join(w.state, w.lease.RunID))
	if n := len(w.marks.Find()); n < 4 {
		t.Fatalf("the tree has only %d processes", n)
	}
	if !proctest.Alive(strconv.Itoa(r.Shim.PID)) {
		t.Fatal("there is no shim")
	}
	return r.Shim.PID
}

// awaitGone waits until nobody of the tree lives.
func (w *treeRun) awaitGone(t *testing.T, still ...int) {
	t.Helper()
	proctest.Eventually(t, func() bool { return len(w.marks.Find()) == 0 }, "the tree lives on")
	for _, pid := range still {
		if proctest.State(pid) != 'T' {
			t.Errorf("process %d should be stopped and is %c: this test proves nothing", pid, proctest.State(pid))
		}
	}
}

// logKillDelay tells when the tree was dead, measured from the end of its lease; a
// renewal may have put that off.
func (w *treeRun) logKillDelay(t *testing.T, what string, window time.Duration) {
	confirmed := w.from
	for _, c := range w.s.Calls("/v1/lease/renew") {
		if c.Status == http.StatusOK {
			confirmed = c.At
		}
	}
	t.Logf("%s: the tree was dead %s before the end of its lease of %s", what, time.Until(confirmed.Add(window)).
		Round(time.Millisecond), window)
}

// startAdapterProcess starts the adapter of w in a process of its own.
func (w *treeRun) startAdapterProcess(t *testing.T, level string, command []string) (adapter int) {
	t.Helper()
	raw, err := stdjson.Marshal(w.lease)
	if err != nil {
		t.Fatal(err)
	}
	worker := append(append(proctest.Agent("worker"), level), command...)
	cmd := exec.Command(worker[0], worker[1:]...)
	cmd.Env = append(os.Environ(), "LEASE="+string(raw), "URL="+w.s.URL, "STATE="+w.state)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	w.marks.Except = cmd.Process.Pid
	return cmd.Process.Pid
}

// The tree of a killed adapter does not outlive it.
func TestKilledAdapter(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		const window = 5 * time.Minute
		w, command := newTreeRun(t, window)
		adapter := w.startAdapterProcess(t, level, command)
		shim := w.awaitTree(t, command)
		start := time.Now()
		proctest.Send(t, adapter, syscall.SIGKILL)
		w.awaitGone(t)
		t.Logf("the tree was dead %s after the kill", time.Since(start).Round(time.Millisecond))
		w.logKillDelay(t, "adapter killed", window)
		proctest.Eventually(t, func() bool { return !proctest.Alive(strconv.Itoa(shim)) }, "the shim stays behind")
		if v := w.s.View(w.lease.TaskID); v.State != picket.TaskLeased {
			t.Errorf("the task is %s: somebody released it", v.State)
		}
	})
}

// The shim of a stopped adapter keeps the deadline.
func TestStoppedAdapter(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		const window = 2 * time.Second
		w, command := newTreeRun(t, window)
		adapter := w.startAdapterProcess(t, level, command)
		w.awaitTree(t, command)
		proctest.Stop(t, adapter)
		w.awaitGone(t, adapter)
		w.logKillDelay(t, "adapter stopped", window)
		// Awake again it does not take what the shim did for a crash.
		proctest.Send(t, adapter, syscall.SIGCONT)
		v, err := w.s.Await(proctest.Patience(t), w.lease.TaskID,
			func(v adaptertest.View) bool { return v.Runs[0].ExitReport != nil || v.Runs[0].Released != nil })
		if err != nil {
			t.Fatal(err)
		}
		if got := classOf(v.Runs[0].ExitReport); got != picket.ExitLeaseLost {
			t.Errorf("reported as %q, released as %q", got, classOf(v.Runs[0].Released))
		}
	})
}

// Adapter and shim stopped: nobody kills the tree, however late it is. Only the
// fence holds then.
func TestStoppedAdapterAndShim(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		const window = 2 * time.Second
		w, command := newTreeRun(t, window)
		adapter := w.startAdapterProcess(t, level, command)
		shim := w.awaitTree(t, command)
		proctest.Stop(t, adapter)
		proctest.Stop(t, shim)
		before := w.marks.Find()
		time.Sleep(window + time.Second) // past every deadline there was
		for _, pid := range append(before, adapter, shim) {
			if !proctest.Alive(strconv.Itoa(pid)) {
				t.Errorf("somebody ended process %d", pid)
			}
		}
		if proctest.State(adapter) != 'T' || proctest.State(shim) != 'T' {
			t.Error("adapter or shim did not stay stopped: this test proves nothing")
		}
		proctest.Send(t, shim, syscall.SIGCONT)
		w.awaitGone(t, adapter)
	})
}

// The agent's first process dies with its shim, also when the adapter cannot do
// anything about it; the adapter ends the others once it can.
func TestLeaderDiesWithItsShim(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		w, command := newTreeRun(t, 5*time.Minute)
		adapter := w.startAdapterProcess(t, level, command)
		shim, leader := w.awaitTree(t, command), w.leader(t)
		proctest.Stop(t, adapter)
		proctest.Send(t, shim, syscall.SIGKILL)
		proctest.Eventually(t, func() bool { return !proctest.Alive(strconv.Itoa(leader)) }, "the leader lives on")
		if proctest.State(adapter) != 'T' {
			t.Error("the adapter did not stay stopped: this test proves nothing")
		}
		proctest.Send(t, adapter, syscall.SIGCONT)
		w.awaitGone(t)
	})
}

// runInThisProcess runs w by an adapter in this process.
func (w *treeRun) runInThisProcess(t *testing.T, level string, command []string) <-chan adapter.Result {
	launched := make(chan struct{})
	w.launched = launched
	a := newAdapter(t, w.s, command, func(c *adapter.Config) {
		c.StateDir, c.Containment = w.state, level
		c.OnEvent = func(e adapter.Event) {
			if e.Kind == adapter.EventLaunched {
				close(launched)
			}
		}
	})
	ended := make(chan adapter.Result, 1)
	go func() {
		res, err := a.RunLease(proctest.Patience(t), w.lease)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	return ended
}

// crashed checks that the run was released as a crash whose leader was killed.
func crashed(t *testing.T, res adapter.Result) {
	t.Helper()
	if res.Ending != adapter.EndReleased || res.Exit.Class != picket.ExitCrash || res.Exit.Signal == nil ||
		*res.Exit.Signal != "SIGKILL" {
		t.Errorf("ended %s with %+v", res.Ending, res.Exit)
	}
}

// A killed shim takes its leader along, and the adapter the rest.
func TestKilledShim(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		w, command := newTreeRun(t, 5*time.Minute)
		ended := w.runInThisProcess(t, level, command)
		shim := w.awaitTree(t, command)
		start := time.Now()
		proctest.Send(t, shim, syscall.SIGKILL)
		crashed(t, <-ended)
		t.Logf("reported %s after the kill", time.Since(start).Round(time.Millisecond))
		if left := w.marks.Find(); len(left) > 0 {
			t.Errorf("%v survived", left)
		}
	})
}

// A stopped shim does not hear that the lease goes on. When the deadline that
// it knows has passed, the adapter ends the tree in its place.
func TestStoppedShim(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		const window = 2 * time.Second
		w, command := newTreeRun(t, window)
		ended := w.runInThisProcess(t, level, command)
		shim := w.awaitTree(t, command)
		proctest.Stop(t, shim)
		crashed(t, <-ended)
		w.logKillDelay(t, "shim stopped", window)
		if left := w.marks.Find(); len(left) > 0 {
			t.Errorf("%v survived", left)
		}
		if proctest.Alive(strconv.Itoa(shim)) {
			t.Error("the stopped shim is left")
		}
	})
}

// A stopped shim does not hold up a kill.
func TestStoppedShimIsPassedOver(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		w, command := newTreeRun(t, 5*time.Minute)
		ended := w.runInThisProcess(t, level, command)
		shim := w.awaitTree(t, command)
		proctest.Stop(t, shim)
		start := time.Now()
		w.s.Cancel(w.lease.TaskID)
		w.awaitGone(t)
		t.Logf("dead %s after the cancellation", time.Since(start).Round(time.Millisecond))
		if res := <-ended; res.Ending != adapter.EndCancelled {
			t.Errorf("ended %s", res.Ending)
		}
		if proctest.Alive(strconv.Itoa(shim)) {
			t.Error("the stopped shim is left")
		}
	})
}

// The shim of a run gets every renewal, so it outlives its first deadline.
func TestShimIsToldOfRenewals(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		w, _ := newTreeRun(t, 4*time.Second)
		post := proctest.NewFIFO(t)
		ended := w.runInThisProcess(t, level, []string{"sh", "-c", `read x < $1; exit 0`, "sh", post.Path})
		if err := w.s.AwaitCalls(proctest.Patience(t), "/v1/lease/renew", 4); err != nil { // the last after 7.2 s
			t.Fatal(err)
		}
		if err := os.WriteFile(post.Path, nil, 0); err != nil {
			t.Fatal(err)
		}
		if res := <-ended; res.Exit.Class != picket.ExitNoResult || res.Exit.Code == nil || *res.Exit.Code != 0 {
			t.Errorf("ended %s: %+v", res.Ending, res.Exit)
		}
	})
}

// Cut off from its server the adapter ends the tree at the deadline, no matter who
// of the two is first, and calls that a lost lease.
func TestCutOffEndsAsLostLease(t *testing.T) {
	proctest.EachShimLevel(t, func(t *testing.T, level string) {
		const window = 2 * time.Second
		w, command := newTreeRun(t, window)
		ended := w.runInThisProcess(t, level, command)
		w.awaitTree(t, command)
		restore := w.s.Fail("/v1/lease/renew", adaptertest.Unavailable, -1)
		proctest.Eventually(t, func() bool { return len(w.marks.Find()) == 0 }, "the tree lives on")
		w.logKillDelay(t, "cut off", window)
		restore()
		if res := <-ended; res.Ending != adapter.EndLost || res.Exit.Class != picket.ExitLeaseLost {
			t.Errorf("ended %s, %s", res.Ending, res.Exit.Class)
		}
	})
}
