package attach

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
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
		text += ", lasts " + cli.WholeSeconds(lasts)
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
