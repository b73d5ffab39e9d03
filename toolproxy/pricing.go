package toolproxy

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// priced is what is known of a call's price before it is made.
type priced struct {
	reserve budget.Envelope
	version string
	list    *budget.Price // nil: the dispatch says what it cost
}

// price finds the bound of a call. A tool nobody has put a price on is refused:
// free has to be said.
func (p *Proxy) price(m MeteredCall) (priced, error) {
	list := p.prices()
	if m.Reserve != nil {
		return priced{reserve: *m.Reserve, version: m.PriceVersion}, nil
	}
	price, ok := list.Tool(m.Tool)
	if !ok {
		return priced{}, unpriced(m.Tool)
	}
	return priced{reserve: budget.Envelope{USD: price.Bound()}, version: list.Version, list: &price}, nil
}

// cost is what a dispatched call costs.
func (p priced) cost(d Dispatched) budget.Envelope {
	switch {
	case d.Cost != nil:
		return *d.Cost
	case p.list != nil:
		return budget.Envelope{USD: p.list.Cost(d.Used, d.Failed)}
	}
	return p.reserve
}

func unpriced(tool string) error {
	return picket.Refuse(picket.CodeUnpricedTool,
		"Do without it, or ask an operator for a price: tools.prices."+clip(tool)+
			" in picket.yaml; {call: 0} makes it free.",
		"nobody has said what a call of %s costs", clip(tool)).With("tool", clip(tool))
}

// Priced adds the price of a tool to its listing; ok is false for a tool
// without one, which cannot be called.
func (p *Proxy) Priced(t Tool) (_ Tool, ok bool) {
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

// estimated carries an estimate out of a call in place of its answer.
type estimated struct{ Estimate }

func (estimated) Error() string { return "an estimate was asked for: nothing was called" }

type estimateKey struct{}

// withEstimate turns every metered call under ctx into an estimate.
func withEstimate(ctx context.Context) context.Context {
	return context.WithValue(ctx, estimateKey{}, true)
}

func estimating(ctx context.Context) bool { return ctx.Value(estimateKey{}) != nil }

func (p *Proxy) estimate(ctx context.Context, door Door, held picket.Held, tool string, need budget.Envelope,
	version string) error {
	funds, err := door.AwaitTopUp(ctx, held, 0)
	if err != nil {
		return err
	}
	covered := need.IsZero() || !funds.Locked && funds.Available.Covers(need)
	return &estimated{Estimate{
		Tool:         tool,
		Reserve:      need,
		Available:    funds.Available,
		Covered:      covered,
		PriceVersion: version,
	}}
}
