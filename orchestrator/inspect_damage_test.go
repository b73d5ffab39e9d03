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
	plant func(s *scene)
}

const (
	coder = "coder|"                          // the lane of head and tail
	ghost = "task_01JZZZZZZZZZZZZZZZZZZZZZZZ" // has no record
	never = 1000000000000001                  // a score after all others
	soon  = 5                                 // a score before all others
)

func run(t picket.Task, s *scene) string {
	id, err := s.raw.HGet(s.ctx, "pk:{default}:task:"+t.TaskID, "run").Result()
	ok(s.t, err)
	return id
}

// set is a damage of one field of a task.
func set(t func(s *scene) picket.Task, field string, value any) func(s *scene) {
	return func(s *scene) { s.do("HSET", "task:"+t(s).TaskID, field, value) }
}

func theLeased(s *scene) picket.Task { return s.leased }
func theHead(s *scene) picket.Task   { return s.head }
func theClosed(s *scene) picket.Task { return s.closed }

// put is a damage of one entry of a sorted set.
func put(key string, score any, member func(s *scene) picket.Task) func(s *scene) {
	return func(s *scene) { s.do("ZADD", key, score, member(s).TaskID) }
}

func take(key string, member func(s *scene) picket.Task) func(s *scene) {
	return func(s *scene) { s.do("ZREM", key, member(s).TaskID) }
}

func orphanIn(key string) func(s *scene) {
	return func(s *scene) { s.do("ZADD", key, never, ghost) }
}

