package model

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The model's queues of people: whom their entries are for, and the reminders of those that wait.

// assignedTo is the person who should take a hand-off.
func (m *model) assignedTo(h *modelHandoff) string {
	return cmp.Or(h.assignee, m.tasks[h.task].assignee)
}

// assigned lists what waits for a person: the hand-offs and the reviews.
func (m *model) assigned(who string) (helps, reviews []string) {
	for _, hid := range m.hids {
		if h := m.helps[hid]; h.state == picket.HandoffOpen && m.assignedTo(h) == who {
			helps = append(helps, hid)
		}
	}
	for _, id := range m.ids {
		if t := m.tasks[id]; t.state == picket.TaskReview && t.assignee == who {
			reviews = append(reviews, id)
		}
	}
	return helps, reviews
}

// reminderRules are the rules of the machine: each selects in another way.
var reminderRules = []picket.ReminderRule{
	{Name: "all", After: time.Minute},
	{Name: "coders", After: 2 * time.Minute, Role: "coder"},
	{Name: "team", After: time.Minute, Label: "team=a", Webhook: "pager"},
}

// wall is the server's clock as people who wait see it.
func (m *model) wall() int64 { return m.clock + m.waited }

// remind looks at up to limit entries that have waited for longer than a rule allows. Each rule looks
// at an entry once. helps and reviews are the entries of the queues in their order.
func (m *model) remind(limit int, helps, reviews []string) (looked int) {
	for _, rule := range reminderRules {
		due := func(id string, since int64) bool {
			if looked == limit || m.looked[rule.Name+" "+id] || since > m.wall()-rule.After.Milliseconds() {
				return false
			}
			looked++
			m.looked[rule.Name+" "+id] = true
			return true
		}
		for _, hid := range helps {
			h := m.helps[hid]
			if due(hid, h.since) && m.selects(rule, m.tasks[h.task]) {
				m.emit(picket.EventHandoffReminder, h.task)
			}
		}
		for _, id := range reviews {
			if t := m.tasks[id]; due(id, t.inReview) && m.selects(rule, t) {
				m.emit(picket.EventReviewReminder, id)
			}
		}
	}
	return looked
}

func (m *model) selects(rule picket.ReminderRule, t *modelTask) bool {
	return (rule.Role == "" || rule.Role == t.role) && (rule.Label == "" || rule.Label == "team="+t.team) &&
		!m.cancelledAbove(t)
}

// remind reminds people after a while, in batches.
func (x *machine) remind() {
	x.wait(oneOf(x, "halves", 0, 1, 2, 4))
	for range 1 + x.below(3, "rounds") {
		helps, reviews := x.queue("handoffs:open"), x.queue("in-review")
		limit := oneOf(x, "limit", 100, 1, 2)
		n, err := x.e.RemindPeople(x.ctx, reminderRules, limit)
		x.ok(err)
		x.same("remind", n, x.m.remind(limit, helps, reviews))
	}
}

func (x *machine) queue(key string) []string {
	ids, err := x.raw.ZRange(x.ctx, x.prefix+key, 0, -1).Result()
	x.ok(err)
	return ids
}

// wait lets people wait for some half minutes: all that the store has of the server's clock about
// them comes to be that much older.
func (x *machine) wait(halves int) {
	by := int64(halves * kit.HalfMinute)
	x.m.waited += by
	for _, key := range []string{"handoffs:open", "in-review"} {
		for _, id := range x.queue(key) {
			x.ok(x.raw.ZIncrBy(x.ctx, x.prefix+key, -float64(by), id).Err())
		}
	}
	cursors, err := x.raw.HGetAll(x.ctx, x.prefix+"reminders").Result()
	x.ok(err)
	for field, cursor := range cursors {
		var score, saved int64
		var id string
		_, err := fmt.Sscan(cursor, &score, &saved, &id)
		x.ok(err)
		x.ok(x.raw.HSet(x.ctx, x.prefix+"reminders", field, fmt.Sprint(score-by, " ", saved-by, " ", id)).Err())
	}
}

// assigned asks for what waits for a person.
func (x *machine) assigned() {
	who := oneOf(x, "who", "ada", "ben")
	helps, reviews := x.m.assigned(who)
	queue, err := x.e.Handoffs(x.ctx, picket.HandoffQuery{Assignee: who})
	x.ok(err)
	var ids []string
	for _, h := range queue.Handoffs {
		x.same("hand-off: assignee", h.Assignee, who)
		ids = append(ids, h.HandoffID)
	}
	x.sameSet("hand-offs of "+who, ids, helps)
	page, err := x.e.Reviews(x.ctx, picket.ReviewQuery{Assignee: who})
	x.ok(err)
	ids = nil
	for _, r := range page.Reviews {
		x.same("review: assignee", r.Assignee, who)
		ids = append(ids, r.TaskID)
	}
	x.sameSet("reviews of "+who, ids, reviews)
}

func (x *machine) sameSet(what string, got, want []string) {
	x.Helper()
	slices.Sort(got)
	slices.Sort(want)
	x.same(what, strings.Join(got, " "), strings.Join(want, " "))
}

// compareReviews holds the queue of reviews against the tasks that wait in it.
func (x *machine) compareReviews(c *storedState) {
	x.Helper()
	x.sameSet("in-review", slices.Clone(c.inReview), slices.Clone(c.states[picket.TaskReview]))
}
