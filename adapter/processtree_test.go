//go:build linux

package adapter_test

import (
	"context"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// shapes are process trees; each says "$$ and more pids" at the signpost $1
// once it stands.
var shapes = map[string]string{
	"alone":               `echo $$ > $1; exec sleep 1000`,
	"child":               `sleep 1000 & echo $$ $! > $1; wait`,
	"ignores SIGTERM":     `trap '' TERM; sleep 1000 & echo $$ $! > $1; while :; do wait; done`,
	"background":          `(sleep 1000 & echo $! > $1.pid) & wait; echo $$ $(cat $1.pid) > $1; exec sleep 1000`,
	"nohup":               `nohup sleep 1000 > /dev/null & echo $$ $! > $1; wait`,
	"stopped child":       `sleep 1000 & kill -STOP $!; echo $$ $! > $1; wait`,
	"stopped leader":      `sleep 1000 & echo $$ $! > $1; kill -STOP $$; wait`,
	"writes without end":  `yes > /dev/null & yes & echo $$ $! > $1; wait`,
	"children of child":   `sh -c 'sleep 1000 & sleep 1000 & wait' & echo $$ $! > $1; wait`,
	"keeps the pipe open": `sleep 1000 & exec > /dev/null 2>&1; echo $$ $! > $1; wait`,
}

// launchedBy is told the process group of what an adapter launches.
func launchedBy(c *adapter.Config) <-chan int {
	pid := make(chan int, 1)
	c.OnEvent = func(e adapter.Event) {
		if e.Kind == adapter.EventLaunched {
			pid <- e.PID
		}
	}
	return pid
}

// However a run is ended, nobody of its group survives.
func TestNoSurvivors(t *testing.T) {
	ways := map[string]func(s *adaptertest.Server, l picket.Lease, stop context.CancelFunc){
		"cancelled":  func(s *adaptertest.Server, l picket.Lease, _ context.CancelFunc) { s.Cancel(l.TaskID) },
		"superseded": func(s *adaptertest.Server, l picket.Lease, _ context.CancelFunc) { s.Supersede(l.TaskID) },
		"stopped": func(s *adaptertest.Server, l picket.Lease, _ context.CancelFunc) {
			s.Command(l.TaskID, picket.Command{Command: "stop"})
		},
		"release now": func(_ *adaptertest.Server, _ picket.Lease, stop context.CancelFunc) { stop() },
	}
	for shape, script := range shapes {
		for way, end := range ways {
			t.Run(shape+"/"+way, func(t *testing.T) {
				t.Parallel()
				s := adaptertest.Start(t)
				post := proctest.NewFIFO(t)
				var launched <-chan int
				a := newAdapter(t, s, []string{"sh", "-c", script, "sh", post.Path},
					func(c *adapter.Config) { launched = launchedBy(c) })
				lease := s.Grant(adaptertest.Task{})
				ctx, stop := context.WithCancel(proctest.Patience(t))
				defer stop()
				ended := make(chan error, 1)
				go func() {
					_, err := a.RunLease(ctx, lease)
					ended <- err
				}()
				pids := post.Read(t)
				group := <-launched
				start := time.Now()
				end(s, lease, stop)
				if err := <-ended; err != nil {
					t.Error(err)
				}
				t.Logf("%d known processes gone after %s", len(pids), time.Since(start))
				if proctest.GroupAlive(group) {
					t.Errorf("somebody of group %d survived", group)
				}
				for _, pid := range pids {
					if proctest.Alive(pid) {
						t.Errorf("process %s survived", pid)
					}
				}
			})
		}
	}
}

// A stopped process sees SIGTERM: it is woken for it.
func TestStoppedProcessIsTerminated(t *testing.T) {
	s := adaptertest.Start(t)
	post := proctest.NewFIFO(t)
	a := newAdapter(t, s, []string{"sh", "-c", `trap 'exit 7' TERM; (kill -STOP $$; echo $$ > $1) & wait`, "sh",
		post.Path},
		func(c *adapter.Config) { c.Grace = time.Minute })
	lease := s.Grant(adaptertest.Task{})
	ended := make(chan adapter.Result, 1)
	go func() {
		res, _ := a.RunLease(proctest.Patience(t), lease)
		ended <- res
	}()
	post.Read(t)
	s.Command(lease.TaskID, picket.Command{Command: "stop"})
	if res := <-ended; *res.Exit.Code != 7 || res.Exit.Class != picket.ExitReleased {
		t.Errorf("code %d, class %s", *res.Exit.Code, res.Exit.Class)
	}
}

// The leader's end takes what it left in the background along.
func TestLeaderLeavesChildren(t *testing.T) {
	s := adaptertest.Start(t)
	post := proctest.NewFIFO(t)
	a := newAdapter(t, s, []string{"sh", "-c", `sleep 1000 & echo $! > $1; exit 3`, "sh", post.Path})
	lease := s.Grant(adaptertest.Task{})
	ended := make(chan adapter.Result, 1)
	go func() {
		res, _ := a.RunLease(proctest.Patience(t), lease)
		ended <- res
	}()
	child := post.Read(t)[0]
	res := <-ended
	if res.Exit.Class != picket.ExitCrash || *res.Exit.Code != 3 {
		t.Errorf("%+v", res.Exit)
	}
	if proctest.Alive(child) {
		t.Errorf("child %s survived", child)
	}
}

// A process that left the group escapes, as the documentation says; but it
// does not hold up the end of the run with the pipe it keeps open, and what
// was written before is not lost.
func TestEscapedPipeHolder(t *testing.T) {
	rig.SkipShort(t)
	s := adaptertest.Start(t)
	post := proctest.NewFIFO(t)
	a := newAdapter(t, s, []string{"sh", "-c",
		`echo before; setsid sh -c 'echo $$ > "$0"; exec sleep 1000' $1 & wait_for=$!; cat $1.go > /dev/null; exit 0`,
		"sh", post.Path},
		func(c *adapter.Config) { c.Containment = picket.ContainmentGroup })
	lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
	if err := syscall.Mkfifo(post.Path+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	ended := make(chan adapter.Result, 1)
	go func() {
		res, err := a.RunLease(proctest.Patience(t), lease)
		if err != nil {
			t.Error(err)
		}
		ended <- res
	}()
	escaped, err := strconv.Atoi(post.Read(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(escaped, syscall.SIGKILL)
	if err := os.WriteFile(post.Path+".go", nil, 0); err != nil {
		t.Fatal(err)
	}
	res := <-ended
	v := s.View(lease.TaskID)
	if res.Ending != adapter.EndCompleted || string(v.Output) != `"before\n"` {
		t.Errorf("%+v, output %s", res, v.Output)
	}
	if !proctest.Alive(strconv.Itoa(escaped)) {
		t.Error("the escaped process is dead: this test proves nothing")
	}
}

// The adapter is not there to hold an agent's hand after its own death, but
// while it lives, killing the agent gives the lease back at once.
func TestSIGKILLOfTheAgent(t *testing.T) {
	s := adaptertest.Start(t)
	post := proctest.NewFIFO(t)
	a := newAdapter(t, s, []string{"sh", "-c", `echo $$ > $1; exec sleep 1000`, "sh", post.Path})
	lease := s.Grant(adaptertest.Task{Retries: 1})
	ended := make(chan adapter.Result, 1)
	go func() {
		res, _ := a.RunLease(proctest.Patience(t), lease)
		ended <- res
	}()
	pid, _ := strconv.Atoi(post.Read(t)[0])
	start := time.Now()
	syscall.Kill(pid, syscall.SIGKILL)
	v, err := s.Await(proctest.Patience(t), lease.TaskID,
		func(v adaptertest.View) bool { return v.State == picket.TaskQueued })
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("queued again %s after the kill", time.Since(start))
	if e := v.Runs[0].Released; e.Class != picket.ExitCrash || *e.Code != 137 || *e.Signal != "SIGKILL" ||
		e.DurationMs == nil {
		t.Errorf("%+v", e)
	}
	<-ended
}

// Two runs side by side do not see each other's signals.
func TestRunsDoNotSeeEachOthersSignals(t *testing.T) {
	s := adaptertest.Start(t)
	posts := []proctest.FIFO{proctest.NewFIFO(t), proctest.NewFIFO(t)}
	leases := []picket.Lease{s.Grant(adaptertest.Task{}), s.Grant(adaptertest.Task{})}
	ended := []chan adapter.Result{make(chan adapter.Result, 1), make(chan adapter.Result, 1)}
	var pids []string
	for i := range 2 {
		a := newAdapter(t, s, []string{"sh", "-c", shapes["child"], "sh", posts[i].Path})
		go func() {
			res, _ := a.RunLease(proctest.Patience(t), leases[i])
			ended[i] <- res
		}()
		pids = append(pids, posts[i].Read(t)...)
	}
	s.Cancel(leases[0].TaskID)
	<-ended[0]
	if proctest.Alive(pids[0]) || proctest.Alive(pids[1]) || !proctest.Alive(pids[2]) || !proctest.Alive(pids[3]) {
		t.Error("the wrong processes are alive")
	}
	s.Cancel(leases[1].TaskID)
	<-ended[1]
}
