package orchestrator_test

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// reserved has the agent ask for a task in its next prompt, and returns the capability of that prompt.
func (f *sessionFixture) reserved(t *testing.T) picket.LeaseCredential {
	t.Helper()
	_, held := f.capable(t)
	f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
	f.wantNext(t, held, "", 1)
	return held
}

// prompting is the report of a session that works on a prompt, or that has its turn after it.
func (f *sessionFixture) prompting(promptID, taskID string) picket.SessionReport {
	r := idleSession(f.id)
	r.State, r.PromptID, r.TaskID = picket.SessionPrompting, promptID, taskID
	return r
}

// The prompts behind a turn wait until the adapter reports that the session goes on, whatever is repeated.
func TestPromptsWaitForTheTurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held := f.reserved(t)
		second := f.prompt(t, "second")
		for range 2 { // the first reply is lost
			if !f.turn(t, held, picket.PromptAnswered) {
				t.Fatal("the turn is lost")
			}
			f.wantOffered(t)
		}
		if s := f.wantHealth(t, f.id, "prompting/healthy/session_prompt_active/-"); s.PromptID != held.PromptID {
			t.Errorf("%+v", s)
		}
		third := f.prompt(t, "third") // nobody knows yet whether there is a task
		f.wantOffered(t)
		lease := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"})
		for _, task := range []string{"", lease.TaskID, lease.TaskID} {
			kit.OK(t, f.report("a1", f.n, f.prompting(held.PromptID, task)))
			f.wantOffered(t)
		}
		kit.CheckInvariants(t, f.Engine)
		other := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: t.TempDir()}).Engine("default")
		kit.OK(t, other.ReportSessions(f.Ctx, kit.Operator, "a1",
			picket.SessionsReport{Incarnation: f.n, Sessions: []picket.SessionReport{idleSession(f.id)}}))
		for range 2 {
			f.wantOffered(t, "second")
		}
		// The turn does not come back with a late repetition of the answer.
		if !f.turn(t, held, picket.PromptAnswered) {
			t.Error("the repeated answer is another one")
		}
		f.wantOffered(t, "second")
		kit.OK(t, f.result(second, picket.PromptAnswered, 0, ""))
		f.wantOffered(t, "third")
		kit.OK(t, f.result(third, picket.PromptAnswered, 0, ""))
		kit.CheckInvariants(t, f.Engine)
	})
}

// An adapter that answers another prompt than the one that it was offered gets none during the turn either.
func TestATurnOfAnotherPromptThanTheOffered(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		f.prompt(t, "first")
		held := f.reserved(t)
		f.wantOffered(t, "first")
		f.turn(t, held, picket.PromptAnswered)
		f.wantOffered(t)
		kit.CheckInvariants(t, f.Engine)
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		f.wantOffered(t, "first")
	})
}

// The next prompt waits for no turn that was not reserved, and for none after a prompt that has failed.
func TestOnlyATurnKeepsPromptsWaiting(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		second := f.prompt(t, "second")
		f.turn(t, held, picket.PromptAnswered)
		f.wantOffered(t, "second")
		kit.OK(t, f.result(second, picket.PromptAnswered, 0, ""))
		held = f.reserved(t)
		f.prompt(t, "third")
		f.turn(t, held, picket.PromptFailed)
		f.wantOffered(t, "third")
	})
}

// A prompt that waits for a turn has its deadline, and the one behind it is not skipped.
func TestAPromptExpiresDuringATurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held := f.reserved(t)
		seconds := 60
		early, err := f.PromptSession(f.Ctx, kit.Operator, f.id,
			picket.PromptRequest{Text: "early", TimeoutSeconds: &seconds})
		kit.OK(t, err)
		f.prompt(t, "late")
		f.turn(t, held, picket.PromptAnswered)
		f.JumpStoreTime(t, time.Minute)
		f.wantPrompt(t, early.PromptID, picket.PromptExpired, "")
		for range 2 {
			kit.OK(t, f.report("a1", f.n, f.prompting(held.PromptID, "")))
			f.wantOffered(t)
			f.wantPrompt(t, early.PromptID, picket.PromptExpired, "")
		}
		kit.CheckInvariants(t, f.Engine)
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		f.wantOffered(t, "late")
	})
}

// A turn that is lost with its adapter keeps nothing waiting. The prompts behind it end with the session.
func TestATurnIsLostWithItsAdapter(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held := f.reserved(t)
		second := f.prompt(t, "second")
		f.turn(t, held, picket.PromptAnswered)
		_, err := f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		f.n = f.sessionAgent(t, "a1")
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		if p := f.wantPrompt(t, second, picket.PromptFailed, ""); p.Reason != "session_lost" {
			t.Errorf("%+v", p)
		}
		f.prompt(t, "third")
		f.wantOffered(t, "third")
		kit.CheckInvariants(t, f.Engine)
	})
}

// A session whose turn is under way is not woken, also before its first report of it.
func TestATurnIsNotInterruptedByAWake(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		f.mustWritePolicy(t, "ann", wakePolicyText)
		held := f.reserved(t)
		f.turn(t, held, picket.PromptAnswered)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionPromptActive)
		kit.OK(t, f.report("a1", f.n, f.prompting(held.PromptID, "")))
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionPromptActive)
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent)
	})
}

// A wake that was decided before a turn began is decided again.
func TestAWakeIsNotSentDuringATurn(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		facts, err := f.Records().Run(f.Ctx, "wake_facts", "ann", f.id, kit.SessionLimitsArgument, "")
		kit.OK(t, err)
		list, _ := facts.([]any)
		f.turn(t, f.reserved(t), picket.PromptAnswered)
		args := slices.Repeat([]any{"1"}, 24)
		args[0], args[1], args[2], args[4] = "ann", f.id, "", "prompt_01JZZZZZZZZZZZZZZZZZZZZZZZ"
		args[13], args[21] = list[slices.Index(list, any("stamp"))+1], 9
		args[22], args[23] = kit.SessionLimitsArgument, ""
		_, err = f.Records().Run(f.Ctx, "record_wake", args...)
		kit.OK(t, err)
		if s := f.wantHealth(t, f.id, "prompting/healthy/session_prompt_active/-"); s.OpenPrompts != 0 {
			t.Errorf("%+v", s)
		}
	})
}
