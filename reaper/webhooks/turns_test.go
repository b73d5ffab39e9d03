package webhooks_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// A deliverer that has claimed a target and is gone is followed by another when
// its claim is over, not before; what it says later has no effect.
func TestATurnIsTakenOverAfterHalfAMinute(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		id := h.addWebhook("a").WebhookID
		h.addEvents(2)
		frozen, err := h.TakeWebhookTurn(h.ctx, "frozen")
		must(t, err)
		began := time.Now()
		if frozen.WebhookID != id || frozen.Target != "https://a.test/secret/path?token=abc" {
			t.Fatalf("claimed %+v", frozen)
		}
		defer h.startDeliverer(g, nil)()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 2 })
		if took := g.deliveries()[0].at.Sub(began); took < picket.WebhookTurnTTL ||
			took > picket.WebhookTurnTTL+2*time.Second {
			t.Errorf("it was taken over after %v", took)
		}
		_, err = h.AdvanceWebhook(h.ctx,
			picket.WebhookStep{WebhookID: id, TurnID: "frozen", From: 0, To: 1, Outcome: picket.WebhookFailed})
		if !errors.Is(err, picket.CodeStateConflict) || h.webhook(id).Failures != 0 {
			t.Errorf("the frozen one: %v, %+v", err, h.webhook(id))
		}
	})
}

// A deliverer that was stopped for longer than its claim lasts sends nothing
// more under it.
func TestAProcessThatStoodStillSendsNothingLate(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		h.addWebhook("a")
		h.addEvents(2)
		slow := &lossyQueue{Queue: h.Engine}
		slow.after = func(call string) error { // the claim's answer comes late
			if call == "claim" && slow.turns.Load() == 1 {
				time.Sleep(20 * time.Second)
			}
			return nil
		}
		defer h.startDeliverer(g, func(c *webhooks.Config) { c.Queues = map[string]webhooks.Queue{"default": slow} })()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 2 })
		if said := slow.recordedOutcomes(); len(said) < 3 || said[0] != picket.WebhookPassed {
			t.Errorf("it was sent under a claim that was about to end: %v", said)
		}
		g.wantInOrder(t, map[string]int{"a.test": 2})
	})
}

// A claim whose answer was lost lasts from when it was first asked for.
func TestALostReplyDoesNotProlongATurn(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		h.addWebhook("a")
		h.addEvents(2)
		slow := &lossyQueue{Queue: h.Engine}
		slow.after = func(call string) error {
			if call == "claim" && slow.turns.Load() == 1 {
				time.Sleep(20 * time.Second)
				return picket.Refuse(picket.CodeUnavailable, "Wait.", "the answer is lost")
			}
			return nil
		}
		defer h.startDeliverer(g, func(c *webhooks.Config) { c.Queues = map[string]webhooks.Queue{"default": slow} })()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 2 })
		if said := slow.recordedOutcomes(); len(said) < 3 || said[0] != picket.WebhookPassed {
			t.Errorf("it was sent under a claim that was about to end: %v", said)
		}
		g.wantInOrder(t, map[string]int{"a.test": 2})
	})
}

// lossyQueue is a namespace whose answers can be lost.
type lossyQueue struct {
	webhooks.Queue
	turns atomic.Int64
	steps atomic.Int64
	reads atomic.Int64
	tails atomic.Int64
	after func(call string) error // the call has had its effect

	mu       sync.Mutex
	outcomes []picket.WebhookOutcome // of the steps, in order
}

func (q *lossyQueue) recordedOutcomes() []picket.WebhookOutcome {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.outcomes)
}

func (q *lossyQueue) afterCall(call string, err error) error {
	if q.after != nil {
		if lost := q.after(call); lost != nil {
			return lost
		}
	}
	return err
}

func (q *lossyQueue) TakeWebhookTurn(ctx context.Context, claim string) (picket.WebhookTurn, error) {
	turn, err := q.Queue.TakeWebhookTurn(ctx, claim)
	q.turns.Add(1)
	return turn, q.afterCall("claim", err)
}

func (q *lossyQueue) AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error) {
	state, err := q.Queue.AdvanceWebhook(ctx, s)
	q.steps.Add(1)
	q.mu.Lock()
	q.outcomes = append(q.outcomes, s.Outcome)
	q.mu.Unlock()
	return state, q.afterCall("advance", err)
}

func (q *lossyQueue) Events(ctx context.Context, e picket.EventQuery) (picket.EventPage, error) {
	page, err := q.Queue.Events(ctx, e)
	q.reads.Add(1)
	return page, q.afterCall("events", err)
}

