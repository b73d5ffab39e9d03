package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

var unrelatedCaller = picket.Caller{Actor: "key_stranger"}

func conflictingRequest(key string) picket.Caller {
	by := idempotent(key)
	by.Idempotency.Body = strings.Repeat("c", 64)
	return by
}

// coverAgents takes the ways of registrations, heartbeats and commands.
func coverAgents(t *testing.T, f *fixture) {
	reg := picket.Registration{AgentID: "t1", RoleID: "tour", Capabilities: []string{"go"}}
	f.callTwice(t, func() error { _, err := f.Register(f.ctx, idempotent("u"), reg); return err })
	_, err := f.Register(f.ctx, conflictingRequest("u"), reg)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.Register(f.ctx, agentOwner, reg)
	refused(t, err, picket.CodeStateConflict)
	by := picket.Caller{Actor: idempotent("u").Actor}
	beat := func(by picket.Caller, change func(hb *picket.Heartbeat)) (picket.HeartbeatAnswer, error) {
		hb := picket.Heartbeat{Status: picket.AgentActive, ClientTimestamp: picket.InstantOf(time.Now())}
		change(&hb)
		return f.Heartbeat(f.ctx, by, "t1", hb)
	}
	plain := func(*picket.Heartbeat) {}
	_, err = beat(unrelatedCaller, plain)
	refused(t, err, picket.CodeForbidden)
	_, err = f.Heartbeat(f.ctx, by, "t9", activeHeartbeat())
	refused(t, err, picket.CodeNotFound)
	// drifts, still does, does no more, and again
	for _, off := range []time.Duration{time.Hour, time.Hour, 0, time.Hour, 0} {
		_, err = beat(by, func(hb *picket.Heartbeat) {
			hb.ClientTimestamp, hb.CurrentLoad = picket.InstantOf(time.Now().Add(off)), ptr(1)
		})
		ok(t, err)
	}

	command := func(by picket.Caller, c picket.AgentCommand) string {
		t.Helper()
		id, err := f.CommandAgent(f.ctx, by, "t1", c)
		ok(t, err)
		return id
	}
	ping := picket.AgentCommand{Command: picket.CommandPing}
	cid := command(idempotent("v"), ping)
	command(idempotent("v"), ping)
	_, err = f.CommandAgent(f.ctx, conflictingRequest("v"), "t1", ping)
	refused(t, err, picket.CodeIdempotencyConflict)
	_, err = f.CommandAgent(f.ctx, unrelatedCaller, "t1", ping)
	refused(t, err, picket.CodeForbidden)
	order := command(by, picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: ptr(5)})
	command(by, picket.AgentCommand{Command: picket.CommandDrain}) // replaces it
	for range picket.MaxPendingCommands - 2 {
		command(by, ping)
	}
	_, err = f.CommandAgent(f.ctx, by, "t1", ping)
	refused(t, err, picket.CodeRateLimited)
	_, err = beat(by, func(hb *picket.Heartbeat) { hb.HandledCommands = []string{cid, "unknown", order} })
	ok(t, err)

	// Unhealthy, back, unhealthy again and dead: by anyone who looks first.
	f.jumpStoreTime(t, 100*time.Second)
	_, err = beat(by, plain)
	ok(t, err)
	f.jumpStoreTime(t, 400*time.Second)
	_, err = f.Register(f.ctx, unrelatedCaller, reg)
	refused(t, err, picket.CodeForbidden)
	_, err = beat(by, plain)
	refused(t, err, picket.CodeAgentGone)
	reg.DrainTimeoutSeconds = ptr(60)
	a, err := f.Register(f.ctx, by, reg)
	ok(t, err)
	_, err = beat(by, func(hb *picket.Heartbeat) { hb.Incarnation = a.Incarnation - 1 })
	refused(t, err, picket.CodeAgentGone)

	// What it works on: leased under its registration, before it, and to nobody.
	f.mustSubmit(t, picket.TaskSpec{Agent: "t1"})
	held, err := f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: "t1", Max: ptr(1)})
	ok(t, err)
	f.mustSubmit(t, picket.TaskSpec{Agent: "t2"})
	early := f.acquireOne(t, picket.AcquireRequest{AgentID: "t2"})
	_, err = beat(by, func(hb *picket.Heartbeat) {
		hb.TasksInProgress = []string{held[0].TaskID, early.TaskID, noTask}
	})
	ok(t, err)
	f.cancelAll(t)
}

