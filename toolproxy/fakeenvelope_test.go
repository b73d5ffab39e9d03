package toolproxy_test

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// fakeEnvelope is a backend with an envelope, whose answers can be lost. It keeps the
// promises of the real one about a call: the same nonce is the same
// reservation, and each is settled once.
type fakeEnvelope struct {
	*fakeBackend
	mu        sync.Mutex
	available budget.Envelope
	holds     map[string]picket.CallRequest
	settled   map[string]picket.Settlement
	charged   budget.Envelope

	asks        int // for reservations
	settlements int // tries
	loseReserve int // answers of reserve that get lost
	loseSettle  int // answers of settle that get lost
	ended       chan struct{}
}

func newFakeEnvelope(usd budget.Money) *fakeEnvelope {
	return &fakeEnvelope{
		fakeBackend: &fakeBackend{},
		available:   budget.Envelope{Tokens: 1000, USD: usd},
		holds:       map[string]picket.CallRequest{},
		settled:     map[string]picket.Settlement{},
		ended:       make(chan struct{}),
	}
}

func (p *fakeEnvelope) Reserve(_ context.Context, held picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.note("reserve", held); err != nil {
		return picket.Reservation{}, err
	}
	p.asks++
	r := picket.Reservation{
		CallID:   req.CallID,
		TaskID:   held.TaskID,
		RunID:    held.RunID,
		Nonce:    req.Nonce,
		Token:    17,
		Reserved: req.Reserve,
	}
	open, known := p.holds[req.CallID]
	switch s, done := p.settled[req.CallID]; {
	case done:
		r.Replay = &picket.Replay{Result: s.Result, Cost: s.Cost}
	case known && open.Nonce != req.Nonce:
		return r, picket.Refuse(picket.CodeCallRunning, "Wait.", "running")
	case !known && !p.available.Covers(req.Reserve):
		return r, p.tooLittle(req.Reserve)
	case !known:
		p.holds[req.CallID] = req
		p.available = p.available.Sub(req.Reserve)
	}
	r.Available = p.available
	if p.loseReserve > 0 {
		p.loseReserve--
		return picket.Reservation{}, lost()
	}
	return r, nil
}

// tooLittle is a refusal that names what there is, of one dimension.
func (p *fakeEnvelope) tooLittle(need budget.Envelope) error {
	e := picket.Refuse(picket.CodeBudgetExceeded, "Top up.", "too little").With("dimension", "usd").
		With("available", p.available.USD)
	if need.USD <= p.available.USD {
		e = e.With("dimension", "tokens").With("available", p.available.Tokens)
	}
	return e
}

func lost() error {
	return picket.Refuse(picket.CodeUnavailable, "Repeat it.", "lost").WithCause(picket.ErrUnknown)
}

func (p *fakeEnvelope) Settle(ctx context.Context, s picket.Settlement) (picket.Settled, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.settlements++
	if ctx.Err() != nil {
		return picket.Settled{}, ctx.Err()
	}
	if hold, ok := p.holds[s.CallID]; ok && hold.Nonce == s.Nonce {
		delete(p.holds, s.CallID)
		switch s.Outcome {
		case picket.CallUndispatched:
			s.Cost = budget.Envelope{}
		case picket.CallUncertain:
			s.Cost = hold.Reserve
		}
		p.available = p.available.Add(hold.Reserve).Sub(s.Cost)
		p.charged = p.charged.Add(s.Cost)
		if hold.Keyed && s.Outcome != picket.CallUndispatched {
			p.settled[s.CallID] = s
		} else {
			p.settled["once "+s.CallID] = s
		}
	}
	if p.loseSettle > 0 {
		p.loseSettle--
		return picket.Settled{}, lost()
	}
	return picket.Settled{Cost: s.Cost, Available: p.available}, nil
}

func (p *fakeEnvelope) AwaitEnd(ctx context.Context, _ picket.LeaseCredential, wait time.Duration) (bool, error) {
	select {
	case <-p.ended:
		return true, nil
	case <-time.After(wait):
		return false, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// A fakeBackend alone has no money and sees no lease end.

func (d *fakeBackend) Reserve(_ context.Context, h picket.LeaseCredential,
	req picket.CallRequest) (picket.Reservation, error) {
	return picket.Reservation{CallID: req.CallID, TaskID: h.TaskID, Nonce: req.Nonce, Reserved: req.Reserve},
		d.note("reserve", h)
}

func (d *fakeBackend) Settle(_ context.Context, s picket.Settlement) (picket.Settled, error) {
	return picket.Settled{Cost: s.Cost}, d.note("settle", picket.LeaseCredential{TaskID: s.TaskID})
}

func (d *fakeBackend) AwaitEnd(ctx context.Context, _ picket.LeaseCredential, _ time.Duration) (bool, error) {
	<-ctx.Done()
	return false, ctx.Err()
}

func (d *fakeBackend) AwaitTopUp(_ context.Context, h picket.LeaseCredential, _ time.Duration) (picket.Funds, error) {
	return picket.Funds{}, d.note("await_top_up", h)
}

func (d *fakeBackend) Funds(_ context.Context, h picket.LeaseCredential) (picket.Funds, error) {
	return picket.Funds{}, d.note("funds", h)
}

func (d *fakeBackend) ReportUsage(_ context.Context, h picket.LeaseCredential,
	_ picket.UsageReport) (picket.Usage, error) {
	return picket.Usage{}, d.note("usage", h)
}

// outcomes are how the calls of the envelope ended.
func (p *fakeEnvelope) outcomes() (all []picket.CallOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.settled {
		all = append(all, s.Outcome)
	}
	return all
}

// expectSettled says that nothing is held any more, and what was charged.
func (p *fakeEnvelope) expectSettled(t *testing.T, charged budget.Money) {
	t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.holds) != 0 || p.charged.USD != charged {
		t.Errorf("%d reservations are open, %s charged, want %s", len(p.holds), p.charged.USD, charged)
	}
}

const cent = budget.Money(10_000_000)

// priceList has every tool that tests call.
func priceList(t testing.TB, prices map[string]budget.Price) func() *budget.PriceList {
	t.Helper()
	l, err := budget.NewPriceList(prices, nil)
	if err != nil {
		t.Fatal(err)
	}
	return func() *budget.PriceList { return l }
}

// newPricedProxy is a proxy with prices.
func newPricedProxy(t testing.TB, prices map[string]budget.Price) *toolproxy.Proxy {
	t.Helper()
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  newSealer(t),
		Backend: func(string) toolproxy.Backend { return nil },
		Prices:  priceList(t, prices),
		Parts:   append(externalTools(), mcppart.New(nil)),
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

var aHeld = picket.LeaseCredential{Namespace: "default", TaskID: aTask, RunID: aRun}
