package branches

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// capableAgent is an agent with a session, whose prompts have capabilities.
type capableAgent struct {
	f           *fixture
	id, session string
	name        string // of the agent; empty: ann
	by          picket.Caller
	incarnation int64
}

func (a *capableAgent) register(t *testing.T) {
	t.Helper()
	got, err := a.f.Register(a.f.Ctx, a.by, picket.Registration{AgentID: a.id, RoleID: "capable",
		Capabilities: strings.Split("abcdefghijk", ""),
		Metadata:     picket.RawJSON(`{"agent_name":"` + cmp.Or(a.name, "ann") + `"}`)})
	kit.OK(t, err)
	a.incarnation, a.session = got.Incarnation, "asession_"+ulid.Make().String()
	a.report(t, a.session)
}

func (a *capableAgent) report(t *testing.T, sessions ...string) {
	t.Helper()
	list := []picket.SessionReport{}
	for _, id := range sessions {
		list = append(list, picket.SessionReport{SessionID: id, Kind: picket.SessionResident, Preset: "exec",
			State: picket.SessionIdle})
	}
	kit.OK(t, a.f.ReportSessions(a.f.Ctx, a.by, a.id,
		picket.SessionsReport{Incarnation: a.incarnation, Sessions: list}))
}

// prompt is the credential of a prompt that was accepted with a capability.
func (a *capableAgent) prompt(t *testing.T) picket.LeaseCredential {
	t.Helper()
	p, err := a.f.PromptSession(a.f.Ctx, kit.Operator, a.session, picket.PromptRequest{Text: "x"})
	kit.OK(t, err)
	held := picket.LeaseCredential{PromptID: p.PromptID, Secret: strings.Repeat("c", 64)}
	for range 2 { // the first reply is lost
		kit.OK(t, a.result(held, picket.PromptAccepted, held.Secret))
	}
	return held
}

func (a *capableAgent) result(held picket.LeaseCredential, state picket.PromptState, hash string) error {
	return kit.SendResult(a.f.Ctx, a.f, a.by, a.id, held.PromptID,
		picket.CommandResult{Incarnation: a.incarnation, State: state, CapabilityHash: hash})
}

// refused checks that every script refuses a capability.
func (a *capableAgent) refused(t *testing.T, held picket.LeaseCredential) {
	t.Helper()
	_, err := a.f.SessionCapability(a.f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = a.f.AgentContext(a.f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = a.f.NextTask(a.f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = a.f.SendMessage(a.f.Ctx, held, "", toAgent("ses-b"))
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = a.f.ReadMessages(a.f.Ctx, held, "r", picket.ReadMessages{}, 0)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = a.f.Reserve(a.f.Ctx, held, kit.PaidCall("0.01"))
	kit.Refused(t, err, picket.CodeSessionCapability)
}

func toAgent(to string) picket.AgentMessage {
	return picket.AgentMessage{To: to, MessageRequest: picket.MessageRequest{Body: "x"}}
}

// coverCapabilities takes the ways of session capabilities and of contexts.
func coverCapabilities(t *testing.T, f *fixture) {
	a := &capableAgent{f: f, id: "ses-a", by: kit.AgentOwner}
	b := &capableAgent{f: f, id: "ses-b", by: kit.AgentOwner}
	a.register(t)
	b.register(t)
	held := a.prompt(t)
	kit.Refused(t, a.result(held, picket.PromptAccepted, strings.Repeat("d", 64)), picket.CodeStateConflict)
	_, err := f.SessionCapability(f.Ctx, held)
	kit.OK(t, err)
	coverSessionMessages(t, f, held)
	coverContexts(t, f, a, held)
	coverTurns(t, f)

	forged := held
	forged.Secret = strings.Repeat("e", 64)
	a.refused(t, forged)
	kit.OK(t, a.result(held, picket.PromptAccepted, held.Secret))
	process := picket.LeaseCredential{SessionID: a.session, Secret: held.Secret}
	_, err = f.SessionCapability(f.Ctx, process)
	kit.OK(t, err)
	kit.OK(t, a.result(held, picket.PromptAnswered, ""))
	a.refused(t, held)
	a.refused(t, process)
	held = a.prompt(t)
	f.JumpStoreTime(t, 601*time.Second)
	a.refused(t, held)
	a.register(t)
	held = a.prompt(t)
	_, err = f.Deregister(f.Ctx, a.by, a.id, nil)
	kit.OK(t, err)
	a.refused(t, held)
	_, err = f.Register(f.Ctx, a.by, picket.Registration{AgentID: a.id})
	kit.OK(t, err)
	a.refused(t, held)

	key := f.MustCreateKey(t, picket.ScopeAgent)
	c := &capableAgent{f: f, id: "ses-c", by: kit.WithKey(key)}
	c.register(t)
	held = c.prompt(t)
	f.MustRevokeKey(t, key, nil)
	c.refused(t, held)
}

// coverSessionMessages sends and reads messages of a session.
func coverSessionMessages(t *testing.T, f *fixture, held picket.LeaseCredential) {
	send := func(key string, m picket.AgentMessage, want picket.Code) {
		t.Helper()
		_, err := f.SendMessage(f.Ctx, held, key, m)
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
	}
	send("k", toAgent("ses-b"), "")
	send("k", toAgent("ses-b"), "")
	clash := toAgent("ses-b")
	clash.Body = "y"
	send("k", clash, picket.CodeIdempotencyConflict)
	send("", toAgent("ses-a"), picket.CodeValidation)
	send("", toAgent("nobody-ses"), picket.CodeNotFound)
	for range picket.MaxSendsPerMinute - 1 {
		send("", toAgent("ses-b"), "")
	}
	send("", toAgent("ses-b"), picket.CodeRateLimited)
	for range 3 {
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "ses-a", picket.MessageRequest{Body: "x"})
		kit.OK(t, err)
	}
	for _, r := range []struct {
		request string
		r       picket.ReadMessages
	}{{"p", picket.ReadMessages{Peek: true}}, {"a", picket.ReadMessages{Max: 1}}, {"a", picket.ReadMessages{}}} {
		_, err := f.ReadMessages(f.Ctx, held, r.request, r.r, 0)
		kit.OK(t, err)
	}
}

// coverContexts reads the contexts of a session and of runs.
func coverContexts(t *testing.T, f *fixture, a *capableAgent, held picket.LeaseCredential) {
	see := func(held picket.LeaseCredential) {
		t.Helper()
		_, err := f.AgentContext(f.Ctx, held)
		kit.OK(t, err)
	}
	caps := strings.Split("abcdefghijk", "")
	for i := range caps {
		for j := range i {
			f.MustSubmit(t, picket.TaskSpec{Role: "capable", Needs: []string{caps[i], caps[j]}})
		}
	}
	for i := range picket.MaxContextSenders {
		_, err := f.Tell(f.Ctx, picket.Caller{Actor: fmt.Sprint("key_ses", i), Operator: true}, a.id,
			picket.MessageRequest{Body: "x"})
		kit.OK(t, err)
	}
	first := 9
	f.MustSubmit(t, picket.TaskSpec{Role: "other", Priority: &first})
	see(held)
	lease := func(agent string, by picket.Caller) picket.LeaseCredential {
		t.Helper()
		f.MustSubmit(t, picket.TaskSpec{Role: "capable-" + agent})
		leases, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: agent, Role: "capable-" + agent})
		kit.OK(t, err)
		return f.OpenLease(t, leases[0])
	}
	run := lease(a.id, a.by)
	see(run)
	a.report(t, a.session, "asession_"+ulid.Make().String())
	see(run)
	see(lease("stray-ses", kit.Operator))
	_, err := f.AgentContext(f.Ctx, picket.LeaseCredential{TaskID: run.TaskID, RunID: run.RunID, Secret: "x"})
	kit.Refused(t, err, picket.CodeLeaseExpired)
	f.CancelAll(t)
}

