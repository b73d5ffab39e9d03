package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

var unrelatedCaller = picket.Caller{Actor: "key_stranger"}

func conflictingRequest(key string) picket.Caller {
	by := kit.Idempotent(key)
	by.Idempotency.Body = strings.Repeat("c", 64)
	return by
}

// coverAgents takes the ways of registrations, heartbeats and commands.
func coverAgents(t *testing.T, f *fixture) {
	reg := picket.Registration{AgentID: "t1", RoleID: "worker", Capabilities: []string{"go"}}
	f.CallTwice(t, func() error { _, err := f.Register(f.Ctx, kit.Idempotent("u"), reg); return err })
	_, err := f.Register(f.Ctx, conflictingRequest("u"), reg)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Register(f.Ctx, kit.AgentOwner, reg)
	kit.Refused(t, err, picket.CodeStateConflict)
	by := picket.Caller{Actor: kit.Idempotent("u").Actor}
	beat := func(by picket.Caller, change func(hb *picket.Heartbeat)) (picket.HeartbeatAnswer, error) {
		hb := picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
		change(&hb)
		return f.Heartbeat(f.Ctx, by, "t1", hb)
	}
	plain := func(*picket.Heartbeat) {}
	_, err = beat(unrelatedCaller, plain)
	kit.Refused(t, err, picket.CodeForbidden)
	_, err = f.Heartbeat(f.Ctx, by, "t9", kit.ActiveHeartbeat())
	kit.Refused(t, err, picket.CodeNotFound)
	// drifts, still does, does no more, and again
	for _, off := range []time.Duration{time.Hour, time.Hour, 0, time.Hour, 0} {
		_, err = beat(by, func(hb *picket.Heartbeat) {
			hb.ClientTimestamp, hb.CurrentLoad = picket.InstantOf(time.Now().Add(off)), kit.Ptr(1)
		})
		kit.OK(t, err)
	}

	command := func(by picket.Caller, c picket.AgentCommand) string {
		t.Helper()
		id, err := f.CommandAgent(f.Ctx, by, "t1", c)
		kit.OK(t, err)
		return id
	}
	ping := picket.AgentCommand{Command: picket.CommandPing}
	cid := command(kit.Idempotent("v"), ping)
	command(kit.Idempotent("v"), ping)
	_, err = f.CommandAgent(f.Ctx, conflictingRequest("v"), "t1", ping)
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.CommandAgent(f.Ctx, unrelatedCaller, "t1", ping)
	kit.Refused(t, err, picket.CodeForbidden)
	order := command(by, picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: kit.Ptr(5)})
	command(by, picket.AgentCommand{Command: picket.CommandDrain}) // replaces it
	for range picket.MaxPendingCommands - 2 {
		command(by, ping)
	}
	_, err = f.CommandAgent(f.Ctx, by, "t1", ping)
	kit.Refused(t, err, picket.CodeRateLimited)
	_, err = beat(by, func(hb *picket.Heartbeat) { hb.HandledCommands = []string{cid, "unknown", order} })
	kit.OK(t, err)

	// Unhealthy, back, unhealthy again and dead: by anyone who looks first.
	f.JumpStoreTime(t, 100*time.Second)
	_, err = beat(by, plain)
	kit.OK(t, err)
	f.JumpStoreTime(t, 400*time.Second)
	_, err = f.Register(f.Ctx, unrelatedCaller, reg)
	kit.Refused(t, err, picket.CodeForbidden)
	_, err = beat(by, plain)
	kit.Refused(t, err, picket.CodeAgentGone)
	reg.DrainTimeoutSeconds = kit.Ptr(60)
	a, err := f.Register(f.Ctx, by, reg)
	kit.OK(t, err)
	_, err = beat(by, func(hb *picket.Heartbeat) { hb.Incarnation = a.Incarnation - 1 })
	kit.Refused(t, err, picket.CodeAgentGone)

	// What it works on: leased under its registration, before it, and to nobody.
	f.MustSubmit(t, picket.TaskSpec{Agent: "t1"})
	held, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "t1", Max: kit.Ptr(1)})
	kit.OK(t, err)
	f.MustSubmit(t, picket.TaskSpec{Agent: "t2"})
	early := f.AcquireOne(t, picket.AcquireRequest{AgentID: "t2"})
	_, err = beat(by, func(hb *picket.Heartbeat) {
		hb.TasksInProgress = []string{held[0].TaskID, early.TaskID, kit.NoTask}
	})
	kit.OK(t, err)
	f.CancelAll(t)
}

