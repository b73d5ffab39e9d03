package branches

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// wakings wakes the session of the agent wak, whose name is amy.
type wakings struct {
	*fixture
	t           *testing.T
	incarnation int64
	session     string
}

func (w *wakings) report(state picket.SessionState) {
	w.t.Helper()
	s := picket.SessionReport{SessionID: w.session, Kind: picket.SessionResident, Preset: "exec", State: state}
	kit.OK(w.t, w.ReportSessions(w.Ctx, kit.AgentOwner, "wak",
		picket.SessionsReport{Incarnation: w.incarnation, Sessions: []picket.SessionReport{s}}))
}

// pending are the commands for the session, after a wait.
func (w *wakings) pending(wait time.Duration) []picket.SessionCommand {
	w.t.Helper()
	got, err := w.PendingCommands(w.Ctx, kit.AgentOwner, "wak",
		picket.PendingQuery{Incarnation: w.incarnation, Wait: wait})
	kit.OK(w.t, err)
	return got.Sessions
}

func (w *wakings) result(id string, state picket.PromptState, reason string) {
	w.t.Helper()
	_ = kit.SendResult(w.Ctx, w, kit.AgentOwner, "wak", id,
		picket.CommandResult{Incarnation: w.incarnation, State: state, Reason: reason})
}

// wake wakes the session as a person, while meanwhile is done with the command of the wake.
func (w *wakings) wake(by picket.Caller, meanwhile func(id string)) {
	w.t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = w.Wake(w.Ctx, by, "amy", picket.WakeRequest{})
	}()
	got := w.pending(20 * time.Second)
	if len(got) != 1 || got[0].Command != picket.CommandWake {
		w.t.Fatalf("commands %+v", got)
	}
	meanwhile(got[0].CommandID)
	<-done
}

// cycle runs a cycle of the scheduler after a while.
func (w *wakings) cycle(after time.Duration) {
	w.t.Helper()
	const step = 80 * time.Second // the agent stays healthy
	for ; after > 0; after -= step {
		w.JumpStoreTime(w.t, min(after, step))
		w.MustHeartbeat(w.t, "wak")
		w.report(picket.SessionIdle)
	}
	_, err := w.WakeCycle(w.Ctx)
	kit.OK(w.t, err)
}