// coverTurns reserves turns of an agent of its own that takes one task at a time, and reports what it works on.
func coverTurns(t *testing.T, f *fixture) {
	d := &capableAgent{f: f, id: "ses-d", by: kit.AgentOwner}
	one := 1
	got, err := f.Register(f.Ctx, d.by, picket.Registration{AgentID: d.id, RoleID: "turns",
		Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: &one}})
	kit.OK(t, err)
	d.incarnation, d.session = got.Incarnation, "asession_"+ulid.Make().String()
	d.report(t, d.session)
	next := func(held picket.LeaseCredential, want picket.NextTaskReason) {
		t.Helper()
		got, err := f.NextTask(f.Ctx, held)
		kit.OK(t, err)
		if got.Reason != want {
			t.Errorf("got %+v, want the reason %q", got, want)
		}
	}
	held := d.prompt(t)
	next(held, picket.NextTaskNone)
	f.MustSubmit(t, picket.TaskSpec{Role: "turns"})
	f.MustSubmit(t, picket.TaskSpec{Role: "turns"})
	next(held, "")
	waits, err := f.PromptSession(f.Ctx, kit.Operator, d.session, picket.PromptRequest{Text: "x"})
	kit.OK(t, err)
	for range 2 {
		kit.OK(t, d.result(held, picket.PromptAnswered, ""))
	}
	leases, err := f.Acquire(f.Ctx, d.by, picket.AcquireRequest{AgentID: d.id, Role: "turns"})
	kit.OK(t, err)
	for _, task := range []string{"task_" + ulid.Make().String(), leases[0].TaskID, leases[0].TaskID} {
		kit.OK(t, f.ReportSessions(f.Ctx, d.by, d.id, picket.SessionsReport{Incarnation: d.incarnation,
			Sessions: []picket.SessionReport{{SessionID: d.session, Kind: picket.SessionResident, Preset: "exec",
				State: picket.SessionPrompting, PromptID: held.PromptID, TaskID: task}}}))
	}
	_, err = f.PromptSession(f.Ctx, kit.Operator, d.session, picket.PromptRequest{Text: "x"})
	kit.Refused(t, err, picket.CodeStateConflict)
	d.report(t, d.session)
	kit.OK(t, d.result(picket.LeaseCredential{PromptID: waits.PromptID}, picket.PromptAnswered, ""))
	held = d.prompt(t)
	next(held, picket.NextTaskBusy)
	_, err = f.ChangeAgent(f.Ctx, d.by, d.id, nil, kit.DrainChange)
	kit.OK(t, err)
	next(held, picket.NextTaskDraining)
	f.CancelAll(t)
}
