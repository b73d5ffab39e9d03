package cli

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func TestSpentIsShownInWhatIsUsedMost(t *testing.T) {
	tokens := func(n int64) budget.Envelope { return budget.Envelope{Tokens: n} }
	worth := func(n int64, m budget.Money) budget.Envelope { return budget.Envelope{Tokens: n, USD: m * 1e9} }
	for want, l := range map[string]picket.LiveLease{
		"$1.00 of $2.00":     {Granted: worth(100, 2), Spent: worth(40, 1)},
		"900 of 1000 tokens": {Granted: tokens(1000), Spent: tokens(800), Held: tokens(100)},
		"$0.00 of $0.00":     {},
	} {
		if got := spentText(l); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