// coverWakes takes the ways of wakes.
func coverWakes(t *testing.T, f *fixture) {
	a := f.MustRegister(t, picket.Registration{AgentID: "wak", Metadata: picket.RawJSON(`{"agent_name":"amy"}`)})
	w := &wakings{f, t, a.Incarnation, "asession_" + ulid.Make().String()}
	// Without a server that has the directory of policies, no wake would be sent for a day.
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:policy-lock").Err())
	w.report(picket.SessionIdle)
	refused := func(name, session string) {
		t.Helper()
		_, err := f.Wake(f.Ctx, kit.OtherOperator, name, picket.WakeRequest{SessionID: session})
		kit.OK(t, err)
	}
	refused("nobody", "asession_"+ulid.Make().String())
	refused("amy", w.session)
	refused("amy", w.session)
	_, err := f.AgentSession(f.Ctx, w.session)
	kit.OK(t, err)
	_, err = f.WritePolicy(f.Ctx, kit.OtherOperator, "amy", picket.PolicyWrite{Body: "---\npreferences: {context: {include: [self, task]}}\n---\nLook at your inbox.\n"})
	kit.OK(t, err)
	refused("amy", "asession_"+ulid.Make().String())
	by, clash := kit.Idempotent("U"), kit.Idempotent("U")
	by.Operator, clash.Operator = true, true
	w.wake(by, func(id string) {
		w.result(id, picket.PromptRefused, "prompt_active")
	})
	_, err = f.Wake(f.Ctx, by, "amy", picket.WakeRequest{})
	kit.OK(t, err)
	clash.Idempotency.Body = "d" + clash.Idempotency.Body[1:]
	_, err = f.Wake(f.Ctx, clash, "amy", picket.WakeRequest{})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	w.wake(kit.OtherOperator, func(id string) {
		_, err := kit.InspectAll(f.Ctx, f.Engine, false)
		kit.OK(t, err)
		w.result(id, picket.PromptRefused, "cannot_start")
	})
	w.wake(kit.OtherOperator, func(id string) {
		f.JumpStoreTime(t, 11*time.Second)
		w.pending(0)
		w.result(id, picket.PromptAccepted, "")
	})
	w.wake(kit.OtherOperator, func(string) {
		p, err := f.PromptSession(f.Ctx, kit.OtherOperator, w.session, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		w.result(p.PromptID, picket.PromptAnswered, "")
	})
	w.wake(kit.OtherOperator, func(id string) {
		w.result(id, picket.PromptAccepted, "")
		_, err = f.PromptSession(f.Ctx, kit.OtherOperator, w.session, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		w.result(id, picket.PromptAnswered, "")
		w.result(w.pending(0)[0].CommandID, picket.PromptAnswered, "")
	})
	facts, err := f.Records().Run(f.Ctx, "wake_facts", "amy", w.session, kit.SessionLimitsArgument, "")
	kit.OK(t, err)
	list, _ := facts.([]any)
	stamp := list[slices.Index(list, any("stamp"))+1]
	for _, c := range []struct {
		stamp, most any
		limits      string
	}{{"stale", 9, kit.SessionLimitsArgument}, {stamp, 0, kit.SessionLimitsArgument}, {stamp, 9, noSessionMoney}} {
		args := slices.Repeat([]any{""}, 24)
		args[0], args[1], args[13], args[21], args[22] = "amy", w.session, c.stamp, c.most, c.limits
		_, err = f.Records().Run(f.Ctx, "record_wake", args...)
		kit.OK(t, err)
	}
	_, err = f.Records().Run(f.Ctx, "agent_context", "", "", "", "", "asession_"+ulid.Make().String())
	kit.Refused(t, err, picket.CodeNotFound)
	for _, q := range []picket.WakeQuery{{}, {Limit: 1}, {Cursor: 1}} {
		_, err := f.Wakes(f.Ctx, "amy", q)
		kit.OK(t, err)
	}
	coverSettledSubtask(t, w)
	coverWakeCycles(t, w)
	coverPolicyLock(t, w)
}

// coverSettledSubtask lets a subtask end whose parent the agent of a session holds.
func coverSettledSubtask(t *testing.T, w *wakings) {
	task := w.MustSubmit(t, picket.TaskSpec{Agent: "wak"})
	parent := w.OpenLease(t, w.AcquireAsOwner(t, "wak"))
	made, err := w.Delegate(w.Ctx, parent, "", picket.Subtask{Title: "part"})
	kit.OK(t, err)
	for _, id := range []string{made.TaskID, task.TaskID} {
		_, err = w.Cancel(w.Ctx, kit.OtherOperator, id, "")
		kit.OK(t, err)
	}
}

// coverWakeCycles takes the ways of the scheduler.
func coverWakeCycles(t *testing.T, w *wakings) {
	w.cycle(time.Minute)
	_, err := w.WakeCycle(w.Ctx) // the same cycle again
	kit.OK(t, err)
	_, err = w.Tell(w.Ctx, kit.AgentOwner, "wak", picket.MessageRequest{Body: "to the people"})
	kit.OK(t, err)
	_, err = w.Tell(w.Ctx, kit.OtherOperator, "wak", picket.MessageRequest{Body: "look"})
	kit.OK(t, err)
	_, held := w.SubmitAndLease(t, picket.TaskSpec{})
	tell := func(body string) {
		m := picket.AgentMessage{To: "wak"}
		m.Body = body
		_, err := w.SendMessage(w.Ctx, held, "", m)
		kit.OK(t, err)
	}
	tell("look")
	w.cycle(time.Minute)
	for _, c := range w.pending(0) {
		w.result(c.CommandID, picket.PromptAccepted, "")
		w.result(c.CommandID, picket.PromptAnswered, "")
	}
	tell("again")
	w.cycle(2 * time.Minute)
	for _, c := range w.pending(0) {
		w.result(c.CommandID, picket.PromptAccepted, "")
		w.result(c.CommandID, picket.PromptAnswered, "")
	}
	const rows = "pk:{default}:wakes:amy"
	kit.OK(t, w.Raw.ZAdd(w.Ctx, rows, redis.Z{Score: -1, Member: `{"at":"1"}`}).Err())
	_, err = w.Wake(w.Ctx, kit.OtherOperator, "amy", picket.WakeRequest{SessionID: "asession_" + ulid.Make().String()})
	kit.OK(t, err)
	w.cycle(150 * time.Minute)
	for i := range 1000 {
		row := redis.Z{Score: -1, Member: fmt.Sprintf(`{"at":"9999999999999","n":%d}`, i)}
		kit.OK(t, w.Raw.ZAdd(w.Ctx, rows, row).Err())
	}
	f := w.MustSubmit(t, picket.TaskSpec{})
	w.cycle(time.Minute)
	_, err = w.Cancel(w.Ctx, kit.OtherOperator, f.TaskID, "")
	kit.OK(t, err)
	kit.OK(t, w.Raw.ZAdd(w.Ctx, "pk:{default}:wake-due", redis.Z{Member: "asession_" + ulid.Make().String()}).Err())
	w.cycle(time.Minute)
	_, err = w.Pause(w.Ctx, kit.OtherOperator, false, "stop")
	kit.OK(t, err)
	w.cycle(time.Minute)
	_, err = w.Resume(w.Ctx, kit.OtherOperator, "")
	kit.OK(t, err)
}

// coverPolicyLock takes the ways of wakes beside a directory of policy files.
func coverPolicyLock(t *testing.T, w *wakings) {
	ask := func() {
		t.Helper()
		_, err := w.Wake(w.Ctx, kit.OtherOperator, "amy", picket.WakeRequest{SessionID: w.session, DryRun: true})
		kit.OK(t, err)
	}
	files := w.PolicyStore()
	_, _, err := files.Lock(w.Ctx, "dir")
	kit.OK(t, err)
	ask()
	w.cycle(mirror.Lease / 2)
	w.cycle(time.Minute)
	ask()
	w.JumpStoreTime(t, 25*time.Hour)
	ask()
	kit.OK(t, files.Release(w.Ctx, "other")) // it does not have the directory
	kit.OK(t, files.Release(w.Ctx, "dir"))
}
