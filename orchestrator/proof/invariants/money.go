package invariants

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// moneyFixture is the part of a scene that is about money: a task with a call under way
// that acts outside, a subtask that waits and one that was cancelled.
type moneyFixture struct {
	buyer  picket.Task
	call   string // of the buyer, under way
	part   string
	failed string // its subtasks
}

func (s *inspectFixture) addMoney() moneyFixture {
	s.t.Helper()
	envelope := func(tokens int64, usd budget.Money) *budget.Envelope {
		return &budget.Envelope{Tokens: tokens, USD: usd}
	}
	task := s.MustSubmit(s.t, picket.TaskSpec{Role: "buyer", BudgetEnvelope: envelope(1000, 1_000_000_000)})
	h := s.OpenLease(s.t, s.AcquireOne(s.t, picket.AcquireRequest{AgentID: "shopper", Role: "buyer"}))
	call := kit.PaidCall("0.30")
	call.Effects = picket.EffectsExternal
	s.MustReserve(s.t, h, call)
	s.Fixture.MustSettle(s.t, kit.DoneSettlement(s.MustReserve(s.t, h, kit.PaidCall("0.10")), "0.05"))
	parts := [2]string{}
	for i := range parts {
		d, err := s.Delegate(s.Ctx, h, "",
			picket.Subtask{Title: "a part", Role: "helper", BudgetEnvelope: envelope(10, 100_000_000)})
		kit.OK(s.t, err)
		parts[i] = d.TaskID
	}
	_, err := s.Cancel(s.Ctx, kit.Operator, parts[1], "no need")
	kit.OK(s.t, err)
	return moneyFixture{task, call.CallID, parts[0], parts[1]}
}

// setEnvelopeField is a damage of one field of an envelope.
func setEnvelopeField(of func(s *inspectFixture) string, field string, value any) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("HSET", "env:"+of(s), field, value) }
}

func theBuyer(s *inspectFixture) string { return s.buyer.TaskID }
func thePart(s *inspectFixture) string  { return s.part }
func theCancelled(s *inspectFixture) string {
	return s.failed
}

// MoneyDamages are those of envelopes and calls.
var MoneyDamages = []damage{
	{
		Kind:  "books_differ",
		what:  "money from nowhere",
		Plant: setEnvelopeField(theBuyer, "available_u", 999_000_000_000),
	},
	{Kind: "books_differ", what: "tokens lost", Plant: setEnvelopeField(theBuyer, "granted_t", 999)},
	{
		Kind: "books_differ",
		what: "spent is less than nothing",
		also: []string{"total_differs"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("HINCRBY", "env:"+s.buyer.TaskID, "spent_t", -5)
			s.rawCommand("HINCRBY", "env:"+s.buyer.TaskID, "available_t", 5)
		},
	},
	{
		Kind: "not_given_back",
		what: "kept by who has ended",
		also: []string{"carved_differs"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("HINCRBY", "env:"+s.failed, "granted_u", 7)
			s.rawCommand("HINCRBY", "env:"+s.failed, "available_u", 7)
		},
	},
	{Kind: "carved_differs", what: "a subtask was granted more", Plant: func(s *inspectFixture) {
		s.rawCommand("HINCRBY", "env:"+s.part, "granted_t", 7)
		s.rawCommand("HINCRBY", "env:"+s.part, "available_t", 7)
	}},
	{
		Kind:  "carved_differs",
		what:  "a subtask is forgotten",
		Plant: func(s *inspectFixture) { s.rawCommand("ZREM", "children:"+s.buyer.TaskID, s.part) },
	},
	{Kind: "total_differs", what: "more than was spent", Plant: setEnvelopeField(theBuyer, "total_u", 999_000_000_000)},
	{Kind: "held_differs", what: "for no call", Plant: func(s *inspectFixture) {
		s.rawCommand("HINCRBY", "env:"+s.buyer.TaskID, "held_t", 7)
		s.rawCommand("HINCRBY", "env:"+s.buyer.TaskID, "available_t", -7)
	}},
	{
		Kind:  "held_differs",
		what:  "a call is forgotten",
		Plant: func(s *inspectFixture) { s.rawCommand("ZREM", "calls:"+s.buyer.TaskID, s.call) },
	},
	{
		Kind:  "hold_missing",
		what:  "never settled",
		Plant: func(s *inspectFixture) { s.rawCommand("ZREM", "holds", s.buyer.TaskID+":"+s.call) },
	},
	{
		Kind:  "hold_extra",
		what:  "of no call",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "holds", farScore, s.buyer.TaskID+":rnone") },
	},
	{
		Kind:  "call_extra",
		what:  "that is over",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "calls:"+s.buyer.TaskID, farScore, "rnone") },
	},
	{
		Kind:  "inflight_extra",
		what:  "keeps the next lease waiting",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "inflight:"+s.buyer.TaskID, farScore, "rnone") },
	},
	{
		Kind:  "envelope_missing",
		what:  "gone",
		also:  []string{"carved_differs"},
		Plant: func(s *inspectFixture) { s.rawCommand("DEL", "env:"+s.part) },
	},
	{
		Kind:  "envelope_state",
		what:  "closed too early",
		Plant: setEnvelopeField(thePart, "closed", "1"),
		also:  []string{"not_given_back"},
	},
	{Kind: "envelope_state", what: "never closed", Plant: setEnvelopeField(theCancelled, "closed", "0")},
}
