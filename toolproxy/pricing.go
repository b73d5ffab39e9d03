package toolproxy

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// callPrice is what is known of a call's price before it is made.
type callPrice struct {
	reserve budget.Envelope
	version string
	price   *budget.Price // nil: the dispatch says what it cost
}

// priceOf finds the bound of a call. A tool nobody has put a price on is refused:
// free has to be said.
func (p *Proxy) priceOf(m MeteredCall) (callPrice, error) {
	list := p.prices()
	if m.Reserve != nil {
		return callPrice{reserve: *m.Reserve, version: m.PriceVersion}, nil
	}
	price, ok := list.Tool(m.Tool)
	if !ok {
		return callPrice{}, unpricedTool(m.Tool)
	}
	return callPrice{reserve: budget.Envelope{USD: price.MaxCost()}, version: list.Version, price: &price}, nil
}

// cost is what a dispatched call costs.
func (p callPrice) cost(d DispatchResult) budget.Envelope {
	switch {
	case d.Cost != nil:
		return *d.Cost
	case p.price != nil:
		return budget.Envelope{USD: p.price.Cost(d.Used, d.Failed)}
	}
	return p.reserve
}

func unpricedTool(tool string) error {
	return picket.Refuse(picket.CodeUnpricedTool,
		"Do without it, or ask an operator for a price: tools.prices."+shortened(tool)+
			" in picket.yaml; {call: 0} makes it free.",
		"nobody has said what a call of %s costs", shortened(tool)).With("tool", shortened(tool))
}

// WithPrice adds the price of a tool to its listing; ok is false for a tool
// without one, which cannot be called.
func (p *Proxy) WithPrice(t Tool) (_ Tool, ok bool) {
	price, ok := p.prices().Tool(t.Name)
	t.Price = &price
	return t, ok
}

// Estimate answers a call with [picket.EstimateHeader]: nothing was called.
type Estimate struct {
	Tool         string          `json:"tool"`
	Reserve      budget.Envelope `json:"reserve"`   // what the call would reserve, and cost at most
	Available    budget.Envelope `json:"available"` // of the task's envelope now
	Covered      bool            `json:"covered"`   // the envelope has that much
	PriceVersion string          `json:"priceVersion,omitempty"`
}

// estimateError carries an estimate out of a call in place of its answer.
type estimateError struct{ Estimate }

func (estimateError) Error() string { return "an estimate was asked for: nothing was called" }

type estimateKey struct{}

// withEstimate turns every metered call under ctx into an estimate.
func withEstimate(ctx context.Context) context.Context {
	return context.WithValue(ctx, estimateKey{}, true)
}

func isEstimate(ctx context.Context) bool { return ctx.Value(estimateKey{}) != nil }

func (p *Proxy) estimate(ctx context.Context, door Backend, held picket.LeaseCredential, tool string,
	need budget.Envelope,
	version string) error {
	funds, err := door.AwaitTopUp(ctx, held, 0)
	if err != nil {
		return err
	}
	covered := need.IsZero() || !funds.Locked && funds.Available.Covers(need)
	return &estimateError{Estimate{
		Tool:         tool,
		Reserve:      need,
		Available:    funds.Available,
		Covered:      covered,
		PriceVersion: version,
	}}
}
