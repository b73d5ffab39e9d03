package webhooks_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// killableQueue is a namespace as a process sees it that can be killed: from then on
// nothing it does has an effect.
type killableQueue struct {
	webhooks.Queue
	killed atomic.Bool
}

var errKilled = errors.New("killed")

func (m *killableQueue) TakeWebhookTurn(ctx context.Context, claim string) (turn picket.WebhookTurn, err error) {
	if m.killed.Load() {
		return turn, errKilled
	}
	return m.Queue.TakeWebhookTurn(ctx, claim)
}

func (m *killableQueue) AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error) {
	if m.killed.Load() {
		return "", errKilled
	}
	return m.Queue.AdvanceWebhook(ctx, s)
}

// faultyTarget answers as targets do on their worst day; most of what is lost has
// arrived before. From calm on it takes everything.
type faultyTarget struct {
	target
	random   *rand.Rand
	healthy  atomic.Bool
	accepted map[string][]delivery // by host: what was answered well
	kinds    map[string]int
}

func (f *faultyTarget) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.healthy.Load() {
		f.countFault(8)
		return f.accept(r)
	}
	switch f.countFault(f.intN(12)) {
	case 0:
		return nil, errors.New("connection refused")
	case 1:
		f.record(r)
		return nil, errors.New("connection reset by peer")
	case 2: // it took it, and the answer is lost
		_, _ = f.accept(r)
		return nil, errors.New("EOF")
	case 3: // it took it and hangs
		_, _ = f.accept(r)
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 4:
		f.record(r)
		return status(500 + f.intN(5))
	case 5:
		f.record(r)
		return status(429, "Retry-After", strconv.Itoa(f.intN(30)))
	case 6:
		f.record(r)
		return status(410)
	case 7:
		time.Sleep(time.Duration(f.intN(14)) * time.Second)
	}
	return f.accept(r)
}

func (f *faultyTarget) intN(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// faultKinds are what the dice say.
var faultKinds = []string{"refused", "reset", "answer lost", "hung", "5xx", "429", "410", "slow", "well"}

func (f *faultyTarget) countFault(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[faultKinds[min(n, len(faultKinds)-1)]]++
	return n
}

// accept takes a request. An answer after its sender has gone does not count.
func (f *faultyTarget) accept(r *http.Request) (*http.Response, error) {
	a, _ := f.record(r)
	f.mu.Lock()
	f.accepted[a.host] = append(f.accepted[a.host], a)
	f.mu.Unlock()
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return status(200)
}

// Five targets with every fault, two deliverers that are stopped and killed and
// started again while events go on: no event is missed, each target gets them
// in order, and what comes twice comes under the same id.
func TestRandomFaultsOnAllSides(t *testing.T) {
	rig.SkipShort(t)
	seed, rounds := rig.Seed(t), rig.SoakRounds(t, "webhooks", 3, 200)
	for round := range rounds {
		t.Run(fmt.Sprint("seed ", seed+uint64(round)), func(t *testing.T) {
			virtual(t, func(h *fixture) { h.runFaults(rand.New(rand.NewPCG(seed+uint64(round), 0))) })
		})
	}
}

func (h *fixture) runFaults(random *rand.Rand) {
	const targets, events, ends = 5, 60, 6
	f := &faultyTarget{
		random:   random,
		accepted: map[string][]delivery{},
		kinds:    map[string]int{},
		target:   target{secrets: map[string]picket.Secret{}},
	}
	ids := map[string]string{} // by host
	for i := range targets {
		made := h.addWebhook(fmt.Sprint("t", i))
		ids[fmt.Sprint("t", i, ".test")] = made.WebhookID
		f.secrets[fmt.Sprint("t", i, ".test")] = made.Secret
	}
	starts := [2]func() (*killableQueue, func()){}
	for i := range starts {
		starts[i] = func() (*killableQueue, func()) {
			m := &killableQueue{Queue: h.Engine}
			return m, h.startDeliverer(f, func(c *webhooks.Config) {
				c.Queues = map[string]webhooks.Queue{"default": m}
				c.Jitter = func(most time.Duration) time.Duration { return time.Duration(f.intN(int(most))) }
			})
		}
	}
	running := [2]*killableQueue{}
	stops := [2]func(){}
	for i := range starts {
		running[i], stops[i] = starts[i]()
	}
	killed := 0
	for range ends {
		h.addEvents(events / ends)
		time.Sleep(time.Duration(f.intN(90)) * time.Second)
		i := f.intN(2)
		if f.intN(2) == 0 {
			running[i].killed.Store(true)
			killed++
		}
		stops[i]()
		running[i], stops[i] = starts[i]()
		h.reviveAll(ids)
	}
	f.healthy.Store(true)
	h.eventually("delivery of everything", func() bool {
		h.reviveAll(ids)
		last, err := h.LastSeq(h.ctx)
		must(h.t, err)
		for _, id := range ids {
			if w := h.webhook(id); w.Failures > 0 || w.Cursor != strconv.FormatInt(last, 10) {
				return false
			}
		}
		return true
	})
	for _, stop := range stops {
		stop()
	}
	f.checkDeliveries(h, ids)
	h.t.Logf("%d targets, %d events, %d requests, %d ends of deliverers, %d of them kills; %v", targets, events,
		len(f.deliveries()), ends, killed, f.kinds)
}

func (h *fixture) reviveAll(ids map[string]string) {
	h.t.Helper()
	for _, id := range ids {
		if h.webhook(id).State != picket.WebhookActive {
			_, err := h.ReviveWebhook(h.ctx, operator, id)
			must(h.t, err)
		}
	}
}

// checkDeliveries holds what arrived against the log.
func (f *faultyTarget) checkDeliveries(h *fixture, ids map[string]string) {
	h.t.Helper()
	page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventTaskSubmitted}, Limit: 1000})
	must(h.t, err)
	for host, webhook := range ids {
		known, at := map[int64]bool{}, 0
		for _, a := range f.accepted[host] {
			if a.id != webhooks.MessageID(webhook, strconv.FormatInt(a.seq, 10)) {
				h.t.Errorf("%s got event %d as %s", host, a.seq, a.id)
			}
			if known[a.seq] {
				continue // again, under the same id
			}
			known[a.seq] = true
			if at >= len(page.Events) || page.Events[at].Seq != a.seq {
				h.t.Fatalf("%s got event %d as its number %d", host, a.seq, at+1)
			}
			at++
		}
		if at != len(page.Events) {
			h.t.Errorf("%s got %d of %d events", host, at, len(page.Events))
		}
	}
	if len(f.problems) > 0 {
		h.t.Errorf("%d wrong requests, such as %s", len(f.problems), f.problems[0])
	}
}
