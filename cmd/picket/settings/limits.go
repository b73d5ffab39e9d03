package settings

import (
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// LimitTask gives a task the lease window that is set, and timeout and stall_after, unless it has its own. The settings
// are those of the task's role, see [Settings.ForRole].
func (s Settings) LimitTask(spec *picket.TaskSpec) {
	wholeSeconds := func(d time.Duration) *int { return new(int(d / time.Second)) }
	set := s.Lease.Window != 0 && s.values["lease.window"].Origin != "default"
	if spec.LeaseWindowSeconds == nil && set {
		spec.LeaseWindowSeconds = wholeSeconds(s.Lease.Window)
	}
	if spec.TimeoutSeconds == nil && s.Timeout != 0 {
		spec.TimeoutSeconds = wholeSeconds(s.Timeout)
	}
	if spec.StallAfterSeconds == nil && s.StallAfter != 0 {
		spec.StallAfterSeconds = wholeSeconds(s.StallAfter)
	}
}

// DefaultTaskEnvelope is what a task gets that names none.
func (s Settings) DefaultTaskEnvelope() *budget.Envelope {
	return &budget.Envelope{USD: s.Budget.Default.USD, Tokens: s.Budget.Default.Tokens}
}

// DailyLimit caps a day in the dimensions that are configured. nil means no cap.
func (s Settings) DailyLimit() *budget.Envelope {
	e, house := budget.Envelope{USD: budget.MaxMoney, Tokens: budget.MaxTokens}, s.Budget.House
	if house.USD == nil && house.Tokens == nil {
		return nil
	}
	if house.USD != nil {
		e.USD = *house.USD
	}
	if house.Tokens != nil {
		e.Tokens = *house.Tokens
	}
	return &e
}

// EnvelopeOf is an envelope of so many dollars with the usual tokens.
func (s Settings) EnvelopeOf(text string) (budget.Envelope, error) {
	usd, err := parseDollars(text)
	return budget.Envelope{USD: usd, Tokens: s.Budget.Default.Tokens}, err
}

func parseDollars(text string) (budget.Money, error) {
	return budget.ParseMoney(strings.TrimPrefix(text, "$"))
}
