package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// processCapability is the capability of a process of the session, as it is presented.
func (f *sessionFixture) processCapability(t *testing.T) picket.LeaseCredential {
	t.Helper()
	held, ok := picket.ParseSessionCapability(picket.NewSessionCapability(f.Namespace(), f.id).Reveal())
	if !ok || held.SessionID != f.id || held.PromptID != "" || !held.OfSession() || held.HolderID() != f.id {
		t.Fatalf("%+v %v", held, ok)
	}
	return held
}

// open is the capability of a process as a request holds it: with the prompt that is open.
func (f *sessionFixture) open(t *testing.T, held picket.LeaseCredential) picket.LeaseCredential {
	t.Helper()
	grant, err := f.SessionCapability(f.Ctx, held)
	kit.OK(t, err)
	held.PromptID = grant.PromptID
	return held
}

// One capability of a process opens each prompt that was accepted with it, one after the other, and nothing between.
func TestAProcessKeepsItsCapability(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held := f.processCapability(t)
		f.wantInvalid(t, held, "unknown")
		for range 3 {
			pid := f.prompt(t, "hello")
			f.wantNothingOpen(t, held) // it is queued
			kit.OK(t, f.acceptWith(pid, held.Secret))
			kit.OK(t, f.acceptWith(pid, held.Secret))
			now := f.open(t, held)
			if now.PromptID != pid {
				t.Errorf("it opens %s, not %s", now.PromptID, pid)
			}
			_, err := f.AgentContext(f.Ctx, now)
			kit.OK(t, err)
			forged := held
			forged.Secret = strings.Repeat("0", len(held.Secret))
			f.wantInvalid(t, forged, "unknown")
			kit.OK(t, f.result(pid, picket.PromptAnswered, 0, ""))
			f.wantInvalid(t, now, "prompt_ended") // a request that began before the end
			f.wantInvalid(t, held, "prompt_ended")
		}
	})
}

// wantNothingOpen checks that a capability of a process opens nothing now.
func (f *sessionFixture) wantNothingOpen(t *testing.T, held picket.LeaseCredential) {
	t.Helper()
	_, err := f.SessionCapability(f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
}

// The capability of a process ends with the deadline of each prompt. The adapter may say later what became of it.
func TestACapabilityOfAProcessEndsAtTheDeadline(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held, seconds := f.processCapability(t), 30
		p, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "x", TimeoutSeconds: &seconds})
		kit.OK(t, err)
		kit.OK(t, f.acceptWith(p.PromptID, held.Secret))
		f.open(t, held)
		f.JumpStoreTime(t, 30*time.Second)
		f.wantInvalid(t, held, "time")
		kit.OK(t, f.result(p.PromptID, picket.PromptAnswered, 0, "late"))
		next := f.prompt(t, "again")
		kit.OK(t, f.acceptWith(next, held.Secret))
		if now := f.open(t, held); now.PromptID != next {
			t.Errorf("it opens %s, not %s", now.PromptID, next)
		}
	})
}

// The hash of another session opens nothing: a capability names its session.
func TestACapabilityOfAProcessIsOfOneSession(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		other := &sessionFixture{f.fixture, f.n, "asession_" + ulid.Make().String()}
		kit.OK(t, f.report("a1", f.n, idleSession(f.id), idleSession(other.id)))
		held := f.processCapability(t)
		stolen, own := other.prompt(t, "theirs"), f.prompt(t, "ours")
		kit.OK(t, other.acceptWith(stolen, held.Secret)) // an adapter sends the same hash for two sessions
		f.wantInvalid(t, held, "unknown")
		kit.OK(t, f.acceptWith(own, held.Secret))
		if now := f.open(t, held); now.PromptID != own {
			t.Errorf("it opens %s, not %s", now.PromptID, own)
		}
		kit.OK(t, f.result(own, picket.PromptAnswered, 0, ""))
		f.wantInvalid(t, held, "prompt_ended") // the prompt of the other session is still open
		named, _ := picket.ParseSessionCapability(picket.NewSessionCapability(f.Namespace(), other.id).Reveal())
		f.wantInvalid(t, named, "unknown")
	})
}

// The prompt that is open when a call begins pays for it, also if the call ends during the next prompt. A late call
// of the first prompt is one of the second, which is then the only one that is open.
func TestThePromptThatIsOpenPays(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		held, first := f.processCapability(t), f.prompt(t, "first")
		kit.OK(t, f.acceptWith(first, held.Secret))
		one := f.open(t, held)
		kit.OK(t, f.reserveModel(one, "c1"))
		kit.OK(t, f.result(first, picket.PromptAnswered, 0, ""))
		second := f.prompt(t, "second")
		kit.OK(t, f.acceptWith(second, held.Secret))
		kit.Refused(t, f.reserveModel(one, "c2"), picket.CodeSessionCapability) // it began before
		two := f.open(t, held)
		kit.OK(t, f.reserveModel(two, "c2"))
		for call, prompt := range map[string]string{"c1": first, "c2": second} {
			_, err := f.Settle(f.Ctx, picket.Settlement{CallID: call, TaskID: prompt, Nonce: call,
				Outcome: picket.CallDone, Cost: budget.Envelope{USD: kit.USD("0.02")}})
			kit.OK(t, err)
			p, err := f.SessionPrompt(f.Ctx, f.id, prompt, 0, 0)
			kit.OK(t, err)
			if p.Spent.USD != kit.USD("0.02") {
				t.Errorf("%s has spent $%s", call, p.Spent.USD)
			}
		}
	})
}

// reserveModel reserves a call of a model.
func (f *sessionFixture) reserveModel(held picket.LeaseCredential, id string) error {
	call := kit.PaidCall("0.03")
	call.CallID, call.Nonce, call.Tool = id, id, "llm_anthropic"
	_, err := f.Reserve(f.Ctx, held, call)
	return err
}
