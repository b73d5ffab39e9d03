package adapter_test

import (
	"context"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() {
	// member is a registered adapter in a process of its own: member COMMAND …,
	// with URL and STATE in its environment. SIGTERM drains it.
	proctest.Scripts["member"] = func() int {
		a, err := adapter.New(adapter.Config{
			BaseURL:    os.Getenv("URL"),
			Key:        adaptertest.Key,
			StateDir:   os.Getenv("STATE"),
			Command:    os.Args[3:],
			AgentID:    "agent_member",
			PinnedOnly: true,
			Grace:      300 * time.Millisecond,
			Health: adapter.HealthConfig{
				Interval:       time.Second,
				UnhealthyAfter: 2 * time.Second,
				DeadAfter:      4 * time.Second,
			},
		})
		if err != nil {
			return proctest.Failed(err)
		}
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		return proctest.Failed(a.Run(ctx))
	}
}

// registeredProcess is a member with an agent that heeds no SIGTERM.
type registeredProcess struct {
	s           *adaptertest.Server
	state       string
	post        proctest.FIFO
	process     *exec.Cmd
	pids        []string
	task        string
	clearFaults func() // of the watch
	// survivors counts who ran at a registration that was not the first.
	survivors atomic.Int32
}

func startRegistered(t *testing.T) *registeredProcess {
	t.Helper()
	j := &registeredProcess{s: adaptertest.Start(t), state: t.TempDir(), post: proctest.NewFIFO(t)}
	j.s.OnRegister = func(picket.Registration) {
		if slices.ContainsFunc(j.pids, proctest.Alive) {
			j.survivors.Add(1)
		}
	}
	j.task = j.s.Queue(adaptertest.Task{Retries: 9})
	j.start(t)
	j.pids = j.post.Read(t)
	j.clearFaults = j.s.Fail("/v1/lease/watch", adaptertest.Hang, -1) // nobody else says that the lease is gone
	return j
}

func (j *registeredProcess) start(t *testing.T) {
	t.Helper()
	args := append(proctest.Agent("member"), "sh", "-c",
		`trap '' TERM; sleep 1000 & echo $$ $! > $1; while :; do wait; done`,
		"sh", j.post.Path)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "URL="+j.s.URL, "STATE="+j.state)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	j.process = cmd
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // its shim ends the rest
		_ = cmd.Wait()
		for end := time.Now().Add(30 * time.Second); slices.ContainsFunc(j.pids,
			proctest.Alive); time.Sleep(2 * time.Millisecond) {
			if time.Now().After(end) {
				t.Errorf("processes of %v are left", j.pids)
				return
			}
		}
	})
}

func (j *registeredProcess) await(t *testing.T, what string,
	ok func(adaptertest.AgentView) bool) adaptertest.AgentView {
	t.Helper()
	v, err := j.s.AwaitAgent(proctest.Patience(t), "agent_member", ok)
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	return v
}

// awaitRegisteredAgain waits until the member has registered once more and works.
func (j *registeredProcess) awaitRegisteredAgain(t *testing.T) adaptertest.AgentView {
	t.Helper()
	j.await(t, "the next registration", func(v adaptertest.AgentView) bool { return len(v.Registrations) > 1 })
	if n := j.survivors.Load(); n != 0 {
		t.Errorf("agents ran at %d registrations", n)
	}
	j.clearFaults()
	j.pids = j.post.Read(t)
	return j.s.AgentView("")
}

// A member that is stopped for longer than dead_after: its shim has killed the
// tree by the time the registry takes it for dead, though the lease has minutes
// left. Awake again it registers and works.
func TestStoppedRegisteredAdapter(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	j := startRegistered(t)
	proctest.Stop(t, j.process.Process.Pid)
	j.await(t, "its death", func(v adaptertest.AgentView) bool { return v.Record.Status == picket.AgentDead })
	for _, pid := range j.pids {
		if proctest.Alive(pid) {
			t.Errorf("process %s survived", pid)
		}
	}
	if proctest.State(j.process.Process.Pid) != 'T' {
		t.Error("the adapter did not stay stopped: this test proves nothing")
	}
	proctest.Send(t, j.process.Process.Pid, syscall.SIGCONT)
	j.awaitRegisteredAgain(t)
}

// A member that is told it is dead has killed its tree, deaf as it is, before it
// registers again.
func TestRegisteredAdapterToldItIsDead(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	j := startRegistered(t)
	j.s.Kill("agent_member")
	j.awaitRegisteredAgain(t)
}

// A member that is killed is followed at once by the next one on its state
// directory, which does not wait for its death in the registry.
func TestKilledRegisteredAdapter(t *testing.T) {
	t.Parallel()
	j := startRegistered(t)
	_ = j.process.Process.Kill()
	_ = j.process.Wait()
	j.start(t)
	v := j.awaitRegisteredAgain(t)
	if slices.Contains(v.Transitions, picket.ReasonHeartbeatTimeout) && v.Transitions[0] != picket.ReasonDeregistered {
		t.Errorf("it moved by %v", v.Transitions)
	}
	if run := j.s.View(j.task).Runs[0]; classOf(run.Released) != picket.ExitReleased {
		t.Errorf("the lease was released as %q", classOf(run.Released))
	}
}
