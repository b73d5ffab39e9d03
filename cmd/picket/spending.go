package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// spending is what a task has spent while it was watched, to tell how long the
// rest will last.
type spending struct {
	began time.Time
	first budget.Envelope
}

const (
	forecastAfter = 10 * time.Second // earlier no pace can be told from a single call
	maxForecast   = 48 * time.Hour
)

// text is the money part of the live line: "$0.31 of 0.50, lasts 4m". It is ""
// for a task that has spent nothing.
func (s *spending) text(t picket.Task, now time.Time) string {
	if s.began.IsZero() {
		s.began, s.first = now, t.Spent
	}
	if t.Spent.IsZero() && t.Held.IsZero() {
		return ""
	}
	text := roundedMoney(t.Spent.USD) + " of " + strings.TrimPrefix(roundedMoney(t.BudgetEnvelope.USD), "$")
	if t.Spent.USD == 0 && t.Spent.Tokens > 0 {
		text = fmt.Sprintf("%d of %d tokens", t.Spent.Tokens, t.BudgetEnvelope.Tokens)
	}
	if lasts, known := s.forecast(t, now); known {
		text += ", lasts " + wholeSeconds(lasts)
	}
	return text
}

// forecast is how long what is available lasts at the pace so far, in the
// dimension that runs out first.
func (s *spending) forecast(t picket.Task, now time.Time) (lasts time.Duration, known bool) {
	elapsed := now.Sub(s.began)
	if elapsed < forecastAfter {
		return 0, false
	}
	spent := t.Spent.Sub(s.first)
	for _, d := range []struct {
		spent int64
		left  int64
	}{{int64(spent.USD), int64(t.Available.USD)}, {spent.Tokens, t.Available.Tokens}} {
		if d.spent <= 0 {
			continue
		}
		in := float64(elapsed) * max(0, float64(d.left)) / float64(d.spent)
		if in < float64(maxForecast) && (!known || time.Duration(in) < lasts) {
			lasts, known = time.Duration(in), true
		}
	}
	return lasts, known
}

// roundedMoney is an amount to the cent, or to two digits where that is less.
func roundedMoney(m budget.Money) string {
	usd := float64(m) / 1e9
	if usd != 0 && usd < 0.01 && usd > -0.01 {
		return "$" + strconv.FormatFloat(usd, 'g', 2, 64)
	}
	return fmt.Sprintf("$%.2f", usd)
}

// moneyData is what the events of money tell.
type moneyData struct {
	Tool      string          `json:"tool"`
	Outcome   string          `json:"outcome"`
	Detail    string          `json:"detail"`
	Cost      budget.Envelope `json:"cost"`
	Need      budget.Envelope `json:"need"`
	Available budget.Envelope `json:"available"`
	Added     budget.Envelope `json:"added"`
	Dimension string          `json:"dimension"`
	Percent   int             `json:"percent"`
	Envelope  string          `json:"envelope"`
	Usage     budget.Envelope `json:"usage"`
	Reason    string          `json:"reason"`
}

// moneyOf reads the data of an event of money.
func moneyOf(e picket.Event) (d moneyData, ok bool) {
	if e.Type != picket.EventToolCalled && !strings.HasPrefix(e.Type, "budget.") {
		return d, false
	}
	return d, json.Unmarshal(e.Data, &d) == nil
}

// moneyEventText says what an event of money tells, "" of any other.
func moneyEventText(e picket.Event) string {
	d, ok := moneyOf(e)
	if !ok {
		return ""
	}
	tool := term.OneLine(d.Tool)
	switch e.Type {
	case picket.EventToolCalled:
		return strings.TrimSpace(fmt.Sprintf("%s %s, %s %s", tool, d.Outcome, amountText(d.Cost),
			term.OneLine(d.Detail)))
	case picket.EventBudgetWarning:
		return fmt.Sprintf("%d %% of its %s are used", d.Percent,
			map[string]string{"usd": "dollars", "tokens": "tokens"}[d.Dimension])
	case picket.EventBudgetExceeded:
		return fmt.Sprintf("a call of %s was refused: it needs %s, %s are left", tool, amountText(d.Need),
			amountText(inDimensionsOf(d.Available, d.Need)))
	case picket.EventBudgetToppedUp:
		return fmt.Sprintf("topped up by %s: %s are left", amountText(d.Added), amountText(d.Available))
	case picket.EventBudgetOverrun:
		return fmt.Sprintf("it is overdrawn (%s), and paid calls are refused until a top-up", amountText(d.Available))
	case picket.EventBudgetUncertain:
		return fmt.Sprintf("nobody knows what came of a call of %s: charged %s", tool, amountText(d.Cost))
	case picket.EventBudgetUnverified:
		return fmt.Sprintf("%s reported %s, which is charged to nobody: %s", tool, amountText(d.Usage),
			term.OneLine(d.Reason))
	case picket.EventBudgetLate:
		return fmt.Sprintf("%s came late and were paid by %s", amountText(d.Cost), term.OneLine(d.Envelope))
	}
	return ""
}

// amountText is an amount in the dimensions that it has.
func amountText(e budget.Envelope) string {
	switch {
	case e.Tokens == 0:
		return dollars(e.USD)
	case e.USD == 0:
		return fmt.Sprintf("%d tokens", e.Tokens)
	}
	return fmt.Sprintf("%s and %d tokens", dollars(e.USD), e.Tokens)
}

// inDimensionsOf is an amount in the dimensions that another one has, or is short of.
func inDimensionsOf(e, other budget.Envelope) budget.Envelope {
	if other.USD == 0 && e.USD >= 0 {
		e.USD = 0
	}
	if other.Tokens == 0 && e.Tokens >= 0 {
		e.Tokens = 0
	}
	return e
}
