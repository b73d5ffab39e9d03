package orchestrator_test

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// till is the part of a scene that is about money: a task with a call under way
// that acts outside, a subtask that waits and one that was cancelled.
type till struct {
	buyer  picket.Task
	call   string // of the buyer, under way
	part   string
	failed string // its subtasks
}

func (s *scene) trade() till {
	s.t.Helper()
	purse := func(tokens int64, usd budget.Money) *budget.Envelope {
		return &budget.Envelope{Tokens: tokens, USD: usd}
	}
	task := s.submit(s.t, picket.TaskSpec{Role: "buyer", BudgetEnvelope: purse(1000, 1_000_000_000)})
	h := s.held(s.t, s.lease(s.t, picket.AcquireRequest{AgentID: "shopper", Role: "buyer"}))
	call := paid("0.30")
	call.Effects = picket.EffectsExternal
	s.reserve(s.t, h, call)
	s.fixture.settle(s.t, done(s.reserve(s.t, h, paid("0.10")), "0.05"))
	parts := [2]string{}
	for i := range parts {
		d, err := s.Delegate(s.ctx, h, "",
			picket.Subtask{Title: "a part", Role: "helper", BudgetEnvelope: purse(10, 100_000_000)})
		ok(s.t, err)
		parts[i] = d.TaskID
	}
	_, err := s.Cancel(s.ctx, operator, parts[1], "no need")
	ok(s.t, err)
	return till{task, call.CallID, parts[0], parts[1]}
}

// money is a damage of one field of an envelope.
func money(of func(s *scene) string, field string, value any) func(s *scene) {
	return func(s *scene) { s.do("HSET", "env:"+of(s), field, value) }
}

func theBuyer(s *scene) string { return s.buyer.TaskID }
func thePart(s *scene) string  { return s.part }
func theCancelled(s *scene) string {
	return s.failed
}

// tillDamages are those of envelopes and calls.
var tillDamages = []damage{
	{kind: "books_differ", what: "money from nowhere", plant: money(theBuyer, "available_u", 999_000_000_000)},
	{kind: "books_differ", what: "tokens lost", plant: money(theBuyer, "granted_t", 999)},
	{kind: "books_differ", what: "spent is less than nothing", also: []string{"total_differs"}, plant: func(s *scene) {
		s.do("HINCRBY", "env:"+s.buyer.TaskID, "spent_t", -5)
		s.do("HINCRBY", "env:"+s.buyer.TaskID, "available_t", 5)
	}},
	{kind: "not_given_back", what: "kept by who has ended", also: []string{"carved_differs"}, plant: func(s *scene) {
		s.do("HINCRBY", "env:"+s.failed, "granted_u", 7)
		s.do("HINCRBY", "env:"+s.failed, "available_u", 7)
	}},
	{kind: "carved_differs", what: "a subtask was granted more", plant: func(s *scene) {
		s.do("HINCRBY", "env:"+s.part, "granted_t", 7)
		s.do("HINCRBY", "env:"+s.part, "available_t", 7)
	}},
	{
		kind:  "carved_differs",
		what:  "a subtask is forgotten",
		plant: func(s *scene) { s.do("ZREM", "children:"+s.buyer.TaskID, s.part) },
	},
	{kind: "total_differs", what: "more than was spent", plant: money(theBuyer, "total_u", 999_000_000_000)},
	{kind: "held_differs", what: "for no call", plant: func(s *scene) {
		s.do("HINCRBY", "env:"+s.buyer.TaskID, "held_t", 7)
		s.do("HINCRBY", "env:"+s.buyer.TaskID, "available_t", -7)
	}},
	{
		kind:  "held_differs",
		what:  "a call is forgotten",
		plant: func(s *scene) { s.do("ZREM", "calls:"+s.buyer.TaskID, s.call) },
	},
	{
		kind:  "hold_missing",
		what:  "never settled",
		plant: func(s *scene) { s.do("ZREM", "holds", s.buyer.TaskID+":"+s.call) },
	},
	{
		kind:  "hold_extra",
		what:  "of no call",
		plant: func(s *scene) { s.do("ZADD", "holds", never, s.buyer.TaskID+":rnone") },
	},
	{
		kind:  "call_extra",
		what:  "that is over",
		plant: func(s *scene) { s.do("ZADD", "calls:"+s.buyer.TaskID, never, "rnone") },
	},
	{
		kind:  "inflight_extra",
		what:  "keeps the next lease waiting",
		plant: func(s *scene) { s.do("ZADD", "inflight:"+s.buyer.TaskID, never, "rnone") },
	},
	{
		kind:  "envelope_missing",
		what:  "gone",
		also:  []string{"carved_differs"},
		plant: func(s *scene) { s.do("DEL", "env:"+s.part) },
	},
	{
		kind:  "envelope_state",
		what:  "closed too early",
		plant: money(thePart, "closed", "1"),
		also:  []string{"not_given_back"},
	},
	{kind: "envelope_state", what: "never closed", plant: money(theCancelled, "closed", "0")},
}