// coverDrains takes the ways of drains and deregistrations.
func coverDrains(t *testing.T, f *fixture) {
	by := kit.AgentOwner
	to := func(by picket.Caller, id string, status picket.AgentStatus, seconds *int, match ...int64) error {
		_, err := f.ChangeAgent(f.Ctx, by, id, match,
			picket.AgentStatusChange{Status: status, DrainTimeoutSeconds: seconds})
		return err
	}
	f.MustRegister(t, picket.Registration{AgentID: "d1"})
	kit.Refused(t, to(by, "d1", picket.AgentDraining, nil, 7), picket.CodeVersion)
	kit.Refused(t, to(by, "d1", picket.AgentDead, nil), picket.CodeStateConflict)
	kit.Refused(t, to(unrelatedCaller, "d1", picket.AgentDraining, nil), picket.CodeForbidden)
	kit.OK(t, to(by, "d1", picket.AgentActive, nil, 1))
	again := kit.Idempotent("w")
	again.Operator = true
	f.CallTwice(t, func() error { return to(again, "d1", picket.AgentDraining, nil, 1) })
	other := conflictingRequest("w")
	other.Operator = true
	kit.Refused(t, to(other, "d1", picket.AgentDraining, nil), picket.CodeIdempotencyConflict)
	kit.Refused(t, to(other, "d1", picket.AgentDeregistered, nil), picket.CodeIdempotencyConflict)
	_, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "d1"})
	kit.Refused(t, err, picket.CodeAgentDraining)
	_, err = f.CommandAgent(f.Ctx, by, "d1", picket.AgentCommand{Command: picket.CommandDrain})
	kit.Refused(t, err, picket.CodeStateConflict)
	f.MustHeartbeat(t, "d1") // done
	kit.Refused(t, to(by, "d1", picket.AgentDraining, nil), picket.CodeStateConflict)
	kit.OK(t, to(by, "d1", picket.AgentDeregistered, nil))

	// With a lease: it ends, or the deadline comes, or the silence.
	for _, ends := range []func(h picket.LeaseCredential){
		func(h picket.LeaseCredential) {
			_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
			kit.OK(t, err)
		},
		func(picket.LeaseCredential) { f.JumpStoreTime(t, 10*time.Second) },
		func(picket.LeaseCredential) { f.JumpStoreTime(t, 400*time.Second) },
	} {
		f.MustRegister(t, picket.Registration{AgentID: "d1", DrainTimeoutSeconds: kit.Ptr(600)})
		f.MustSubmit(t, picket.TaskSpec{Agent: "d1"})
		leases, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "d1"})
		kit.OK(t, err)
		_, err = f.CommandAgent(f.Ctx, by, "d1",
			picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: kit.Ptr(10)})
		kit.OK(t, err)
		_, err = f.Heartbeat(f.Ctx, by, "d1", picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: 1})
		kit.OK(t, err)
		kit.OK(t, to(by, "d1", picket.AgentDraining, kit.Ptr(5))) // as it is
		ends(f.OpenLease(t, leases[0]))
		_, err = f.JudgeAgents(f.Ctx, 100)
		kit.OK(t, err)
		f.CancelAll(t)
	}
	f.MustRegister(t, picket.Registration{AgentID: "d2", DrainTimeoutSeconds: kit.Ptr(600)})
	f.MustSubmit(t, picket.TaskSpec{Agent: "d2"})
	_, err = f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "d2"})
	kit.OK(t, err)
	kit.OK(t, to(by, "d2", picket.AgentDraining, nil))
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	// ends, and grants nothing
	_, err = f.Advance(f.Ctx, h, by, picket.AdvanceRequest{Acquire: picket.AcquireRequest{AgentID: "d2"}})
	kit.OK(t, err)
	f.JumpStoreTime(t, 400*time.Second) // silent before the deadline
	_, err = f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
	kit.Refused(t, to(by, "d2", picket.AgentDeregistered, nil), picket.CodeStateConflict)
	// With nothing to do it is over after an interval.
	f.MustRegister(t, picket.Registration{AgentID: "d3"})
	kit.OK(t, to(by, "d3", picket.AgentDraining, kit.Ptr(60)))
	f.JumpStoreTime(t, 31*time.Second)
	_, err = f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
	f.MustRegister(t, picket.Registration{AgentID: "d4"})
	kit.Refused(t, to(unrelatedCaller, "d4", picket.AgentDeregistered, nil), picket.CodeForbidden)
	leaves := kit.Idempotent("x")
	leaves.Operator = true
	f.CallTwice(t, func() error { return to(leaves, "d4", picket.AgentDeregistered, nil, 1) })
	f.CancelAll(t)
}

