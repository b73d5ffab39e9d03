package notify_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/notify"
)

// mortal is a namespace as a process sees it that can be killed: from then on
// nothing it does has an effect.
type mortal struct {
	notify.Queue
	dead atomic.Bool
}

var errKilled = errors.New("killed")

func (m *mortal) TakeWebhookTurn(ctx context.Context, claim string) (turn picket.WebhookTurn, err error) {
	if m.dead.Load() {
		return turn, errKilled
	}
	return m.Queue.TakeWebhookTurn(ctx, claim)
}

func (m *mortal) AdvanceWebhook(ctx context.Context, s picket.WebhookStep) (picket.WebhookState, error) {
	if m.dead.Load() {
		return "", errKilled
	}
	return m.Queue.AdvanceWebhook(ctx, s)
}

// faulty answers as targets do on their worst day; most of what is lost has
// arrived before. From calm on it takes everything.
type faulty struct {
	target
	random *rand.Rand
	calm   atomic.Bool
	taken  map[string][]arrival // by host: what was answered well
	kinds  map[string]int
}

func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	if f.calm.Load() {
		f.kind(8)
		return f.well(r)
	}
	switch f.kind(f.dice(12)) {
	case 0:
		return nil, errors.New("connection refused")
	case 1:
		f.keep(r)
		return nil, errors.New("connection reset by peer")
	case 2: // it took it, and the answer is lost
		_, _ = f.well(r)
		return nil, errors.New("EOF")
	case 3: // it took it and hangs
		_, _ = f.well(r)
		<-r.Context().Done()
		return nil, r.Context().Err()
	case 4:
		f.keep(r)
		return status(500 + f.dice(5))
	case 5:
		f.keep(r)
		return status(429, "Retry-After", strconv.Itoa(f.dice(30)))
	case 6:
		f.keep(r)
		return status(410)
	case 7:
		time.Sleep(time.Duration(f.dice(14)) * time.Second)
	}
	return f.well(r)
}

func (f *faulty) dice(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.random.IntN(n)
}

// faultKinds are what the dice say.
var faultKinds = []string{"refused", "reset", "answer lost", "hung", "5xx", "429", "410", "slow", "well"}

func (f *faulty) kind(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kinds[faultKinds[min(n, len(faultKinds)-1)]]++
	return n
}

// well takes a request. An answer after its sender has gone is none.
func (f *faulty) well(r *http.Request) (*http.Response, error) {
	a, _ := f.keep(r)
	f.mu.Lock()
	f.taken[a.host] = append(f.taken[a.host], a)
	f.mu.Unlock()
	if r.Context().Err() != nil {
		return nil, r.Context().Err()
	}
	return status(200)
}

// Five targets with every fault, two deliverers that are stopped and killed and
// started again while events go on: no event is missed, each target gets them
// in order, and what comes twice comes under the same id.
func TestTroubleOnAllSides(t *testing.T) {
	seed, rounds := uint64(time.Now().UnixNano()), 3
	if os.Getenv("PICKET_SOAK") != "" {
		rounds = 200
	}
	if text := os.Getenv("PICKET_SEED"); text != "" {
		_, err := fmt.Sscan(text, &seed)
		must(t, err)
	}
	for round := range rounds {
		t.Run(fmt.Sprint("seed ", seed+uint64(round)), func(t *testing.T) {
			virtual(t, func(h *house) { h.worstDay(rand.New(rand.NewPCG(seed+uint64(round), 0))) })
		})
	}
	t.Logf("repeat with: PICKET_SEED=%d go test ./notify -run TestTroubleOnAllSides", seed)
}

func (h *house) worstDay(random *rand.Rand) {
	const targets, events, ends = 5, 60, 6
	f := &faulty{
		random: random,
		taken:  map[string][]arrival{},
		kinds:  map[string]int{},
		target: target{secrets: map[string]picket.Secret{}},
	}
	ids := map[string]string{} // by host
	for i := range targets {
		made := h.hook(fmt.Sprint("t", i))
		ids[fmt.Sprint("t", i, ".test")] = made.WebhookID
		f.secrets[fmt.Sprint("t", i, ".test")] = made.Secret
	}
	starts := [2]func() (*mortal, func()){}
	for i := range starts {
		starts[i] = func() (*mortal, func()) {
			m := &mortal{Queue: h.Engine}
			return m, h.deliverer(f, func(c *notify.Config) {
				c.Queues = map[string]notify.Queue{"default": m}
				c.Jitter = func(most time.Duration) time.Duration { return time.Duration(f.dice(int(most))) }
			})
		}
	}
	running := [2]*mortal{}
	stops := [2]func(){}
	for i := range starts {
		running[i], stops[i] = starts[i]()
	}
	killed := 0
	for range ends {
		h.happen(events / ends)
		time.Sleep(time.Duration(f.dice(90)) * time.Second)
		i := f.dice(2)
		if f.dice(2) == 0 {
			running[i].dead.Store(true)
			killed++
		}
		stops[i]()
		running[i], stops[i] = starts[i]()
		h.reviveAll(ids)
	}
	f.calm.Store(true)
	h.until("delivery of everything", func() bool {
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
	f.check(h, ids)
	h.t.Logf("%d targets, %d events, %d requests, %d ends of deliverers, %d of them kills; %v", targets, events,
		len(f.seen()), ends, killed, f.kinds)
}

func (h *house) reviveAll(ids map[string]string) {
	h.t.Helper()
	for _, id := range ids {
		if h.webhook(id).State != picket.WebhookActive {
			_, err := h.ReviveWebhook(h.ctx, operator, id)
			must(h.t, err)
		}
	}
}

// check holds what arrived against the log.
func (f *faulty) check(h *house, ids map[string]string) {
	h.t.Helper()
	page, err := h.Events(h.ctx, picket.EventQuery{Types: []string{picket.EventTaskSubmitted}, Limit: 1000})
	must(h.t, err)
	for host, webhook := range ids {
		known, at := map[int64]bool{}, 0
		for _, a := range f.taken[host] {
			if a.id != notify.MessageID(webhook, strconv.FormatInt(a.seq, 10)) {
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
	if len(f.wrong) > 0 {
		h.t.Errorf("%d wrong requests, such as %s", len(f.wrong), f.wrong[0])
	}
}
