package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// affinityFixture has two workers of a role, of which the first has just failed at a task.
type affinityFixture struct {
	*fixture
	t    *testing.T
	of   string // what the names of workers and roles end with
	task picket.Task
	held picket.LeaseCredential // of the last lease that was taken
}

func (f *affinityFixture) take(agent, role string) (tasks []string) {
	f.t.Helper()
	return f.takeBy(picket.AcquireRequest{AgentID: agent, Role: role, WorkspaceRoot: "/work"})
}

func (f *affinityFixture) takeBy(req picket.AcquireRequest) (tasks []string) {
	f.t.Helper()
	req.AgentID, req.Role = req.AgentID+f.of, req.Role+f.of
	leases, err := f.Acquire(f.Ctx, kit.AgentOwner, req)
	kit.OK(f.t, err)
	for _, l := range leases {
		tasks = append(tasks, l.TaskID)
		f.held = f.OpenLease(f.t, l)
	}
	return tasks
}

func (f *affinityFixture) wantTaken(agent string, want bool) {
	f.t.Helper()
	if got := f.take(agent, "coder"); want && (len(got) != 1 || got[0] != f.task.TaskID) || !want && len(got) > 0 {
		f.t.Errorf("%s took %v, want %s: %v", agent, got, f.task.TaskID, want)
	}
}

// affinityCase is what happens after a run has failed.
type affinityCase struct {
	name    string
	spec    picket.TaskSpec
	first   picket.AcquireRequest // of the run that fails
	expires bool                  // the run ends with its lease, because the worker is frozen
	free    bool                  // the retry is for everybody at once
	then    func(f *affinityFixture)
	kept    bool // it is still kept after that
}

func (f *affinityFixture) check(c affinityCase) {
	t := f.t
	t.Helper()
	reg := shortThresholds("w1" + f.of)
	reg.RoleID = "coder" + f.of
	if c.name != "dead" { // time passes, and it does not send heartbeats
		reg.Heartbeat = nil
	}
	f.MustRegister(t, reg)
	f.MustRegister(t, picket.Registration{AgentID: "w2" + f.of, RoleID: "coder" + f.of})
	spec := c.spec
	spec.Role = "coder" + f.of
	if spec.Retry == nil {
		spec.Retry = backoff(0)
	}
	f.task = f.MustSubmit(t, spec)
	first := c.first
	if first.AgentID == "" {
		first = picket.AcquireRequest{AgentID: "w1", Role: "coder", WorkspaceRoot: "/work"}
	}
	if got := f.takeBy(first); len(got) != 1 {
		t.Fatalf("%d leases", len(got))
	}
	if c.expires {
		_, err := f.Renew(f.Ctx, f.held) // only a lease that was confirmed fails
		kit.OK(t, err)
		f.tickFor(t, 2001*time.Millisecond)
		_, err = f.ExpireDue(f.Ctx, 10)
		kit.OK(t, err)
	} else {
		f.failLast()
	}
	if !c.free {
		f.wantTaken("w2", false)
		why, err := f.Explain(f.Ctx, f.task.TaskID)
		kit.OK(t, err)
		if text := strings.Join(why.Because, "\n"); !strings.Contains(text, "workspace of its last run") {
			t.Errorf("it is explained as %q", text)
		}
	}
	if c.then != nil {
		c.then(f)
	}
	if c.kept {
		f.wantTaken("w2", false)
		f.wantTaken("w1", true)
	} else {
		f.wantTaken("w2", true)
	}
}