// coverAgentDeaths takes the ways of leases whose agent is gone.
func coverAgentDeaths(t *testing.T, f *fixture) {
	hold := func(id string, n int) (last picket.LeaseCredential) {
		for range n {
			f.MustSubmit(t, picket.TaskSpec{Agent: id})
		}
		for n > 0 {
			leases, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: id,
				Max: kit.Ptr(min(n, 100))})
			kit.OK(t, err)
			n -= len(leases)
			last = f.OpenLease(t, leases[len(leases)-1])
		}
		return last
	}
	f.MustRegister(t, picket.Registration{AgentID: "e1"})
	left := hold("e1", 4)
	f.MustRegister(t, picket.Registration{AgentID: "e2"})
	hold("e2", 1)
	// A member of its holder set that it does not hold: only a damaged store has one.
	a, _, err := f.Agent(f.Ctx, "e2")
	kit.OK(t, err)
	kit.OK(t, f.Raw.ZAdd(f.Ctx, fmt.Sprint("pk:{default}:holder:e2:", a.Incarnation),
		redis.Z{Score: 1e9, Member: kit.NoTask}).
		Err())
	f.JumpStoreTime(t, 400*time.Second)
	_, err = f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, left)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	_, _, err = f.Watch(f.Ctx, left, time.Millisecond)
	kit.OK(t, err)
	kit.OK(t, kit.JudgeOne(f.Ctx, f.Engine, "e1")) // somebody was faster
	for range 3 {
		_, err = f.RunChores(f.Ctx, 2)
		kit.OK(t, err)
	}
	_, err = f.RunChores(f.Ctx, 100)
	kit.OK(t, err)
	f.MustRegister(t, picket.Registration{AgentID: "e1"})
	left = hold("e1", 3)
	_, err = f.Deregister(f.Ctx, kit.AgentOwner, "e1", nil)
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, left)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	f.MustRegister(t, picket.Registration{AgentID: "e1"})
	_, err = f.RunChores(f.Ctx, 100)
	kit.OK(t, err)
	// One that is judged although it is gone: only a damaged store has it.
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:silence", redis.Z{Score: 1, Member: "e2"},
		redis.Z{Score: 1, Member: "nobody"}).Err())
	_, err = f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
	f.CancelAll(t)
}

// coverAgentAnswers answers an agent that is still there.
func coverAgentAnswers(t *testing.T, f *fixture) {
	f.MustRegister(t, picket.Registration{AgentID: "t_asks"})
	f.MustSubmit(t, picket.TaskSpec{Agent: "t_asks"})
	help, err := f.RequestHelp(f.Ctx, f.OpenLease(t, f.AcquireAsOwner(t, "t_asks")), picket.HelpRequest{Question: "?"})
	kit.OK(t, err)
	_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	kit.OK(t, err)
	f.AcquireAsOwner(t, "t_asks")
}

