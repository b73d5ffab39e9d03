package orchestrator_test

import (
	"strconv"

	"github.com/picket-dev/picket"
)

// damage is something that no script of ours does to a store.
type damage struct {
	kind  string   // what has to be found
	what  string   // the damage in words
	also  []string // found with it, as long as nothing is repaired
	plant func(s *inspectFixture)
}

const (
	coderLane   = "coder|"                          // the lane of head and tail
	missingTask = "task_01JZZZZZZZZZZZZZZZZZZZZZZZ" // has no record
	farScore    = 1000000000000001                  // a score after all others
	nearScore   = 5                                 // a score before all others
)

func currentRun(t picket.Task, s *inspectFixture) string {
	id, err := s.raw.HGet(s.ctx, "pk:{default}:task:"+t.TaskID, "run").Result()
	ok(s.t, err)
	return id
}

// setTaskField is a damage of one field of a task.
func setTaskField(t func(s *inspectFixture) picket.Task, field string, value any) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("HSET", "task:"+t(s).TaskID, field, value) }
}

func theLeased(s *inspectFixture) picket.Task { return s.leased }
func theHead(s *inspectFixture) picket.Task   { return s.head }
func theClosed(s *inspectFixture) picket.Task { return s.closed }

// addEntry is a damage of one entry of a sorted set.
func addEntry(key string, score any, member func(s *inspectFixture) picket.Task) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("ZADD", key, score, member(s).TaskID) }
}

func removeEntry(key string, member func(s *inspectFixture) picket.Task) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("ZREM", key, member(s).TaskID) }
}

func addOrphan(key string) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("ZADD", key, farScore, missingTask) }
}