// A retry is kept for ten seconds for the worker that has the workspace. It goes to others at once
// when that worker is dead, deregistered or draining, and when it asks for tasks of another role.
func TestARetryIsKeptForTheWorkerWithTheWorkspace(t *testing.T) {
	deregister := func(f *affinityFixture) {
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "w1"+f.of, nil)
		kit.OK(f.t, err)
	}
	cases := []affinityCase{
		{name: "kept", kept: true},
		{name: "just before the end", then: func(f *affinityFixture) {
			f.tickFor(f.t, 9900*time.Millisecond)
		}, kept: true},
		{name: "after ten seconds", then: func(f *affinityFixture) { f.tickFor(f.t, 10001*time.Millisecond) }},
		{name: "deregistered", then: deregister},
		{name: "drained", then: func(f *affinityFixture) {
			_, err := f.ChangeAgent(f.Ctx, kit.AgentOwner, "w1"+f.of, nil, kit.DrainChange)
			kit.OK(f.t, err)
		}},
		{name: "dead", then: func(f *affinityFixture) {
			f.tickFor(f.t, 4*time.Second+time.Millisecond)
			_, err := f.JudgeAgents(f.Ctx, 10)
			kit.OK(f.t, err)
		}},
		{name: "not of the pool", then: func(f *affinityFixture) {
			if got := f.take("w1", "tester"); len(got) > 0 {
				f.t.Errorf("a worker of another role took %v", got)
			}
		}},
		{name: "without a workspace", first: picket.AcquireRequest{AgentID: "w1", Role: "coder"},
			free: true},
		{name: "without a registration",
			first: picket.AcquireRequest{AgentID: "w3", Role: "coder", WorkspaceRoot: "/work"}, free: true},
		{name: "expired", spec: picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(2)}, expires: true, free: true},
		{name: "deregistered in the backoff", spec: picket.TaskSpec{Retry: backoff(8)},
			then: func(f *affinityFixture) {
				f.wantTaken("w1", true)
				f.failLast()
				deregister(f)
				f.wantTaken("w2", false)
				f.tickFor(f.t, 8001*time.Millisecond)
			}},
		{name: "kept after the backoff", spec: picket.TaskSpec{Retry: backoff(3)},
			then: func(f *affinityFixture) {
				f.wantTaken("w1", true)
				f.failLast()
				f.tickFor(f.t, 3001*time.Millisecond)
			}, kept: true},
	}
	onBothStores(t, func(t *testing.T, base *fixture) {
		for i, c := range cases {
			f := &affinityFixture{fixture: base, t: t, of: fmt.Sprintf(".%d", i)}
			f.check(c)
			if t.Failed() {
				t.Fatalf("the case %q", c.name)
			}
		}
		kit.CheckInvariants(t, base.Engine)
	})
}

// A retry that is kept keeps its place: its worker takes it before younger tasks, and others take
// those meanwhile.
func TestAKeptRetryKeepsItsPlace(t *testing.T) {
	onBothStores(t, func(t *testing.T, base *fixture) {
		f := &affinityFixture{fixture: base, t: t}
		for _, id := range []string{"w1", "w2"} {
			f.MustRegister(t, picket.Registration{AgentID: id, RoleID: "coder"})
		}
		f.task = f.MustSubmit(t, picket.TaskSpec{Role: "coder", Retry: backoff(0)})
		f.wantTaken("w1", true)
		f.failLast()
		younger := []string{f.MustSubmit(t, picket.TaskSpec{Role: "coder"}).TaskID,
			f.MustSubmit(t, picket.TaskSpec{Role: "coder"}).TaskID}
		if got := f.take("w2", "coder"); len(got) != 1 || got[0] != younger[0] {
			t.Errorf("another worker took %v, want the younger %s", got, younger[0])
		}
		f.wantTaken("w1", true)
		f.failLast()
		f.tickFor(t, 10001*time.Millisecond)
		f.wantTaken("w2", true) // before the second of the younger ones
	})
}

func backoff(seconds int) *picket.Retry {
	return &picket.Retry{MaxAttempts: kit.Ptr(9), BackoffSeconds: &seconds}
}

// failLast lets the present run of the task fail.
func (f *affinityFixture) failLast() {
	f.t.Helper()
	_, err := f.Fail(f.Ctx, f.held, "it did not work", true)
	kit.OK(f.t, err)
}