// coverAgentLists takes the ways of the registry's lists.
func coverAgentLists(t *testing.T, f *fixture) {
	f.MustRegister(t, picket.Registration{
		AgentID:      "l1",
		RoleID:       "worker",
		Capabilities: []string{"go", "py"},
		Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(2)},
	})
	f.MustRegister(t, picket.Registration{AgentID: "l2", RoleID: "other"})
	_, err := f.Register(f.Ctx, unrelatedCaller, picket.Registration{AgentID: "l3"})
	kit.OK(t, err)
	f.MustRegister(t, picket.Registration{AgentID: "l4", RoleID: picket.RoleAttached})
	_, err = f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "l4"})
	kit.OK(t, err)
	_, err = f.Deregister(f.Ctx, kit.AgentOwner, "l4", nil)
	kit.OK(t, err)
	f.MustRegister(t, picket.Registration{AgentID: "l4", RoleID: picket.RoleAttached})
	for _, q := range []picket.AgentQuery{{}, {Limit: 1}, {Role: "worker"}, {Owner: kit.AgentOwner.Actor},
		{Owner: kit.AgentOwner.Actor, Role: "worker"}, {Owner: unrelatedCaller.Actor},
		{Capabilities: []string{"py"}}, {MinAvailable: kit.Ptr(1)}, {MinAvailable: kit.Ptr(9)},
		{Statuses: picket.AgentStatuses, Limit: 2}, {Owner: kit.AgentOwner.Actor, Limit: 1},
		{Attached: true}, {Owner: unrelatedCaller.Actor, Attached: true}} {
		for {
			page, err := f.Agents(f.Ctx, q)
			kit.OK(t, err)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
	}
	// More in a pool than one call looks at, and more pools of one key.
	f.addMembers(t, "roster:active|pool", 1000)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:pools", "pool", 1000).Err())
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:pools:names", redis.Z{Member: "pool"}).Err())
	many := picket.Caller{Actor: "key_many"}
	for _, id := range []string{"n1", "n2"} {
		_, err := f.Register(f.Ctx, many, picket.Registration{AgentID: id, RoleID: "a-role",
			Capabilities: []string{"same"}})
		kit.OK(t, err)
	}
	f.addMembers(t, "roles-of:key_many:names", 1050)
	_, err = f.Agents(f.Ctx, picket.AgentQuery{Owner: many.Actor, Limit: 1})
	kit.OK(t, err)
	kit.OK(t, f.Raw.ZRemRangeByLex(f.Ctx, "pk:{default}:roles-of:key_many:names", "[m-", "[m~").Err())
	for _, role := range []string{"", "worker", "nothing"} {
		for _, key := range []string{"", kit.AgentOwner.Actor} {
			_, err := f.Pools(f.Ctx, role, key)
			kit.OK(t, err)
		}
	}
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:roster:active|pool").Err())
	kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:pools", "pool").Err())
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:pools:names", "pool").Err())
	_, err = f.Deregister(f.Ctx, kit.AgentOwner, "l2", nil)
	kit.OK(t, err)
	_, err = f.CommandAgent(f.Ctx, kit.AgentOwner, "l2", picket.AgentCommand{Command: picket.CommandPing})
	kit.Refused(t, err, picket.CodeAgentGone)
	// An agent that is due for deletion although it is active exists only in a damaged store.
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:gone", redis.Z{Score: 1, Member: "l1"}).Err())
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{}, 1000)
	kit.OK(t, err)
}

