package settings

import (
	"strings"

	"github.com/picket-dev/picket/budget"
)

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