func (q *lossyQueue) Tail(ctx context.Context, after int64) error {
	q.tails.Add(1)
	return q.afterCall("tail", q.Queue.Tail(ctx, after))
}

// Half of the store's answers are lost. Nothing is sent twice for it, and
// nothing is left out.
func TestLostAnswersOfTheStoreAreNoSecondRequest(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		h.addWebhook("a")
		h.addWebhook("b")
		h.addEvents(20)
		var mu sync.Mutex
		random := rand.New(rand.NewPCG(7, 7))
		lossy := &lossyQueue{Queue: h.Engine, after: func(string) error {
			mu.Lock()
			defer mu.Unlock()
			if random.IntN(2) == 0 {
				return picket.Refuse(picket.CodeUnavailable, "", "no answer").WithCause(picket.ErrUnknown)
			}
			return nil
		}}
		defer h.startDeliverer(g, func(c *webhooks.Config) { c.Queues = map[string]webhooks.Queue{"default": lossy} })()
		began := time.Now()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 40 })
		if took := time.Since(began); took > picket.WebhookTurnTTL {
			t.Errorf("it took %v: a claim was left to run out", took)
		}
		time.Sleep(2 * picket.WebhookTurnTTL)
		g.wantInOrder(t, map[string]int{"a.test": 20, "b.test": 20})
	})
}

// A target without types is sent the notices that matter to people, and nothing else.
func TestATargetWithoutTypesGetsNotices(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		made, err := h.CreateWebhook(h.ctx, operator, picket.WebhookSpec{URL: "https://a.test/"})
		must(t, err)
		if made.Name != "a.test" {
			t.Errorf("its name is %q", made.Name)
		}
		defer h.startDeliverer(g, nil)()
		var want []int64
		for range 3 {
			task, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "x"})
			must(t, err)
			_, err = h.Cancel(h.ctx, operator, task.TaskID, "")
			must(t, err)
			last, err := h.LastSeq(h.ctx)
			must(t, err)
			want = append(want, last)
		}
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 3 })
		for i, a := range g.deliveries() {
			if a.seq != want[i] {
				t.Errorf("it got %d, not %d", a.seq, want[i])
			}
		}
	})
}

// While nothing happens nobody asks: neither the store nor the targets.
func TestAnIdleDelivererAsksNothing(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		h.addWebhook("a")
		h.addEvents(1)
		idle := &lossyQueue{Queue: h.Engine}
		defer h.startDeliverer(g, func(c *webhooks.Config) { c.Queues = map[string]webhooks.Queue{"default": idle} })()
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 1 })
		time.Sleep(2 * picket.WebhookTurnTTL)
		calls := func() int64 { return idle.turns.Load() + idle.steps.Load() + idle.reads.Load() + idle.tails.Load() }
		before := calls()
		time.Sleep(15 * time.Minute)
		if n := calls() - before; n != 0 {
			t.Errorf("%d calls in a quarter of an hour without an event", n)
		}
		h.addEvents(1)
		h.eventually("delivery", func() bool { return len(g.deliveries()) == 2 })
	})
}

// A deliverer that is told to stop lets the request under way end, and gives
// its target back so that another goes on at once. One that hangs is cut off
// and counts as no failure.
func TestAStopReleasesEveryTurn(t *testing.T) {
	for name, c := range map[string]struct {
		lasts time.Duration // of the request under way
		again bool
	}{"it ends in time": {2 * time.Second, false}, "it hangs": {time.Hour, true}} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(h *fixture) {
				g := &target{answer: func(n int, r *http.Request) (*http.Response, error) {
					if n == 1 {
						select {
						case <-time.After(c.lasts):
						case <-r.Context().Done():
							return nil, r.Context().Err()
						}
					}
					return status(200)
				}}
				id := h.addWebhook("a").WebhookID
				h.addEvents(3)
				stop := h.startDeliverer(g, nil)
				h.eventually("the first request", func() bool { return len(g.deliveries()) == 1 })
				began := time.Now()
				stop()
				if took := time.Since(began); took > 4*time.Second {
					t.Errorf("it stopped after %v", took)
				}
				want := 3
				if c.again {
					want = 4
				}
				began = time.Now()
				defer h.startDeliverer(g, nil)()
				h.eventually("the rest", func() bool { return len(g.deliveries()) == want })
				if took := time.Since(began); took > time.Second {
					t.Errorf("the next one went on after %v", took)
				}
				if got := g.deliveries(); (got[1].id == got[0].id) != c.again {
					t.Errorf("sent again: %v, want %v", got[1].id == got[0].id, c.again)
				}
				if w := h.webhook(id); w.Failures != 0 || w.LastError != "" {
					t.Errorf("afterwards: %+v", w)
				}
			})
		})
	}
}

