package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// wakesPerCycle bounds the sessions that one call of the scheduler looks at.
const wakesPerCycle = 100

// recheckEvery is how long after a look at a session the scheduler looks again at the latest, for work that
// nobody has told it about.
const recheckEvery = time.Minute

// WakeCycle begins a cycle of the scheduler, if no other process has begun the present one, and wakes the
// sessions for which it is time. It returns how many it has looked at. A cycle lasts 30 seconds of store time,
// so a call in between does nothing. If a process has the directory of policy files, only that process wakes. It
// does not wait until the adapters accept the wakes. An error about one session does not keep it from the others,
// unless the store is away. The first one is returned.
func (e *Engine) WakeCycle(ctx context.Context) (looked int, err error) {
	for more := false; ; more = true {
		r := e.run(ctx, "wake_cycle", wakesPerCycle, boolArg(more), e.policyHolder)
		var v struct {
			queues
			Begun    bool     `reply:"begun"`
			Sessions []string `reply:"sessions"` // session and agent name by turns
		}
		r.Decode(&v)
		if r.Err != nil {
			return looked, cmp.Or(err, r.Err)
		}
		for i := 0; i+1 < len(v.Sessions); i += 2 {
			failed := e.wakeIfDue(ctx, v.Sessions[i], v.Sessions[i+1], v.queues)
			err = cmp.Or(err, failed)
			if failed != nil && (ctx.Err() != nil || errors.Is(failed, picket.CodeUnavailable)) {
				return looked, err
			}
			looked++
		}
		if len(v.Sessions) < 2*wakesPerCycle {
			return looked, err
		}
	}
}

// wakeIfDue wakes a session for which it is time, and plans when it is looked at next.
func (e *Engine) wakeIfDue(ctx context.Context, sessionID, name string, q queues) error {
	f, err := e.wakeFacts(ctx, name, sessionID, false)
	if err != nil || f.Row == nil || f.Row.Dead {
		return err
	}
	f.queues = q
	plan := f.schedule()
	next := recheckEvery
	if !plan.DueAt.IsZero() && int64(plan.DueAt) > f.Raw {
		next = min(next, time.Duration(f.untilMs(plan.DueAt))*time.Millisecond)
	}
	if plan.Due(picket.Instant(f.Raw)) {
		w := wake{e: e, name: name, source: picket.WakeSourceScheduler, occasion: plan.Occasion,
			unmetered: e.store.cfg.Unmetered[name]}
		if _, err := w.make(ctx, f, sessionID); err != nil && !errors.Is(err, picket.CodeStateConflict) {
			return err
		}
	}
	return e.run(ctx, "plan_wake", sessionID, next.Milliseconds(), boolArg(plan.Unchanged),
		f.settings.WakeEventRetention.Milliseconds()).Err
}

// wakePlan says when the scheduler wakes a session next. It changes nothing. It is nil if the session has ended.
func (e *Engine) wakePlan(ctx context.Context, s picket.AgentSession) (*picket.WakePlan, error) {
	f, err := e.storedWakeFacts(ctx, s.AgentName, s.SessionID, true)
	if err != nil || f.Row == nil || f.Row.Dead {
		return nil, err
	}
	p := f.plan(e.store.cfg.Unmetered[s.AgentName])
	return &p, nil
}

// plan says when the scheduler wakes the session next, by the server's own clock. unmetered is true if it may wake a
// session that no budget limits.
func (f wakeFacts) plan(unmetered bool) picket.WakePlan {
	now, s := picket.Instant(f.Raw), f.schedule()
	p := picket.WakePlan{BackingOff: s.BackingOff}
	if last := f.wall(f.Last); last != 0 {
		p.LastAt = &last
	}
	if d := f.decide(picket.WakeSourceScheduler, now, unmetered); d.Reason != picket.WakeReasonSent {
		p.Reason = &d.Reason
	}
	if s.DueAt.IsZero() || f.Stopping || f.Row.Dead {
		return p
	}
	facts := f.decided(picket.WakeSourceScheduler, max(s.DueAt, now), unmetered)
	if next, ok := heartbeat.NextAllowed(facts); ok {
		p.NextAt, p.Occasion, p.OnlyIfChanged = &next, string(s.Occasion), s.OnlyIfChanged
	}
	return p
}

// lookForCycle is how often a process looks whether a cycle of the scheduler is due.
const lookForCycle = 5 * time.Second

// RunWakes runs the scheduler of wakes for every namespace, until ctx ends. Any number of processes may run it.
func (s *Store) RunWakes(ctx context.Context) error {
	var all sync.WaitGroup
	for _, e := range s.Engines() {
		all.Go(func() { e.runWakes(ctx) })
	}
	all.Wait()
	return nil
}

func (e *Engine) runWakes(ctx context.Context) {
	ticker := time.NewTicker(lookForCycle)
	defer ticker.Stop()
	for failing := picket.Code(""); ; {
		_, err := e.WakeCycle(ctx)
		code := picket.Code("")
		if err != nil && ctx.Err() == nil {
			code = picket.CodeOf(err)
		}
		if code != failing && err != nil {
			e.log.Warn("agent sessions cannot be woken now", "err", err)
		}
		failing = code
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
