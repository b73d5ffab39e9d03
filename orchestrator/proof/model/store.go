package model

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// storedState is what a namespace holds, read key by key past the engine.
type storedState struct {
	states    map[picket.TaskState][]string
	helps     map[picket.HandoffState][]string
	tasks     map[string]map[string]string
	taskRuns  map[string][]string
	runs      map[string]map[string]string
	lanes     map[string]float64
	members   map[string][]redis.Z
	delayed   map[string]float64
	deadlines map[string]float64
	chores    map[string]float64
	inReview  []string
	count     int64
	meta      map[string]string
}

// read looks at everything the model knows of.
func (x *machine) read() *storedState {
	p := x.raw.Pipeline()
	key := func(parts ...string) string {
		// The in-process store is reached through a pipe that holds nothing: what
		// is asked at once has to fit into its read buffer.
		if p.Len() >= 20 {
			_, err := p.Exec(x.ctx)
			x.ok(err)
		}
		return x.prefix + strings.Join(parts, "")
	}
	zset := func(name string) *redis.ZSliceCmd { return p.ZRangeWithScores(x.ctx, key(name), 0, -1) }
	states := map[picket.TaskState]*redis.StringSliceCmd{}
	for _, s := range picket.TaskStates {
		states[s] = p.ZRange(x.ctx, key("by-state:", string(s)), 0, -1)
	}
	helps := map[picket.HandoffState]*redis.StringSliceCmd{}
	for _, s := range picket.HandoffStates {
		helps[s] = p.ZRange(x.ctx, key("handoffs:", string(s)), 0, -1)
	}
	lanes, delayed, deadlines, chores := zset("lanes"), zset("delayed"), zset("deadlines"), zset("chores")
	inReview := p.ZRange(x.ctx, key("in-review"), 0, -1)
	count, meta := p.ZCard(x.ctx, key("tasks")), p.HGetAll(x.ctx, key("meta"))
	tasks, taskRuns, runs, members := map[string]*redis.MapStringStringCmd{}, map[string]*redis.StringSliceCmd{},
		map[string]*redis.MapStringStringCmd{}, map[string]*redis.ZSliceCmd{}
	for _, id := range x.m.ids {
		tasks[id] = p.HGetAll(x.ctx, key("task:", id))
		taskRuns[id] = p.LRange(x.ctx, key("runs:", id), 0, -1)
	}
	for _, id := range x.m.rids {
		runs[id] = p.HGetAll(x.ctx, key("run:", id))
	}
	for lane := range x.m.lanes() {
		members[lane] = zset("lane:" + lane)
	}
	_, err := p.Exec(x.ctx)
	x.ok(err)
	all := valuesOf(taskRuns, (*redis.StringSliceCmd).Val)
	for id, t := range tasks { // the record names the last one
		if run := t.Val()["run"]; run != "" {
			all[id] = append(all[id], run)
		}
	}
	return &storedState{
		states:    valuesOf(states, (*redis.StringSliceCmd).Val),
		helps:     valuesOf(helps, (*redis.StringSliceCmd).Val),
		tasks:     valuesOf(tasks, (*redis.MapStringStringCmd).Val),
		taskRuns:  all,
		runs:      valuesOf(runs, (*redis.MapStringStringCmd).Val),
		members:   valuesOf(members, (*redis.ZSliceCmd).Val),
		lanes:     scores(lanes),
		delayed:   scores(delayed),
		deadlines: scores(deadlines),
		chores:    scores(chores),
		inReview:  inReview.Val(),
		count:     count.Val(),
		meta:      meta.Val(),
	}
}

func valuesOf[K comparable, C, V any](cmds map[K]C, val func(C) V) map[K]V {
	out := make(map[K]V, len(cmds))
	for k, c := range cmds {
		out[k] = val(c)
	}
	return out
}

func scores(c *redis.ZSliceCmd) map[string]float64 {
	out := map[string]float64{}
	for _, z := range c.Val() {
		out[z.Member.(string)] = z.Score
	}
	return out
}