// coverDrains takes the ways of drains and deregistrations.
func coverDrains(t *testing.T, f *fixture) {
	by := agentOwner
	to := func(by picket.Caller, id string, status picket.AgentStatus, seconds *int, match ...int64) error {
		_, err := f.ChangeAgent(f.ctx, by, id, match,
			picket.AgentStatusChange{Status: status, DrainTimeoutSeconds: seconds})
		return err
	}
	f.mustRegister(t, picket.Registration{AgentID: "d1"})
	refused(t, to(by, "d1", picket.AgentDraining, nil, 7), picket.CodeVersion)
	refused(t, to(by, "d1", picket.AgentDead, nil), picket.CodeStateConflict)
	refused(t, to(unrelatedCaller, "d1", picket.AgentDraining, nil), picket.CodeForbidden)
	ok(t, to(by, "d1", picket.AgentActive, nil, 1))
	again := idempotent("w")
	again.Operator = true
	f.callTwice(t, func() error { return to(again, "d1", picket.AgentDraining, nil, 1) })
	other := conflictingRequest("w")
	other.Operator = true
	refused(t, to(other, "d1", picket.AgentDraining, nil), picket.CodeIdempotencyConflict)
	refused(t, to(other, "d1", picket.AgentDeregistered, nil), picket.CodeIdempotencyConflict)
	_, err := f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: "d1"})
	refused(t, err, picket.CodeAgentDraining)
	_, err = f.CommandAgent(f.ctx, by, "d1", picket.AgentCommand{Command: picket.CommandDrain})
	refused(t, err, picket.CodeStateConflict)
	f.mustHeartbeat(t, "d1") // done
	refused(t, to(by, "d1", picket.AgentDraining, nil), picket.CodeStateConflict)
	ok(t, to(by, "d1", picket.AgentDeregistered, nil))

	// With a lease: it ends, or the deadline comes, or the silence.
	for _, ends := range []func(h picket.LeaseCredential){
		func(h picket.LeaseCredential) {
			_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
			ok(t, err)
		},
		func(picket.LeaseCredential) { f.jumpStoreTime(t, 10*time.Second) },
		func(picket.LeaseCredential) { f.jumpStoreTime(t, 400*time.Second) },
	} {
		f.mustRegister(t, picket.Registration{AgentID: "d1", DrainTimeoutSeconds: ptr(600)})
		f.mustSubmit(t, picket.TaskSpec{Agent: "d1"})
		leases, err := f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: "d1"})
		ok(t, err)
		_, err = f.CommandAgent(f.ctx, by, "d1",
			picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: ptr(10)})
		ok(t, err)
		_, err = f.Heartbeat(f.ctx, by, "d1", picket.Heartbeat{Status: picket.AgentDraining, ClientTimestamp: 1})
		ok(t, err)
		ok(t, to(by, "d1", picket.AgentDraining, ptr(5))) // as it is
		ends(f.openLease(t, leases[0]))
		_, err = f.JudgeAgents(f.ctx, 100)
		ok(t, err)
		f.cancelAll(t)
	}
	f.mustRegister(t, picket.Registration{AgentID: "d2", DrainTimeoutSeconds: ptr(600)})
	f.mustSubmit(t, picket.TaskSpec{Agent: "d2"})
	_, err = f.Acquire(f.ctx, by, picket.AcquireRequest{AgentID: "d2"})
	ok(t, err)
	ok(t, to(by, "d2", picket.AgentDraining, nil))
	_, h := f.submitAndLease(t, picket.TaskSpec{})
	// ends, and grants nothing
	_, err = f.Advance(f.ctx, h, by, picket.AdvanceRequest{Acquire: picket.AcquireRequest{AgentID: "d2"}})
	ok(t, err)
	f.jumpStoreTime(t, 400*time.Second) // silent before the deadline
	_, err = f.JudgeAgents(f.ctx, 100)
	ok(t, err)
	refused(t, to(by, "d2", picket.AgentDeregistered, nil), picket.CodeStateConflict)
	// With nothing to do it is over after an interval.
	f.mustRegister(t, picket.Registration{AgentID: "d3"})
	ok(t, to(by, "d3", picket.AgentDraining, ptr(60)))
	f.jumpStoreTime(t, 31*time.Second)
	_, err = f.JudgeAgents(f.ctx, 100)
	ok(t, err)
	f.mustRegister(t, picket.Registration{AgentID: "d4"})
	refused(t, to(unrelatedCaller, "d4", picket.AgentDeregistered, nil), picket.CodeForbidden)
	leaves := idempotent("x")
	leaves.Operator = true
	f.callTwice(t, func() error { return to(leaves, "d4", picket.AgentDeregistered, nil, 1) })
	f.cancelAll(t)
}

