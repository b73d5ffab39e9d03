package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// defaultTaskEnvelope is what a task gets that names none.
func (s settings) defaultTaskEnvelope() *budget.Envelope {
	e := s.envelope("budget.default")
	return &e
}

// dailyLimit caps a day in the dimensions that are configured; nil is no cap.
func (s settings) dailyLimit() *budget.Envelope {
	e := s.envelope("budget.house")
	switch tokens, usd := s.text("budget.house.tokens") != "", s.text("budget.house.usd") != ""; {
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
func (s settings) envelope(section string) (e budget.Envelope) {
	e.Tokens, _ = strconv.ParseInt(s.text(section+".tokens"), 10, 64)
	e.USD, _ = budget.ParseMoney(strings.TrimPrefix(s.text(section+".usd"), "$"))
	return e
}

// envelopeOf is an envelope of so many dollars with the usual tokens.
func (s settings) envelopeOf(text string) (budget.Envelope, error) {
	usd, err := budget.ParseMoney(strings.TrimPrefix(text, "$"))
	envelope := s.envelope("budget.default")
	envelope.USD = usd
	return envelope, err
}

// budgetSummary is what `picket up` says of money.
func budgetSummary(cfg settings) string {
	e := cfg.defaultTaskEnvelope()
	text := fmt.Sprintf("%s and %d tokens a task", dollars(e.USD), e.Tokens)
	switch day := cfg.dailyLimit(); {
	case day == nil:
		return text + ", no limit a day"
	case day.Tokens == budget.MaxTokens:
		return fmt.Sprintf("%s, %s a day", text, dollars(day.USD))
	case day.USD == budget.MaxMoney:
		return fmt.Sprintf("%s, %d tokens a day", text, day.Tokens)
	default:
		return fmt.Sprintf("%s, %s and %d tokens a day", text, dollars(day.USD), day.Tokens)
	}
}

// budgetText is what a task has spent of what it may spend.
func budgetText(t picket.Task) string {
	text := fmt.Sprintf("%s of %s, %d of %d tokens spent", dollars(t.Spent.USD), dollars(t.BudgetEnvelope.USD),
		t.Spent.Tokens, t.BudgetEnvelope.Tokens)
	if !t.Held.IsZero() {
		text += fmt.Sprintf("; %s, %d tokens held", dollars(t.Held.USD), t.Held.Tokens)
	}
	return text
}

// dollars is an amount for people.
func dollars(m budget.Money) string { return m.Dollars() }