// compare holds the store against the model and both against the invariants.
func (x *machine) compare() {
	x.Helper()
	was := x.j.Last
	x.follow(was)
	c := x.read()
	x.compareTasks(c)
	x.compareRuns(c)
	x.compareQueues(c)
	x.compareHelps(c)
	x.compareReviews(c)
	x.compareAgents()
	x.compareSessions()
	x.compareMoney()
	x.comparePushes()
	if diff := x.j.Differs(x.m.replayTasks()); diff != "" { // I4
		x.Fatalf("the event log does not replay:\n%s", diff)
	}
	if got := c.meta["seq"]; got != fmt.Sprint(x.j.Last) {
		x.Fatalf("sequence is %s, the last event %d", got, x.j.Last)
	}
	if c.count != int64(len(x.m.ids)) {
		x.Fatalf("%d tasks, want %d", c.count, len(x.m.ids))
	}
	if got := zero(c.meta["order"]); got != fmt.Sprint(x.m.orders) {
		x.Fatalf("the last order is %s, want %d", got, x.m.orders)
	}
	if got := c.meta["floor"]; got != fmt.Sprint(x.m.floor) {
		x.Fatalf("floor %s, want %d", got, x.m.floor)
	}
	if got := c.meta["paused"] != ""; got != x.m.paused {
		x.Fatalf("paused %v, want %v", got, x.m.paused)
	}
}

