package settings

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket/budget"
)

// DefaultTaskEnvelope is what a task gets that names none.
func (s Settings) DefaultTaskEnvelope() *budget.Envelope {
	e := s.envelope("budget.default")
	return &e
}

// DailyLimit caps a day in the dimensions that are configured; nil is not a cap.
func (s Settings) DailyLimit() *budget.Envelope {
	e := s.envelope("budget.house")
	switch tokens, usd := s.Text("budget.house.tokens") != "", s.Text("budget.house.usd") != ""; {
	case !tokens && !usd:
		return nil
	case !tokens:
		e.Tokens = budget.MaxTokens
	case !usd:
		e.USD = budget.MaxMoney
	}
	return &e
}

// envelope reads the two keys of a section that were checked when they were
// loaded.
func (s Settings) envelope(section string) (e budget.Envelope) {
	e.Tokens, _ = strconv.ParseInt(s.Text(section+".tokens"), 10, 64)
	e.USD, _ = budget.ParseMoney(strings.TrimPrefix(s.Text(section+".usd"), "$"))
	return e
}

// EnvelopeOf is an envelope of so many dollars with the usual tokens.
func (s Settings) EnvelopeOf(text string) (budget.Envelope, error) {
	usd, err := budget.ParseMoney(strings.TrimPrefix(text, "$"))
	envelope := s.envelope("budget.default")
	envelope.USD = usd
	return envelope, err
}
