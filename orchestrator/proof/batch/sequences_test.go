package batch

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/calls"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
	"github.com/picket-dev/picket/orchestrator/store"
)

// paidCall is a call of a model that was reserved, in an environment of its own.
func paidCall(t *testing.T, bug func(text string) string) (w *calls.Env, settlement picket.Settlement) {
	t.Helper()
	w = calls.Setup{T: t, Store: rig.Real(t), NoBatch: true, Bug: bug}.NewEnv()
	calls.Confirmed(picket.TaskSpec{BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: 1_000_000_000}})(w)
	_, err := w.Direct.Reserve(w.Ctx, w.Held, picket.CallRequest{CallID: "call", Nonce: "n1", Tool: "llm_x",
		Reserve: budget.Envelope{Tokens: 7, USD: 300_000_001}, PriceVersion: "v1", Effects: picket.EffectsNone,
		TimeoutMs: 30_000})
	kit.OK(t, err)
	return w, picket.Settlement{CallID: "call", TaskID: w.Held.TaskID, Nonce: "n1", Outcome: picket.CallDone,
		Cost: budget.Envelope{Tokens: 3, USD: 100_000_001}, Detail: "200"}
}

// A grant reads ahead what it needs of tasks. What the verb before it has changed in an envelope stays changed.
func TestWhatIsReadAheadReplacesNoChangeReal(t *testing.T) {
	settleThenGrant(t, func(h *history) { h.compareEach(0) })
}

// settleThenGrant makes a history of two calls: the end of a paid call, and a grant of its task.
func settleThenGrant(t *testing.T, do func(h *history)) {
	t.Helper()
	w, settlement := paidCall(t, nil)
	defer w.Close()
	_, err := w.Direct.Release(w.Ctx, w.Held, picket.Exit{Class: picket.ExitReleased})
	kit.OK(t, err)
	h := newHistory(t, "settle, then grant", w)
	now := 0
	settled := h.record("settle", func() { _, _ = w.Via.Settle(w.Ctx, settlement) })
	granted := h.record("grant", func() {
		_, _ = w.Via.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", WaitSeconds: &now})
	})
	if !settled || !granted {
		t.Fatal("the calls were not made")
	}
	h.keep()
	do(h)
}

// A call knows the 16 best lanes. A task that is pushed into another lane is granted by the same batch if it is better.
func TestAGrantSeesATaskInAnyLaneReal(t *testing.T) {
	w := newEnv(t)
	var needs []string
	for i := range 20 {
		needs = append(needs, fmt.Sprint("need", i))
		_, err := w.Direct.Submit(w.Ctx, kit.Operator, picket.TaskSpec{Title: "a task", Needs: needs[i:]})
		kit.OK(t, err)
	}
	h := newHistory(t, "submit, then grant", w)
	h.record("submit", func() {
		_, _ = w.Via.Submit(w.Ctx, kit.Operator,
			picket.TaskSpec{Title: "urgent", Needs: needs[19:], Priority: kit.Ptr(9)})
	})
	h.record("grant", func() {
		_, _ = w.Via.Acquire(w.Ctx, kit.Operator,
			picket.AcquireRequest{AgentID: "a1", Capabilities: needs, WaitSeconds: kit.Ptr(0)})
	})
	h.keep()
	h.compareEach(0)
}

// The first piece of an answer and its end are in one batch. If the second one breaks, the first one stays whole.
func TestABrokenEndOfAnAnswerReal(t *testing.T) {
	w := calls.Setup{T: t, Store: rig.Real(t), NoBatch: true, Bug: withBreaks}.NewEnv()
	defer w.Close()
	calls.WithPrompt(w)
	h := newHistory(t, "accepted, then answered", w)
	for _, r := range []picket.CommandResult{{Incarnation: 1, State: picket.PromptAccepted, Output: "we"},
		{Incarnation: 1, State: picket.PromptAnswered, Output: "ll", Offset: 2}} {
		h.record("command_result", func() { _ = kit.SendResult(w.Ctx, w.Via, kit.AgentOwner, "m1", w.Prompt, r) })
	}
	h.keep()
	for n := 0; h.compareEach(n) || n == 0; n++ {
	}
}

// A pause or its end that breaks does not change what the next verb of its batch sees.
func TestABrokenPauseReal(t *testing.T) {
	for _, c := range calls.All() {
		if c.Script() == "pause" || c.Script() == "resume" {
			onHistory(t, rig.Real(t), c, true, func(h *history) {
				for n := 0; h.compareEach(n) || n == 0; n++ {
				}
			})
		}
	}
}

// compareEach is compare, and reports every difference.
func (h *history) compareEach(n int) (broke bool) {
	h.t.Helper()
	broke, wrong := h.compare(n)
	for _, what := range wrong {
		h.t.Error(what)
	}
	return broke
}

// A damaged record breaks the verb that needs it, and no other of its batch.
func TestADamagedRecordBreaksItsOwnVerbReal(t *testing.T) {
	w := calls.Setup{T: t, Store: rig.Real(t), NoBatch: true}.NewEnv()
	defer w.Close()
	calls.Confirmed(picket.TaskSpec{})(w)
	damaged := w.Held
	calls.Confirmed(picket.TaskSpec{})(w)
	h := newHistory(t, "renew", w)
	h.record("renew", func() { _, _ = w.Via.Renew(w.Ctx, damaged) })
	h.record("renew", func() { _, _ = w.Via.Renew(w.Ctx, w.Held) })
	kit.OK(t, w.Raw.Set(w.Ctx, "pk:{default}:task:"+damaged.TaskID, "\xc1 is in no MessagePack", 0).Err())
	batch := []any{"FCALL", w.Stores[1].Connection().Program().Library().Batch(true), 1, kit.Meta}
	for _, words := range h.items {
		batch = append(append(batch, "renew", len(words)-4), arguments(words[4:])...)
	}
	reply, err := w.Raw.Do(w.Ctx, batch...).Result()
	kit.OK(t, err)
	got, err := store.UnpackReplies(reply)
	if err != nil || len(got) != 4 || got[0] != int64(1) || got[2] != int64(0) {
		t.Errorf("the batch answers %v (%v), want an error and a renewal", got, err)
	}
}

// A verb that limits the life of a record that it has changed, and breaks then, leaves the record as it was.
func TestABrokenVerbLimitsNoLifeReal(t *testing.T) {
	const after = "  local p = charge(tid, e, h.run, held_t,"
	w, settlement := paidCall(t, func(text string) string {
		return strings.Replace(text, after, "  error('broken on purpose')\n"+after, 1)
	})
	defer w.Close()
	if _, err := w.Direct.Settle(w.Ctx, settlement); err == nil || !strings.Contains(err.Error(), "broken") {
		t.Fatalf("the settlement did not break: %v", err)
	}
	hold := "pk:{default}:hold:" + w.Held.TaskID + ":call"
	if state := w.Raw.HGet(w.Ctx, hold, "state").Val(); state != "open" {
		t.Errorf("the call is %s, although the verb broke", state)
	}
	if life := w.Raw.PTTL(w.Ctx, hold).Val(); life > 0 {
		t.Errorf("the record of the call ends in %s", life)
	}
}
