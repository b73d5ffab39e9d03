package toolproxy

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

func unpricedTool(tool string) error {
	return picket.Refuse(picket.CodeUnpricedTool,
		"Do without it, or ask an operator for a price: tools.prices."+web.Shortened(tool)+
			" in picket.yaml; {call: 0} makes it free.",
		"nobody has said what a call of %s costs", web.Shortened(tool)).With("tool", web.Shortened(tool))
}

// WithPrice adds the price of a tool to its listing; ok is false for a tool
// without one, which cannot be called.
func (p *Proxy) WithPrice(t Tool) (_ Tool, ok bool) {
	price, ok := p.prices().Tool(t.Name)
	t.Price = &price
	return t, ok
}

// estimate answers a call with [picket.EstimateHeader]: nothing was called.
type estimate struct {
	Tool         string          `json:"tool"`
	Reserve      budget.Envelope `json:"reserve"`   // what the call would reserve, and cost at most
	Available    budget.Envelope `json:"available"` // of the task's envelope now
	Covered      bool            `json:"covered"`   // the envelope has that much
	PriceVersion string          `json:"priceVersion,omitempty"`
}

// estimateError carries an estimate out of a call in place of its answer.
type estimateError struct{ estimate }

func (estimateError) Error() string { return "an estimate was asked for: nothing was called" }

type estimateKey struct{}

// withEstimate turns every metered call under ctx into an estimate.
func withEstimate(ctx context.Context) context.Context {
	return context.WithValue(ctx, estimateKey{}, true)
}

func isEstimate(ctx context.Context) bool { return ctx.Value(estimateKey{}) != nil }

func (p *Proxy) estimate(ctx context.Context, backend Backend, held picket.LeaseCredential, tool string,
	need budget.Envelope, version string) error {
	funds, err := backend.AwaitTopUp(ctx, held, 0)
	if err != nil {
		return err
	}
	covered := need.IsZero() || !funds.Locked && funds.Available.Covers(need)
	return &estimateError{estimate{
		Tool:         tool,
		Reserve:      need,
		Available:    funds.Available,
		Covered:      covered,
		PriceVersion: version,
	}}
}