// slowTurns is a namespace in which the reply to a claim comes a second after
// its effect, or never, and a call that is cancelled returns at once.
type slowTurns struct {
	webhooks.Queue
	taken chan struct{} // a claim has had its effect
	lose  bool          // the first reply is lost
	turns int
}

func (q *slowTurns) TakeWebhookTurn(ctx context.Context, claim string) (picket.WebhookTurn, error) {
	turn, err := q.Queue.TakeWebhookTurn(context.WithoutCancel(ctx), claim)
	if q.turns++; q.turns == 1 {
		close(q.taken)
	}
	select {
	case <-time.After(time.Second):
	case <-ctx.Done():
		return picket.WebhookTurn{}, ctx.Err()
	}
	if q.lose && q.turns == 1 {
		return picket.WebhookTurn{}, picket.Refuse(picket.CodeUnavailable, "Wait.", "the answer is lost")
	}
	return turn, err
}

// A deliverer that stops while it waits for the reply to a claim gives the
// target back, also when the reply is lost.
func TestAStopWaitsForTheReplyToATurn(t *testing.T) {
	for name, lose := range map[string]bool{"the reply is late": false, "the reply is lost": true} {
		t.Run(name, func(t *testing.T) {
			virtual(t, func(h *fixture) {
				g := &target{}
				h.addWebhook("a")
				h.addEvents(1)
				slow := &slowTurns{Queue: h.Engine, taken: make(chan struct{}), lose: lose}
				stop := h.startDeliverer(g,
					func(c *webhooks.Config) { c.Queues = map[string]webhooks.Queue{"default": slow} })
				<-slow.taken
				stop()
				if n := len(g.deliveries()); n != 0 {
					t.Errorf("%d requests of a deliverer that stops", n)
				}
				began := time.Now()
				defer h.startDeliverer(g, nil)()
				h.eventually("delivery", func() bool { return len(g.deliveries()) == 1 })
				if took := time.Since(began); took > time.Second {
					t.Errorf("the next one went on after %v", took)
				}
			})
		})
	}
}

// What retention has deleted before a target took it is told, once, and the
// target goes on after it.
func TestADeletedPartOfTheLogIsReportedAndSkipped(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		h.addEvents(1)
		id := h.addWebhook("a").WebhookID
		h.addEvents(30)
		_, err := h.ApplyRetention(h.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 5}, 100)
		must(t, err)
		defer h.startDeliverer(g, nil)()
		h.eventually("the rest", func() bool { return len(g.deliveries()) == 5 })
		page, err := h.Events(h.ctx, picket.EventQuery{After: 28, Types: []string{picket.EventWebhookGap}})
		must(t, err)
		if len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Data), id) ||
			!strings.Contains(string(page.Events[0].Data), `"missedAfter":1,"missedUpTo":27`) {
			t.Errorf("events: %+v", page.Events)
		}
		h.addEvents(1)
		h.eventually("the next", func() bool { return len(g.deliveries()) == 6 })
		g.wantInOrder(t, map[string]int{"a.test": 6})
	})
}

// A URL that was sealed with a key which is gone is a failure that reports it, and
// no reason to stop serving others.
func TestAWebhookSealedWithALostKey(t *testing.T) {
	virtual(t, func(h *fixture) {
		g := &target{}
		lost, good := h.addWebhook("lost").WebhookID, h.addWebhook("good").WebhookID
		must(t, h.raw.HSet(h.ctx, "pk:{default}:webhook:"+lost, "secret", "bm90aGluZw").Err())
		h.addEvents(3)
		defer h.startDeliverer(g, nil)()
		h.eventually("delivery",
			func() bool { return len(g.deliveriesTo("good.test")) == 3 && h.webhook(lost).Failures > 0 })
		if w := h.webhook(lost); !strings.Contains(w.LastError,
			"sealed with a secret key that this server does not have") {
			t.Errorf("the lost one: %+v", w)
		}
		if len(g.deliveriesTo("lost.test")) > 0 || h.webhook(good).Failures > 0 {
			t.Errorf("%d requests without a signature", len(g.deliveriesTo("lost.test")))
		}
	})
}
