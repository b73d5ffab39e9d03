package model

import (
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// The model's signs of life: calls of tools, repeated calls, and the nudges for them.

// modelActivity is what a run's record says of them.
type modelActivity struct {
	call     string // the last one
	request  string // its id
	same     int    // how often it came in a row
	active   int64  // when it came
	looked   int64  // when the last look came, in store time as the store has it
	called   bool
	row      int // counts the rows of same calls that cost
	rowTold  int // the last of them that was nudged
	nudges   int64
	nudgeFor string          // the call that was told, "" before
	had      map[string]bool // events by id
	modelEvidence
}

// acted notes a tool call and returns the nudge of its answer. The fifth identical call is nudged,
// and the tenth goes to a person. A repeated request does not count as another call. at is the store
// time of a look, which counts only within 0.9 s after the one before; 0 for other calls.
func (m *model) acted(t *modelTask, r *modelRun, call, name, request string,
	at int64) (nudge int64, code picket.Code) {
	if request != "" && r.request == request {
		return r.toldWith(name), ""
	}
	r.request = request
	if r.call != call {
		r.call, r.same = call, 0
	}
	if at != 0 {
		if at-r.looked >= 900 {
			r.same = 0
		}
		r.looked = at
	}
	r.same++
	r.active, r.called = m.now, true
	switch r.same {
	case 5:
		m.nudge(r)
	case 10:
		m.end(r, picket.RunFailed, picket.ExitStalled)
		m.emit(picket.EventLeaseFailed, t.id)
		m.after(r, picket.ExitStalled, false)
		return 0, picket.CodeLeaseReleased
	}
	return r.toldWith(name), ""
}

func (m *model) nudge(r *modelRun) {
	r.nudges++
	r.nudgeFor = ""
	m.emit(picket.EventRunStalled, r.task)
}

// toldWith is the number of the nudge that an answer has, 0 for none.
func (r *modelRun) toldWith(name string) int64 {
	if r.nudgeFor != "" && r.nudgeFor != name {
		return 0
	}
	if r.nudges > 0 && name != "" {
		r.nudgeFor = name
	}
	return r.nudges
}

func (m *model) getTask(h modelCredential, request string, at int64) (nudge int64, code picket.Code) {
	t, r, code := m.admits(h)
	if code != "" {
		return 0, code
	}
	m.confirm(t, r)
	return m.acted(t, r, "get_task", "", request, at)
}

func (m *model) stalled(h modelCredential, id string) picket.Code {
	r, code := m.lateHolder(h)
	// The adapter of an exit here names no last event. After it, and under a
	// superseded token, the event is counted instead of written.
	if code != "" || r.had[id] || r.exited || m.tasks[r.task].token > r.token {
		return code
	}
	if r.had == nil {
		r.had = map[string]bool{}
	}
	r.had[id] = true
	m.nudge(r)
	return ""
}

func (x *machine) getTaskBy(h picket.LeaseCredential, mh modelCredential, request string) {
	got, err := x.e.HeldTask(x.ctx, h, request)
	nudge, code := x.m.getTask(mh, request, x.lookedAt(h))
	if x.agree(err, code, "get_task %+v", mh) {
		x.same("get_task", got.TaskID, h.TaskID)
		x.same("get_task: input", string(got.Input), x.m.tasks[h.TaskID].edited)
		x.nudged("get_task", got.Nudge, nudge)
	}
	x.refused(h, err, "get_task")
}

// lookedAt is the store time of the call of a tool that a run has just made. The model itself knows
// the time only to half a minute.
func (x *machine) lookedAt(h picket.LeaseCredential) int64 {
	at, err := x.raw.HGet(x.ctx, x.prefix+"run:"+h.RunID, "active").Int64()
	if errors.Is(err, redis.Nil) {
		return 0
	}
	x.ok(err)
	return at
}

// loop makes the same call until it has been told, or until its run is over;
// one that is repeated under its id is a single one, however often.
func (x *machine) loop() {
	h, mh := x.holder()
	request, slowly := oneOf(x, "loop id", "", "g2"), x.chance("slowly", 20)
	for range 4 + x.below(9, "calls") {
		x.getTaskBy(h, mh, request)
		if slowly {
			x.passOne(false, false)
		}
	}
}

func (x *machine) stalled() {
	h, mh := x.holder()
	id, idle := fmt.Sprint("e", x.below(3, "id")), 60.0
	err := x.e.RunEvents(x.ctx, h, []picket.RunEvent{{Type: picket.EventRunStalled, ID: id, IdleSeconds: &idle}})
	x.agree(err, x.m.stalled(mh, id), "run.stalled %+v", mh)
}

func (x *machine) nudged(what string, got *picket.Nudge, want int64) {
	x.Helper()
	number := int64(0)
	if got != nil {
		number = got.Number
	}
	x.same(what+": nudge", number, want)
}

// lives checks what a renewal says of signs of life.
func (x *machine) lives(got picket.Renewal, r *modelRun) {
	x.Helper()
	number, waits := int64(0), false
	for _, c := range got.Commands {
		if c.Command == "messages" {
			waits = true
		} else {
			number = c.Number
		}
	}
	x.same("renew: nudge", number, r.nudges)
	x.same("renew: messages wait", waits, len(x.m.tasks[r.task].inbox) > 0)
	if x.same("renew: idle", got.IdleMs != nil, r.called); r.called {
		x.checkRemaining("renew: idle", -*got.IdleMs, r.active-x.m.now)
	}
}
