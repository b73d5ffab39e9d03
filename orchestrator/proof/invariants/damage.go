package invariants

import (
	"strconv"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// damage is something that no script of ours does to a store.
type damage struct {
	Kind  string   // what has to be found
	what  string   // the damage in words
	also  []string // found with it, as long as nothing is repaired
	Plant func(s *inspectFixture)
}

const (
	coderLane   = "coder|"                          // the lane of head and tail
	missingTask = "task_01JZZZZZZZZZZZZZZZZZZZZZZZ" // has no record
	farScore    = 1000000000000001                  // a score after all others
	nearScore   = 5                                 // a score before all others
)

func currentRun(t picket.Task, s *inspectFixture) string {
	id, err := s.Raw.HGet(s.Ctx, "pk:{default}:task:"+t.TaskID, "run").Result()
	kit.OK(s.t, err)
	return id
}

// setTaskField is a damage of one field of a task.
func setTaskField(t func(s *inspectFixture) picket.Task, field string, value any) func(s *inspectFixture) {
	return func(s *inspectFixture) { s.rawCommand("HSET", "task:"+t(s).TaskID, field, value) }
}

func theLeased(s *inspectFixture) picket.Task { return s.leased }
func theHead(s *inspectFixture) picket.Task   { return s.head }

// headPush is the push configuration of the head.
func headPush(s *inspectFixture) string       { return s.head.TaskID + ":p1" }
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

var TaskDamages = []damage{
	{Kind: "record_damaged", what: "no such state", Plant: setTaskField(theHead, "state", "lost")},
	{
		Kind:  "record_damaged",
		what:  "a field is gone",
		Plant: func(s *inspectFixture) { s.rawCommand("HDEL", "task:"+s.head.TaskID, "pri") },
	},

	{Kind: "audit_differs", what: "the event is gone", Plant: func(s *inspectFixture) {
		page, err := s.Events(s.Ctx, picket.EventQuery{Audit: true, Limit: 1})
		kit.OK(s.t, err)
		s.rawCommand("XDEL", "events", page.Events[0].ID+"-0")
	}},
	{Kind: "audit_differs", what: "no copy of an event", Plant: func(s *inspectFixture) {
		last, err := s.LastSeq(s.Ctx)
		kit.OK(s.t, err)
		s.rawCommand("XADD", "audit", strconv.FormatInt(last, 10)+"-1", "type", "key.created", "at", 1, "now", 1)
	}},

	{Kind: "entry_orphaned", what: "deadlines", Plant: addOrphan("deadlines")},
	{Kind: "entry_orphaned", what: "delayed", Plant: addOrphan("delayed")},
	{Kind: "entry_orphaned", what: "starts", Plant: addOrphan("starts")},
	{Kind: "entry_orphaned", what: "tasks", Plant: addOrphan("tasks")},
	{Kind: "entry_orphaned", what: "terminal", Plant: addOrphan("terminal")},
	{Kind: "entry_orphaned", what: "queued", Plant: addOrphan("by-state:queued")},
	{Kind: "entry_orphaned", what: "closed", Plant: addOrphan("by-state:failed")},
	{Kind: "entry_orphaned", what: "head of a lane", also: []string{"head_score"}, Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:"+coderLane, nearScore, missingTask)
	}},
	{Kind: "entry_orphaned", what: "alone in a lane", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:tester|", nearScore, missingTask)
		s.rawCommand("ZADD", "lanes", nearScore, "tester|")
	}},
	{Kind: "entry_orphaned", what: "hand-off", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "handoffs:open", 1, "handoff_01JZZZZZZZZZZZZZZZZZZZZZZZ")
	}},

	{Kind: "state_missing", what: "of a queued one", Plant: removeEntry("by-state:queued", theHead)},
	{Kind: "state_missing", what: "of a closed one", Plant: removeEntry("by-state:completed", theClosed)},
	{Kind: "state_extra", what: "queued and completed", Plant: addEntry("by-state:completed", 1, theHead)},
	{Kind: "state_extra", what: "completed and leased", Plant: addEntry("by-state:leased", 1, theClosed)},
	{Kind: "state_score", what: "order", Plant: addEntry("by-state:queued", 1e9, theHead)},
	{Kind: "list_missing", what: "tasks", Plant: removeEntry("tasks", theHead)},
	{Kind: "list_missing", what: "role", Plant: removeEntry("by-role:coder", theHead)},
	{Kind: "list_missing", what: "label", Plant: removeEntry("by-label:team=a", theHead)},
	{Kind: "client_missing", what: "of all", Plant: removeEntry("by-client:*", theHead)},
	{Kind: "client_missing", what: "an open task", Plant: removeEntry("client-open:"+kit.Operator.Actor, theHead)},
	{Kind: "client_score", what: "another instant", Plant: addEntry("by-client:"+kit.Operator.Actor, 1, theHead)},
	{Kind: "client_extra", what: "ended and open", Plant: func(s *inspectFixture) {
		closed, err := s.Task(s.Ctx, s.closed.TaskID)
		kit.OK(s.t, err)
		s.rawCommand("HSET", "task:"+s.closed.TaskID, "client", "key_c", "context", "x")
		for _, key := range []string{"by-client:*", "by-client:key_c", "by-context:* x", "by-context:key_c x"} {
			s.rawCommand("ZADD", key, -int64(closed.UpdatedAt), s.closed.TaskID)
		}
		s.rawCommand("ZADD", "client-open:key_c", 1, s.closed.TaskID)
	}},
	{Kind: "list_score", what: "order", Plant: addEntry("tasks", 1e9, theHead)},
	{Kind: "terminal_missing", what: "never deleted", Plant: removeEntry("terminal", theClosed)},
	{Kind: "terminal_extra", what: "deleted while queued", Plant: addEntry("terminal", 1, theHead)},

	{
		Kind: "run_lost",
		what: "of the lease",
		also: []string{"lease_wrong", "token_differs"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("DEL", "run:"+currentRun(s.leased, s))
		},
	},
	{
		Kind: "token_fell",
		what: "an earlier run had more",
		also: []string{"token_differs"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("HSET", "run:"+s.firstRun, "token", "9")
		},
	},
	{Kind: "token_differs", what: "the task forgot", Plant: setTaskField(theLeased, "token", "1")},
	{
		Kind:  "lease_wrong",
		what:  "an earlier run runs",
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+s.firstRun, "state", "running") },
	},
	{
		Kind:  "lease_wrong",
		what:  "the lease has ended",
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+s.holder.RunID, "state", "expired") },
	},
	{
		Kind:  "lease_wrong",
		what:  "a closed task runs",
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "run:"+currentRun(s.closed, s), "state", "running") },
	},
	{Kind: "attempt_differs", what: "one run too many", Plant: setTaskField(theLeased, "attempt", "3")},
	{Kind: "attempt_differs", what: "another run", also: []string{"lease_wrong", "token_differs"},
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "task:"+s.leased.TaskID, "run", s.firstRun) }},

	{Kind: "emissions_differ", what: "fewer than it has", Plant: setTaskField(theLeased, "emitted", "0")},
	{Kind: "emissions_differ", what: "one is lost", Plant: func(s *inspectFixture) {
		s.rawCommand("RPOP", "emitted:"+s.leased.TaskID)
	}},

	{Kind: "push_damaged", what: "no updates are kept", Plant: setTaskField(theHead, "push", "")},
	{Kind: "push_damaged", what: "no record", Plant: func(s *inspectFixture) {
		s.rawCommand("DEL", "push:"+headPush(s))
	}},
	{Kind: "push_missing", what: "an update that nobody sends", Plant: func(s *inspectFixture) {
		s.rawCommand("RPUSH", "updates:"+s.head.TaskID, "result")
	}},
	{Kind: "push_missing", what: "of its client", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "client-pushes:"+s.head.CreatedBy, headPush(s))
	}},
	{Kind: "push_extra", what: "with nothing to send", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "push-due", nearScore, headPush(s))
	}},
	{Kind: "entry_orphaned", what: "push-due", Plant: addOrphan("push-due")},

	{Kind: "deadline_missing", what: "lost", Plant: removeEntry("deadlines", theLeased)},
	{Kind: "deadline_extra", what: "of a queued one", Plant: addEntry("deadlines", farScore, theHead)},
	{Kind: "deadline_far", what: "never ends", Plant: addEntry("deadlines", farScore, theLeased)},

	{Kind: "place_wrong", what: "another lane", Plant: setTaskField(theHead, "at", "tester|")},
	{Kind: "place_wrong", what: "closed but in a lane", Plant: setTaskField(theClosed, "at", "tester|")},
	{
		Kind:  "lane_missing",
		what:  "the head",
		also:  []string{"head_score"},
		Plant: removeEntry("lane:"+coderLane, theHead),
	},
	{
		Kind:  "lane_missing",
		what:  "all",
		also:  []string{"head_extra"},
		Plant: func(s *inspectFixture) { s.rawCommand("DEL", "lane:"+coderLane) },
	},
	{
		Kind:  "lane_extra",
		what:  "a leased one",
		also:  []string{"head_missing"},
		Plant: addEntry("lane:|", nearScore, theLeased),
	},
	{Kind: "lane_extra", what: "a closed one in a lane not its own", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:"+coderLane, farScore, s.closed.TaskID)
	}},
	{Kind: "lane_extra", what: "queued twice", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:tester|", nearScore, s.head.TaskID)
		s.rawCommand("ZADD", "lanes", nearScore, "tester|")
	}},
	{Kind: "lane_extra", what: "pinned and for all", also: []string{"head_missing"}, Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "lane:|", nearScore, s.pinned.TaskID)
	}},
	{
		Kind:  "lane_score",
		what:  "jumped the queue",
		also:  []string{"head_score"},
		Plant: addEntry("lane:"+coderLane, nearScore, theHead),
	},
	{
		Kind:  "head_missing",
		what:  "nobody looks there",
		Plant: func(s *inspectFixture) { s.rawCommand("ZREM", "lanes", coderLane) },
	},
	{
		Kind:  "head_extra",
		what:  "an empty lane",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "lanes", nearScore, "tester|") },
	},
	{
		Kind:  "head_score",
		what:  "looked at first",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "lanes", nearScore, coderLane) },
	},

	{
		Kind:  "delayed_missing",
		what:  "waits for its time",
		Plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.later }),
	},
	{
		Kind:  "delayed_missing",
		what:  "waits for a process",
		Plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.gated }),
	},
	{
		Kind:  "delayed_missing",
		what:  "pinned for ever",
		Plant: removeEntry("delayed", func(s *inspectFixture) picket.Task { return s.pinned }),
	},
	{Kind: "delayed_extra", what: "in its lane", Plant: addEntry("delayed", farScore, theHead)},
	{Kind: "delayed_extra", what: "leased", Plant: addEntry("delayed", farScore, theLeased)},
	{
		Kind:  "delayed_score",
		what:  "pinned too long",
		Plant: addEntry("delayed", farScore, func(s *inspectFixture) picket.Task { return s.pinned }),
	},
	{Kind: "start_extra", what: "leased", Plant: addEntry("starts", farScore, theLeased)},
	{
		Kind:  "gate_missing",
		what:  "nobody tells it",
		Plant: func(s *inspectFixture) { s.rawCommand("DEL", "gated:"+s.gateRun) },
	},

	{Kind: "bundle_torn", what: "a piece is gone", Plant: func(s *inspectFixture) {
		b, err := s.Bundle(s.Ctx, s.leased.TaskID)
		kit.OK(s.t, err)
		s.rawCommand("HDEL", "pieces:"+s.leased.TaskID+":"+b.SHA256, "1")
	}},
	{Kind: "upload_missing", what: "never given up", Plant: removeEntry("uploads", theLeased)},
	{Kind: "upload_extra", what: "there is none", Plant: addEntry("uploads", farScore, theHead)},

	{
		Kind: "handoff_closed",
		what: "waits for nothing",
		also: []string{"handoff_extra"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("HSET", "handoff:"+s.openHandoff(), "state", "answered")
		},
	},
	{Kind: "handoff_open", what: "of another task", also: []string{"handoff_closed"}, Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "handoff:"+s.openHandoff(), "task", s.closed.TaskID)
	}},
	{
		Kind:  "handoff_missing",
		what:  "nobody sees it",
		Plant: func(s *inspectFixture) { s.rawCommand("ZREM", "handoffs:open", s.openHandoff()) },
	},
	{
		Kind:  "handoff_extra",
		what:  "answered long ago",
		Plant: func(s *inspectFixture) { s.rawCommand("ZADD", "handoffs:open", 1, s.answered) },
	},
}