// addMembers adds members without a record to a set that is in order by name.
func (f *fixture) addMembers(t *testing.T, key string, n int) {
	t.Helper()
	for at := 0; at < n; at += 50 { // small batches: the in-process pipe holds nothing
		var z []redis.Z
		for i := range 50 {
			z = append(z, redis.Z{Member: fmt.Sprintf("m-%d", at+i)})
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:"+key, z...).Err())
	}
}

// coverFindAgents takes the ways of a look at the pools: of more roles and agents than it looks at.
func coverFindAgents(t *testing.T, f *fixture) {
	_, h := f.SubmitAndLease(t, picket.TaskSpec{})
	find := func(q picket.AgentSearch, want picket.Code) {
		t.Helper()
		_, err := f.FindAgents(f.Ctx, h, "", q)
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
	}
	f.MustRegister(t, picket.Registration{AgentID: "fa1", RoleID: "found", Capabilities: []string{"go"}})
	f.MustRegister(t, picket.Registration{AgentID: "fa2", RoleID: "found", Capabilities: []string{"go"}})
	kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:roster:unhealthy|found", redis.Z{Member: "fa2"}).Err())
	find(picket.AgentSearch{Role: "found"}, "")
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:roster:unhealthy|found", "fa2").Err())
	find(picket.AgentSearch{Role: "found", Needs: []string{"go"}}, "")
	find(picket.AgentSearch{Needs: []string{"rust"}}, "")
	f.addMembers(t, "roster:active|found", 550)
	find(picket.AgentSearch{Role: "found"}, "")
	f.addMembers(t, "pools:names", 100)
	find(picket.AgentSearch{}, "")
	for n := range 10 {
		find(picket.AgentSearch{Role: "nobody"}, map[bool]picket.Code{true: picket.CodeLeaseReleased}[n == 9])
	}
	find(picket.AgentSearch{}, picket.CodeLeaseReleased)
	f.CancelAll(t)
	for _, id := range []string{"fa1", "fa2"} {
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, id, nil)
		kit.OK(t, err)
	}
	for _, key := range []string{"roster:active|found", "pools:names"} {
		for n := range 550 {
			kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:"+key, fmt.Sprintf("m-%d", n)).Err())
		}
	}
}

// coverKeptRetries takes the ways of a retry that is kept for the worker that has the workspace.
func coverKeptRetries(t *testing.T, f *fixture) {
	f.MustRegister(t, picket.Registration{AgentID: "k1", RoleID: "keeper"})
	retry := &picket.Retry{MaxAttempts: kit.Ptr(9), BackoffSeconds: kit.Ptr(0)}
	task := f.MustSubmit(t, picket.TaskSpec{Role: "keeper", Retry: retry})
	take := func(want string) picket.LeaseCredential {
		t.Helper()
		leases, err := f.Acquire(f.Ctx, kit.AgentOwner,
			picket.AcquireRequest{AgentID: "k1", Role: "keeper", WorkspaceRoot: "/work"})
		kit.OK(t, err)
		if len(leases) != 1 || leases[0].TaskID != want {
			t.Fatalf("%d leases, want that of %s", len(leases), want)
		}
		return f.OpenLease(t, leases[0])
	}
	fail := func(held picket.LeaseCredential) {
		t.Helper()
		_, err := f.Fail(f.Ctx, held, "not yet", true)
		kit.OK(t, err)
	}
	fail(take(task.TaskID))
	_, err := f.Explain(f.Ctx, task.TaskID)
	kit.OK(t, err)
	_, err = f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "k1", Role: "other"}) // not of the pool
	kit.OK(t, err)
	first := take(task.TaskID)
	other := f.MustSubmit(t, picket.TaskSpec{Role: "keeper", Retry: retry})
	second := take(other.TaskID)
	fail(first)
	pinned := f.MustSubmit(t, picket.TaskSpec{Agent: "k1"}) // its lane is not left with the agent
	_, err = f.ChangeAgent(f.Ctx, kit.AgentOwner, "k1", nil, kit.DrainChange)
	kit.OK(t, err)
	fail(second) // by a worker that drains
	for _, id := range []string{task.TaskID, other.TaskID, pinned.TaskID} {
		_, err = f.Cancel(f.Ctx, kit.Operator, id, "")
		kit.OK(t, err)
	}
}
