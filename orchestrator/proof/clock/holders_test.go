package clock

import (
	"maps"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// submit makes a task; some have to wait for a moment by the wall.
func (l *clockRun) submit() {
	l.t.Helper()
	s := picket.TaskSpec{
		Title:              "a task",
		LeaseWindowSeconds: kit.Ptr(10 + 10*l.random.IntN(2)),
		Retry:              &picket.Retry{MaxAttempts: kit.Ptr(100), BackoffSeconds: kit.Ptr(0)},
	}
	var at delayedStart
	if l.random.IntN(3) == 0 {
		// An instant has whole milliseconds, as the clock of the store has.
		wait := time.Duration(1+l.random.IntN(15))*time.Second - l.wall%time.Millisecond
		at = delayedStart{wall: l.wall + wait, own: l.own + wait}
		s.NotBefore = picket.Instant(at.wall.Milliseconds())
	}
	task, err := l.e.Submit(l.ctx, kit.Operator, s)
	kit.OK(l.t, err)
	if at.wall > 0 {
		l.later[task.TaskID] = at
	}
}

// useLeases lets somebody work: leases are taken as soon as there are any, renewed at
// 60 % of their window, and now and then ended or forgotten.
func (l *clockRun) useLeases(more bool) {
	l.t.Helper()
	if more && l.random.IntN(6) == 0 {
		l.submit()
	}
	l.acquire()
	for _, id := range slices.Sorted(maps.Keys(l.holders)) { // so that a seed repeats
		h := l.holders[id]
		switch {
		case h.dead:
		case l.own >= h.sent+h.window*6/10:
			l.renew(h)
		case l.random.IntN(60) == 0:
			_, err := l.e.Complete(l.ctx, h.held, picket.Completion{Output: picket.RawJSON(`1`)})
			kit.OK(l.t, err)
			delete(l.holders, id)
		case l.random.IntN(40) == 0:
			h.dead = true
		}
	}
}

func (l *clockRun) acquire() {
	l.t.Helper()
	leases, err := l.e.Acquire(l.ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(10)})
	kit.OK(l.t, err)
	for _, lease := range leases {
		if was := l.holders[lease.TaskID]; was != nil {
			if l.own < was.deadline() {
				l.t.Errorf("%s has a second holder %s before the first gives up", lease.TaskID, was.deadline()-l.own)
			}
			if !was.dead {
				l.t.Errorf("%s was taken from a holder that renews", lease.TaskID)
			}
			l.count.expired++
		}
		if at, waits := l.later[lease.TaskID]; waits {
			// A forward jump lets store time run ahead by a second.
			if l.wall < at.wall && l.own < at.own-time.Second {
				l.t.Errorf("%s started %s before its time on the wall", lease.TaskID, at.wall-l.wall)
			}
			delete(l.later, lease.TaskID)
			l.count.started++
		}
		held, err := rig.Sealer().OpenLeaseToken(lease.LeaseToken.Reveal())
		kit.OK(l.t, err)
		h := &clockHolder{
			lease:  lease,
			held:   held,
			sent:   l.own,
			window: time.Duration(lease.WindowMs) * time.Millisecond,
		}
		l.holders[lease.TaskID] = h
		l.count.grants++
		l.renew(h)
	}
}

func (l *clockRun) renew(h *clockHolder) {
	l.t.Helper()
	sent := l.own
	if _, err := l.e.Renew(l.ctx, h.held); err != nil {
		l.t.Errorf("a renewal in time, %s before the deadline, was refused: %v", h.deadline()-l.own, err)
	}
	h.sent = sent
	l.count.renewals++
}

// check compares who holds what with who believes to.
func (l *clockRun) check() {
	l.t.Helper()
	live, err := l.e.Leases(l.ctx)
	kit.OK(l.t, err)
	runs := map[string]bool{}
	for _, lease := range live.Leases {
		runs[lease.RunID] = true
	}
	for id, h := range l.holders {
		holds := runs[h.lease.RunID]
		if !holds && l.own < h.deadline() {
			l.t.Errorf("%s was taken %s before its holder gives up", id, h.deadline()-l.own)
		}
		// A step back costs what had passed since the last tick.
		if holds && l.own > h.sent+h.window+2*clockStep {
			l.t.Errorf("%s is still held %s after the end of its window", id, l.own-h.sent-h.window)
		}
	}
	for id, at := range l.later {
		if l.wall > at.wall+2*clockStep || l.own > at.own+2*clockStep+time.Second {
			l.t.Errorf("%s has not started %s after its time on the wall", id, l.wall-at.wall)
			delete(l.later, id)
		}
	}
	task, err := l.e.Task(l.ctx, l.help)
	kit.OK(l.t, err)
	if task.State != picket.TaskHandoff {
		l.t.Errorf("the task that waits for a person for ten minutes is %s after %s", task.State, l.own)
	}
}
