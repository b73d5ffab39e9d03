package attach

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// The last event about the money of a run decides whether it ended because its budget was spent.
func TestLastMoneyEventDecidesShortage(t *testing.T) {
	refused := picket.Event{
		Type:  picket.EventBudgetExceeded,
		RunID: "r",
		Data:  []byte(`{"need":{"usd":0.3},"available":{"usd":0.1}}`),
	}
	paid := picket.Event{Type: picket.EventToolCalled, RunID: "r", Data: []byte(`{}`)}
	over := picket.Event{Type: picket.EventBudgetOverrun, RunID: "r", Data: []byte(`{"available":{"usd":-2}}`)}
	topped := picket.Event{Type: picket.EventBudgetToppedUp, Data: []byte(`{}`)}
	other := refused
	other.RunID = "s"
	fifth := budget.Envelope{USD: 200_000_000}
	for _, tc := range []struct {
		name      string
		heard     []picket.Event
		overdrawn bool
		dry       bool
		lacked    budget.Envelope
	}{
		{"nothing", nil, false, false, budget.Envelope{}},
		{"a refusal", []picket.Event{paid, refused}, false, true, fifth},
		{"a cheaper call passed", []picket.Event{refused, paid}, false, false, budget.Envelope{}},
		{"a top-up", []picket.Event{refused, topped}, false, false, budget.Envelope{}},
		{"another run's", []picket.Event{refused, other}, false, false, budget.Envelope{}},
		{"overdrawn", []picket.Event{paid, over}, true, true, budget.Envelope{}},
		{"overdrawn, a call that was under way came back", []picket.Event{over, paid}, true, true, budget.Envelope{}},
		{"overdrawn, refused", []picket.Event{over, refused}, true, true, fifth},
		{"made good since", []picket.Event{over}, false, false, budget.Envelope{}},
	} {
		var short shortage
		for _, e := range tc.heard {
			short.handleEvent(e, "r", tc.overdrawn)
		}
		if short.outOfBudget != tc.dry || short.lacked != tc.lacked {
			t.Errorf("%s: %+v", tc.name, short)
		}
	}
}