// coverAgentDeaths takes the ways of leases whose agent is gone.
func coverAgentDeaths(t *testing.T, f *fixture) {
	hold := func(id string, n int) (last picket.LeaseCredential) {
		for range n {
			f.mustSubmit(t, picket.TaskSpec{Agent: id})
		}
		for n > 0 {
			leases, err := f.Acquire(f.ctx, agentOwner, picket.AcquireRequest{AgentID: id, Max: ptr(min(n, 100))})
			ok(t, err)
			n -= len(leases)
			last = f.openLease(t, leases[len(leases)-1])
		}
		return last
	}
	f.mustRegister(t, picket.Registration{AgentID: "e1"})
	left := hold("e1", 4)
	f.mustRegister(t, picket.Registration{AgentID: "e2"})
	hold("e2", 1)
	// A member of its holder set that it does not hold: only a damaged store has one.
	a, _, err := f.Agent(f.ctx, "e2")
	ok(t, err)
	ok(t, f.raw.ZAdd(f.ctx, fmt.Sprint("pk:{default}:holder:e2:", a.Incarnation), redis.Z{Score: 1e9, Member: noTask}).
		Err())
	f.jumpStoreTime(t, 400*time.Second)
	_, err = f.JudgeAgents(f.ctx, 100)
	ok(t, err)
	_, err = f.Renew(f.ctx, left)
	refused(t, err, picket.CodeLeaseExpired)
	_, _, err = f.Watch(f.ctx, left, time.Millisecond)
	ok(t, err)
	ok(t, orchestrator.JudgeOne(f.ctx, f.Engine, "e1")) // somebody was faster
	for range 3 {
		_, err = f.RunChores(f.ctx, 2)
		ok(t, err)
	}
	_, err = f.RunChores(f.ctx, 100)
	ok(t, err)
	f.mustRegister(t, picket.Registration{AgentID: "e1"})
	left = hold("e1", 3)
	_, err = f.Deregister(f.ctx, agentOwner, "e1", nil)
	ok(t, err)
	_, err = f.Renew(f.ctx, left)
	refused(t, err, picket.CodeLeaseExpired)
	f.mustRegister(t, picket.Registration{AgentID: "e1"})
	_, err = f.RunChores(f.ctx, 100)
	ok(t, err)
	// One that is judged although it is gone: only a damaged store has it.
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:silence", redis.Z{Score: 1, Member: "e2"},
		redis.Z{Score: 1, Member: "nobody"}).Err())
	_, err = f.JudgeAgents(f.ctx, 100)
	ok(t, err)
	f.cancelAll(t)
}