// follow replays the events of the step, which checks that the sequence is
// dense and every move legal, and holds them against what the verb had to write.
func (x *machine) follow(after int64) {
	x.Helper()
	page, err := x.e.Events(x.ctx, picket.EventQuery{After: after, Limit: 1000})
	x.ok(err)
	var wrote []modelEvent
	for _, ev := range page.Events {
		from := x.stateInLog(ev.TaskID)
		if err := x.j.Read(ev); err != nil {
			x.Fatalf("event %d %s of %s: %v", ev.Seq, ev.Type, ev.TaskID, err)
		}
		x.noteEvent(ev, from)
		if !countsEvents(ev) && ev.Type != "agent_session.health" {
			wrote = append(wrote, modelEvent{ev.Type, about(ev)})
		}
	}
	x.followAudit(after, page.Events)
	if got, want := sortedEvents(wrote), sortedEvents(x.m.wantEvents); !slices.Equal(got, want) {
		x.Fatalf("events\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// countsEvents reports whether an event is about events of a run that were only
// counted. When it is written depends on the minute, which the rules do not know.
func countsEvents(ev picket.Event) bool {
	return ev.Type == picket.EventWriteRefused && strings.Contains(string(ev.Data), `"verb":"events"`)
}

func (x *machine) compareTasks(c *storedState) {
	x.Helper()
	in := map[string]picket.TaskState{}
	for s, ids := range c.states {
		for _, id := range ids {
			if other, twice := in[id]; twice { // I7
				x.Fatalf("%s is in the sets of %s and %s", id, other, s)
			}
			in[id] = s
		}
	}
	for _, id := range x.m.ids {
		t, got := x.m.tasks[id], c.tasks[id]
		want := fmt.Sprintf("state=%s token=%d attempt=%d failures=%d run=%s pri=%d order=%d reports=%d",
			t.state, t.token, t.attempt, t.failures, t.run, t.priority, t.order, t.reports)
		have := fmt.Sprintf("state=%s token=%s attempt=%s failures=%s run=%s pri=%s order=%s reports=%s",
			got["state"], got["token"], got["attempt"], got["failures"], got["run"], got["pri"], got["order"],
			zero(got["reports"]))
		if have != want {
			x.Fatalf("%s\n is %s\nwant %s", id, have, want)
		}
		if in[id] != t.state {
			x.Fatalf("%s is %s, but in the set of %q", id, t.state, in[id])
		}
		if got["review"] != t.reviewer() {
			x.Fatalf("%s is reviewed by %q, want %q", id, got["review"], t.reviewer())
		}
		if got["fixes"] != t.fixes {
			x.Fatalf("%s fixes %q, want %q", id, got["fixes"], t.fixes)
		}
	}
	if len(in) != len(x.m.ids) {
		x.Fatalf("%d tasks stand in the state sets, want %d", len(in), len(x.m.ids))
	}
}

func zero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}

func (x *machine) compareRuns(c *storedState) {
	x.Helper()
	for _, id := range x.m.ids {
		t := x.m.tasks[id]
		last, valid := int64(0), 0
		for _, rid := range c.taskRuns[id] {
			r, got := x.m.runs[rid], c.runs[rid]
			if r == nil {
				x.Fatalf("%s has run %s, which nobody granted", id, rid)
			}
			token, _ := strconv.ParseInt(got["token"], 10, 64)
			if token <= last || token != r.token { // I1
				x.Fatalf("run %s of %s has token %d after %d, want %d", rid, id, token, last, r.token)
			}
			last = token
			if got["state"] == string(picket.RunRunning) {
				valid++
			}
			if got["state"] != string(r.state) {
				x.Fatalf("run %s is %s, want %s", rid, got["state"], r.state)
			}
			if got["class"] != string(r.class) {
				x.Fatalf("run %s ended as %q, want %q", rid, got["class"], r.class)
			}
		}
		leased := t.state == picket.TaskLeased
		if leased && valid != 1 || !leased && valid != 0 { // I2
			x.Fatalf("%s is %s and has %d valid leases", id, t.state, valid)
		}
		deadline, has := c.deadlines[id]
		if has != leased { // I5
			x.Fatalf("%s is %s; in deadlines: %v", id, t.state, has)
		}
		if leased && x.inHalves(deadline) != t.deadline {
			x.Fatalf("the lease of %s ends at %.0f, want %d", id, deadline-float64(x.base), t.deadline)
		}
	}
	if len(c.deadlines) != len(x.m.live()) {
		x.Fatalf("%d deadlines, %d live runs", len(c.deadlines), len(x.m.live()))
	}
}

// compareQueues checks that every queued task waits in exactly one place, or
// in a lane and for the end of its pin, and that the lanes are in order.
func (x *machine) compareQueues(c *storedState) {
	x.Helper()
	delayed := 0
	for _, id := range x.m.ids {
		t, got := x.m.tasks[id], c.tasks[id]
		at, waits := c.delayed[id]
		if t.state != picket.TaskQueued {
			if waits {
				x.Fatalf("%s is %s and waits in delayed", id, t.state)
			}
			continue
		}
		if got["at"] != t.where || got["gate"] != t.gate || waits != (t.due > 0) ||
			waits && x.inHalves(at-float64(t.due)) != 0 {
			x.Fatalf("%s waits in lane %q for run %q, delayed %v until %.0f; want lane %q, run %q, until %d", id,
				got["at"], got["gate"],
				waits, at-float64(x.base), t.where, t.gate, t.due)
		}
		if waits {
			delayed++
		}
		if t.where == "" && !waits {
			x.Fatalf("%s is queued and waits nowhere", id)
		}
	}
	if len(c.delayed) != delayed {
		x.Fatalf("delayed holds %v, want %d tasks", c.delayed, delayed)
	}
	want := x.m.lanes()
	if got, names := slices.Sorted(maps.Keys(c.lanes)), slices.Sorted(maps.Keys(want)); !slices.Equal(got, names) {
		x.Fatalf("lanes %q, want %q", got, names)
	}
	for lane, tasks := range want {
		members := c.members[lane]
		if len(members) != len(tasks) {
			x.Fatalf("lane %q holds %v, want %d tasks", lane, members, len(tasks))
		}
		for i, t := range tasks {
			score := float64(9-t.priority)*(1<<44) + float64(t.order)
			if members[i].Member != t.id || members[i].Score != score {
				x.Fatalf("lane %q has %v at %d, want %s %.0f", lane, members[i], i, t.id, score)
			}
		}
		if c.lanes[lane] != members[0].Score {
			x.Fatalf("lane %q stands at %.0f, its head at %.0f", lane, c.lanes[lane], members[0].Score)
		}
	}
}

func (x *machine) compareHelps(c *storedState) {
	x.Helper()
	in := map[string]picket.HandoffState{}
	for s, ids := range c.helps {
		for _, id := range ids {
			if other, twice := in[id]; twice {
				x.Fatalf("%s is in the sets of %s and %s", id, other, s)
			}
			in[id] = s
		}
	}
	waits := 0
	for _, id := range x.m.hids {
		h := x.m.helps[id]
		if in[id] != h.state {
			x.Fatalf("%s is in the set of %q, want %s", id, in[id], h.state)
		}
		due, has := c.chores["handoff:"+id]
		open := h.state == picket.HandoffOpen && h.deadline > 0
		if has != open || open && x.inHalves(due) != h.deadline {
			x.Fatalf("%s is looked after at %.0f (%v), want %d", id, due-float64(x.base), has, h.deadline)
		}
		if open {
			waits++
		}
	}
	due, has := c.chores["adopted"]
	if has != x.m.chores || has && x.inHalves(due) != x.m.adopted+kit.HalfMinute {
		x.Fatalf("void leases are looked after at %.0f (%v), want %d (%v)", due-float64(x.base), has,
			x.m.adopted+kit.HalfMinute,
			x.m.chores)
	}
	if has {
		waits++
	}
	for chore := range x.m.pendingChores {
		if _, has := c.chores[chore]; !has {
			x.Fatalf("%s is forgotten; there are %v", chore, c.chores)
		}
		waits++
	}
	for chore := range c.chores {
		if strings.HasPrefix(chore, "refused:") { // told when the minute is over
			waits++
		}
	}
	if len(in) != len(x.m.hids) || len(c.chores) != waits {
		x.Fatalf("%d hand-offs and chores %v, want %d and %d", len(in), c.chores, len(x.m.hids), waits)
	}
}