var taskDamages = []damage{
	{kind: "record_damaged", what: "no such state", plant: setTaskField(theHead, "state", "lost")},
	{
		kind:  "record_damaged",
		what:  "a field is gone",
		plant: func(s *inspectFixture) { s.rawCommand("HDEL", "task:"+s.head.TaskID, "pri") },
	},

	{kind: "audit_differs", what: "the event is gone", plant: func(s *inspectFixture) {
		page, err := s.Events(s.ctx, picket.EventQuery{Audit: true, Limit: 1})
		ok(s.t, err)
		s.rawCommand("XDEL", "events", page.Events[0].ID+"-0")
	}},
	{kind: "audit_differs", what: "no copy of an event", plant: func(s *inspectFixture) {
		last, err := s.LastSeq(s.ctx)
		ok(s.t, err)
		s.rawCommand("XADD", "audit", strconv.FormatInt(last, 10)+"-1", "type", "key.created", "at", 1, "now", 1)
	}},

	{kind: "entry_orphaned", what: "deadlines", plant: addOrphan("deadlines")},
	{kind: "entry_orphaned", what: "delayed", plant: addOrphan("delayed")},
	{kind: "entry_orphaned", what: "starts", plant: addOrphan("starts")},
	{kind: "entry_orphaned", what: "tasks", plant: addOrphan("tasks")},
	{kind: "entry_orphaned", what: "terminal", plant: addOrphan("terminal")},
	{kind: "entry_orphaned", what: "queued", plant: addOrphan("by-state:queued")},
	{kind: "entry_orphaned", what: "closed", plant: addOrphan("by-state:failed")},
	{kind: "entry_orphaned", what: "head of a lane", also: []string{"head_score"}, plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:"+coderLane, nearScore, missingTask)
	}},
	{kind: "entry_orphaned", what: "alone in a lane", plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:tester|", nearScore, missingTask)
		s.rawCommand("ZADD", "lanes", nearScore, "tester|")
	}},
	{kind: "entry_orphaned", what: "hand-off", plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "handoffs:open", 1, "handoff_01JZZZZZZZZZZZZZZZZZZZZZZZ")
	}},

	{kind: "state_missing", what: "of a queued one", plant: removeEntry("by-state:queued", theHead)},
	{kind: "state_missing", what: "of a closed one", plant: removeEntry("by-state:completed", theClosed)},
	{kind: "state_extra", what: "queued and completed", plant: addEntry("by-state:completed", 1, theHead)},
	{kind: "state_extra", what: "completed and leased", plant: addEntry("by-state:leased", 1, theClosed)},
	{kind: "state_score", what: "order", plant: addEntry("by-state:queued", 1e9, theHead)},
	{kind: "list_missing", what: "tasks", plant: removeEntry("tasks", theHead)},
	{kind: "list_missing", what: "role", plant: removeEntry("by-role:coder", theHead)},
	{kind: "list_missing", what: "label", plant: removeEntry("by-label:team=a", theHead)},
	{kind: "list_score", what: "order", plant: addEntry("tasks", 1e9, theHead)},
	{kind: "terminal_missing", what: "never deleted", plant: removeEntry("terminal", theClosed)},
	{kind: "terminal_extra", what: "deleted while queued", plant: addEntry("terminal", 1, theHead)},

	{
		kind: "run_lost",
		what: "of the lease",
		also: []string{"lease_wrong", "token_differs"},
		plant: func(s *inspectFixture) {
			s.rawCommand("DEL", "run:"+currentRun(s.leased, s))
		},
	},
	{
		kind: "token_fell",
		what: "an earlier run had more",
		also: []string{"token_differs"},
		plant: func(s *inspectFixture) {
			s.rawCommand("HSET", "run:"+s.firstRun, "token", "9")
		},
	},
	{kind: "token_differs", what: "the task forgot", plant: setTaskField(theLeased, "token", "1")},
	{
		kind:  "lease_wrong",
		what:  "an earlier run runs",
		plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+s.firstRun, "state", "running") },
	},
	{
		kind:  "lease_wrong",
		what:  "the lease has ended",
		plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+s.holder.RunID, "state", "expired") },
	},
	{
		kind:  "lease_wrong",
		what:  "a closed task runs",
		plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+currentRun(s.closed, s), "state", "running") },
	},
	{kind: "attempt_differs", what: "one run too many", plant: setTaskField(theLeased, "attempt", "3")},
	{kind: "attempt_differs", what: "another run", also: []string{"lease_wrong"}, plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "task:"+s.leased.TaskID, "run", s.firstRun)
	}},

	{kind: "deadline_missing", what: "lost", plant: removeEntry("deadlines", theLeased)},
	{kind: "deadline_extra", what: "of a queued one", plant: addEntry("deadlines", farScore, theHead)},
	{kind: "deadline_far", what: "never ends", plant: addEntry("deadlines", farScore, theLeased)},

	{kind: "place_wrong", what: "another lane", plant: setTaskField(theHead, "at", "tester|")},
	{kind: "place_wrong", what: "closed but in a lane", plant: setTaskField(theClosed, "at", "tester|")},
	{
		kind:  "lane_missing",
		what:  "the head",
		also:  []string{"head_score"},
		plant: removeEntry("lane:"+coderLane, theHead),
	},
	{
		kind:  "lane_missing",
		what:  "all",
		also:  []string{"head_extra"},
		plant: func(s *inspectFixture) { s.rawCommand("DEL", "lane:"+coderLane) },
	},
	{
		kind:  "lane_extra",
		what:  "a leased one",
		also:  []string{"head_missing"},
		plant: addEntry("lane:|", nearScore, theLeased),
	},
	{kind: "lane_extra", what: "a closed one in a lane not its own", plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:"+coderLane, farScore, s.closed.TaskID)
	}},
	{kind: "lane_extra", what: "queued twice", plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:tester|", nearScore, s.head.TaskID)
		s.rawCommand("ZADD", "lanes", nearScore, "tester|")
	}},
	{kind: "lane_extra", what: "pinned and for all", also: []string{"head_missing"}, plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:|", nearScore, s.pinned.TaskID)
	}},
	{
		kind:  "lane_score",
		what:  "jumped the queue",
		also:  []string{"head_score"},
		plant: addEntry("lane:"+coderLane, nearScore, theHead),
	},
	{
		kind:  "head_missing",
		what:  "nobody looks there",
		plant: func(s *inspectFixture) { s.rawCommand("ZREM", "lanes", coderLane) },
	},
	{
		kind:  "head_extra",
		what:  "an empty lane",
		plant: func(s *inspectFixture) { s.rawCommand("ZADD", "lanes", nearScore, "tester|") },
	},
	{
		kind:  "head_score",
		what:  "looked at first",
		plant: func(s *inspectFixture) { s.rawCommand("ZADD", "lanes", nearScore, coderLane) },
	},

	{
		kind:  "delayed_missing",
		what:  "waits for its time",
		plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.later }),
	},
	{
		kind:  "delayed_missing",
		what:  "waits for a process",
		plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.gated }),
	},
	{
		kind:  "delayed_missing",
		what:  "pinned for ever",
		plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.pinned }),
	},
	{kind: "delayed_extra", what: "in its lane", plant: addEntry("delayed", farScore, theHead)},
	{kind: "delayed_extra", what: "leased", plant: addEntry("delayed", farScore, theLeased)},
	{
		kind:  "delayed_score",
		what:  "pinned too long",
		plant: addEntry("delayed", farScore, func(s *inspectFixture) picket.Task { return s.pinned }),
	},
	{kind: "start_extra", what: "leased", plant: addEntry("starts", farScore, theLeased)},
	{
		kind:  "gate_missing",
		what:  "nobody tells it",
		plant: func(s *inspectFixture) { s.rawCommand("DEL", "gated:"+s.gateRun) },
	},

	{
		kind: "handoff_closed",
		what: "waits for nothing",
		also: []string{"handoff_extra"},
		plant: func(s *inspectFixture) {
			s.rawCommand("HSET", "handoff:"+s.openHandoff(), "state", "answered")
		},
	},
	{kind: "handoff_open", what: "of another task", also: []string{"handoff_closed"}, plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "handoff:"+s.openHandoff(), "task", s.closed.TaskID)
	}},
	{
		kind:  "handoff_missing",
		what:  "nobody sees it",
		plant: func(s *inspectFixture) { s.rawCommand("ZREM", "handoffs:open", s.openHandoff()) },
	},
	{
		kind:  "handoff_extra",
		what:  "answered long ago",
		plant: func(s *inspectFixture) { s.rawCommand("ZADD", "handoffs:open", 1, s.answered) },
	},
}

// openHandoff is the hand-off that parked waits for.
func (s *inspectFixture) openHandoff() string {
	return "handoff_" + currentRun(s.parked, s)[len("run_"):]
}