// coverAgentAnswers answers an agent that is still there.
func coverAgentAnswers(t *testing.T, f *fixture) {
	f.mustRegister(t, picket.Registration{AgentID: "t_asks"})
	f.mustSubmit(t, picket.TaskSpec{Agent: "t_asks"})
	help, err := f.RequestHelp(f.ctx, f.openLease(t, f.acquireAsOwner(t, "t_asks")), picket.HelpRequest{Question: "?"})
	ok(t, err)
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	ok(t, err)
	f.acquireAsOwner(t, "t_asks")
}

// coverAgentLists takes the ways of the registry's lists.
func coverAgentLists(t *testing.T, f *fixture) {
	f.mustRegister(t, picket.Registration{
		AgentID:      "l1",
		RoleID:       "tour",
		Capabilities: []string{"go", "py"},
		Capacity:     &picket.DeclaredCapacity{MaxConcurrentTasks: ptr(2)},
	})
	f.mustRegister(t, picket.Registration{AgentID: "l2", RoleID: "other"})
	_, err := f.Register(f.ctx, unrelatedCaller, picket.Registration{AgentID: "l3"})
	ok(t, err)
	for _, q := range []picket.AgentQuery{{}, {Limit: 1}, {Role: "tour"}, {Owner: agentOwner.Actor},
		{Owner: agentOwner.Actor, Role: "tour"}, {Owner: unrelatedCaller.Actor},
		{Capabilities: []string{"py"}}, {MinAvailable: ptr(1)}, {MinAvailable: ptr(9)},
		{Statuses: picket.AgentStatuses, Limit: 2}, {Owner: agentOwner.Actor, Limit: 1}} {
		for {
			page, err := f.Agents(f.ctx, q)
			ok(t, err)
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
	}
	// More in a pool than one call looks at, and more pools of one key.
	f.addMembers(t, "roster:active|pool", 1000)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:pools", "pool", 1000).Err())
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:pools:names", redis.Z{Member: "pool"}).Err())
	many := picket.Caller{Actor: "key_many"}
	for _, id := range []string{"n1", "n2"} {
		_, err := f.Register(f.ctx, many, picket.Registration{AgentID: id, RoleID: "a-role"})
		ok(t, err)
	}
	f.addMembers(t, "roles-of:key_many:names", 1050)
	_, err = f.Agents(f.ctx, picket.AgentQuery{Owner: many.Actor, Limit: 1})
	ok(t, err)
	ok(t, f.raw.ZRemRangeByLex(f.ctx, "pk:{default}:roles-of:key_many:names", "[m-", "[m~").Err())
	for _, role := range []string{"", "tour", "nothing"} {
		for _, key := range []string{"", agentOwner.Actor} {
			_, err := f.Pools(f.ctx, role, key)
			ok(t, err)
		}
	}
	ok(t, f.raw.Del(f.ctx, "pk:{default}:roster:active|pool").Err())
	ok(t, f.raw.HDel(f.ctx, "pk:{default}:pools", "pool").Err())
	ok(t, f.raw.ZRem(f.ctx, "pk:{default}:pools:names", "pool").Err())
	_, err = f.Deregister(f.ctx, agentOwner, "l2", nil)
	ok(t, err)
	_, err = f.CommandAgent(f.ctx, agentOwner, "l2", picket.AgentCommand{Command: picket.CommandPing})
	refused(t, err, picket.CodeAgentGone)
	// One that is to be deleted although it takes part: only a damaged store has it.
	ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:gone", redis.Z{Score: 1, Member: "l1"}).Err())
	_, err = f.ApplyRetention(f.ctx, picket.Retention{}, 1000)
	ok(t, err)
}

// addMembers adds members without a record to a set that is in order by name.
func (f *fixture) addMembers(t *testing.T, key string, n int) {
	t.Helper()
	for at := 0; at < n; at += 50 { // small batches: the in-process pipe holds nothing
		var z []redis.Z
		for i := range 50 {
			z = append(z, redis.Z{Member: fmt.Sprintf("m-%d", at+i)})
		}
		ok(t, f.raw.ZAdd(f.ctx, "pk:{default}:"+key, z...).Err())
	}
}