var damages = []damage{
	{kind: "record_damaged", what: "no such state", plant: set(theHead, "state", "lost")},
	{
		kind:  "record_damaged",
		what:  "a field is gone",
		plant: func(s *scene) { s.do("HDEL", "task:"+s.head.TaskID, "pri") },
	},

	{kind: "audit_differs", what: "the event is gone", plant: func(s *scene) {
		page, err := s.Events(s.ctx, picket.EventQuery{Audit: true, Limit: 1})
		ok(s.t, err)
		s.do("XDEL", "events", page.Events[0].ID+"-0")
	}},
	{kind: "audit_differs", what: "no copy of an event", plant: func(s *scene) {
		last, err := s.LastSeq(s.ctx)
		ok(s.t, err)
		s.do("XADD", "audit", strconv.FormatInt(last, 10)+"-1", "type", "key.created", "at", 1, "now", 1)
	}},

	{kind: "entry_orphaned", what: "deadlines", plant: orphanIn("deadlines")},
	{kind: "entry_orphaned", what: "delayed", plant: orphanIn("delayed")},
	{kind: "entry_orphaned", what: "starts", plant: orphanIn("starts")},
	{kind: "entry_orphaned", what: "tasks", plant: orphanIn("tasks")},
	{kind: "entry_orphaned", what: "terminal", plant: orphanIn("terminal")},
	{kind: "entry_orphaned", what: "queued", plant: orphanIn("by-state:queued")},
	{kind: "entry_orphaned", what: "closed", plant: orphanIn("by-state:failed")},
	{kind: "entry_orphaned", what: "head of a lane", also: []string{"head_score"}, plant: func(s *scene) {
		s.do("ZADD", "lane:"+coder, soon, ghost)
	}},
	{kind: "entry_orphaned", what: "alone in a lane", plant: func(s *scene) {
		s.do("ZADD", "lane:tester|", soon, ghost)
		s.do("ZADD", "lanes", soon, "tester|")
	}},
	{kind: "entry_orphaned", what: "hand-off", plant: func(s *scene) {
		s.do("ZADD", "handoffs:open", 1, "handoff_01JZZZZZZZZZZZZZZZZZZZZZZZ")
	}},

	{kind: "state_missing", what: "of a queued one", plant: take("by-state:queued", theHead)},
	{kind: "state_missing", what: "of a closed one", plant: take("by-state:completed", theClosed)},
	{kind: "state_extra", what: "queued and completed", plant: put("by-state:completed", 1, theHead)},
	{kind: "state_extra", what: "completed and leased", plant: put("by-state:leased", 1, theClosed)},
	{kind: "state_score", what: "order", plant: put("by-state:queued", 1e9, theHead)},
	{kind: "list_missing", what: "tasks", plant: take("tasks", theHead)},
	{kind: "list_missing", what: "role", plant: take("by-role:coder", theHead)},
	{kind: "list_missing", what: "label", plant: take("by-label:team=a", theHead)},
	{kind: "list_score", what: "order", plant: put("tasks", 1e9, theHead)},
	{kind: "terminal_missing", what: "never deleted", plant: take("terminal", theClosed)},
	{kind: "terminal_extra", what: "deleted while queued", plant: put("terminal", 1, theHead)},

	{kind: "run_lost", what: "of the lease", also: []string{"lease_wrong", "token_differs"}, plant: func(s *scene) {
		s.do("DEL", "run:"+run(s.leased, s))
	}},
	{kind: "token_fell", what: "an earlier run had more", also: []string{"token_differs"}, plant: func(s *scene) {
		s.do("HSET", "run:"+s.firstRun, "token", "9")
	}},
	{kind: "token_differs", what: "the task forgot", plant: set(theLeased, "token", "1")},
	{
		kind:  "lease_wrong",
		what:  "an earlier run runs",
		plant: func(s *scene) { s.do("HSET", "run:"+s.firstRun, "state", "running") },
	},
	{
		kind:  "lease_wrong",
		what:  "the lease has ended",
		plant: func(s *scene) { s.do("HSET", "run:"+s.holder.RunID, "state", "expired") },
	},
	{
		kind:  "lease_wrong",
		what:  "a closed task runs",
		plant: func(s *scene) { s.do("HSET", "run:"+run(s.closed, s), "state", "running") },
	},
	{kind: "attempt_differs", what: "one run too many", plant: set(theLeased, "attempt", "3")},
	{kind: "attempt_differs", what: "another run", also: []string{"lease_wrong"}, plant: func(s *scene) {
		s.do("HSET", "task:"+s.leased.TaskID, "run", s.firstRun)
	}},

	{kind: "deadline_missing", what: "lost", plant: take("deadlines", theLeased)},
	{kind: "deadline_extra", what: "of a queued one", plant: put("deadlines", never, theHead)},
	{kind: "deadline_far", what: "never ends", plant: put("deadlines", never, theLeased)},

	{kind: "place_wrong", what: "another lane", plant: set(theHead, "at", "tester|")},
	{kind: "place_wrong", what: "closed but in a lane", plant: set(theClosed, "at", "tester|")},
	{kind: "lane_missing", what: "the head", also: []string{"head_score"}, plant: take("lane:"+coder, theHead)},
	{
		kind:  "lane_missing",
		what:  "all",
		also:  []string{"head_extra"},
		plant: func(s *scene) { s.do("DEL", "lane:"+coder) },
	},
	{kind: "lane_extra", what: "a leased one", also: []string{"head_missing"}, plant: put("lane:|", soon, theLeased)},
	{kind: "lane_extra", what: "a closed one in a lane not its own", plant: func(s *scene) {
		s.do("ZADD", "lane:"+coder, never, s.closed.TaskID)
	}},
	{kind: "lane_extra", what: "queued twice", plant: func(s *scene) {
		s.do("ZADD", "lane:tester|", soon, s.head.TaskID)
		s.do("ZADD", "lanes", soon, "tester|")
	}},
	{kind: "lane_extra", what: "pinned and for all", also: []string{"head_missing"}, plant: func(s *scene) {
		s.do("ZADD", "lane:|", soon, s.pinned.TaskID)
	}},
	{
		kind:  "lane_score",
		what:  "jumped the queue",
		also:  []string{"head_score"},
		plant: put("lane:"+coder, soon, theHead),
	},
	{kind: "head_missing", what: "nobody looks there", plant: func(s *scene) { s.do("ZREM", "lanes", coder) }},
	{kind: "head_extra", what: "an empty lane", plant: func(s *scene) { s.do("ZADD", "lanes", soon, "tester|") }},
	{kind: "head_score", what: "looked at first", plant: func(s *scene) { s.do("ZADD", "lanes", soon, coder) }},

	{
		kind:  "delayed_missing",
		what:  "waits for its time",
		plant: take("delayed", func(s *scene) picket.Task { return s.later }),
	},
	{
		kind:  "delayed_missing",
		what:  "waits for a process",
		plant: take("delayed", func(s *scene) picket.Task { return s.gated }),
	},
	{
		kind:  "delayed_missing",
		what:  "pinned for ever",
		plant: take("delayed", func(s *scene) picket.Task { return s.pinned }),
	},
	{kind: "delayed_extra", what: "in its lane", plant: put("delayed", never, theHead)},
	{kind: "delayed_extra", what: "leased", plant: put("delayed", never, theLeased)},
	{
		kind:  "delayed_score",
		what:  "pinned too long",
		plant: put("delayed", never, func(s *scene) picket.Task { return s.pinned }),
	},
	{kind: "start_extra", what: "leased", plant: put("starts", never, theLeased)},
	{kind: "gate_missing", what: "nobody tells it", plant: func(s *scene) { s.do("DEL", "gated:"+s.gateRun) }},

	{kind: "handoff_closed", what: "waits for nothing", also: []string{"handoff_extra"}, plant: func(s *scene) {
		s.do("HSET", "handoff:"+s.hand(), "state", "answered")
	}},
	{kind: "handoff_open", what: "of another task", also: []string{"handoff_closed"}, plant: func(s *scene) {
		s.do("HSET", "handoff:"+s.hand(), "task", s.closed.TaskID)
	}},
	{
		kind:  "handoff_missing",
		what:  "nobody sees it",
		plant: func(s *scene) { s.do("ZREM", "handoffs:open", s.hand()) },
	},
	{
		kind:  "handoff_extra",
		what:  "answered long ago",
		plant: func(s *scene) { s.do("ZADD", "handoffs:open", 1, s.answered) },
	},
}

// hand is the hand-off that parked waits for.
func (s *scene) hand() string { return "handoff_" + run(s.parked, s)[len("run_"):] }
