package orchestrator

import (
	"context"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
)

// queuesNow reads the queues by which the scheduler plans.
func (e *Engine) queuesNow(ctx context.Context) (q queues, err error) {
	r := e.run(ctx, "wake_queues")
	r.Decode(&q)
	return q, r.Err
}

// wakePlan says when the scheduler wakes a session next. It changes nothing. It is nil if the session has ended.
func (e *Engine) wakePlan(ctx context.Context, s picket.AgentSession) (*picket.WakePlan, error) {
	f, err := e.storedWakeFacts(ctx, s.AgentName, s.SessionID)
	if err != nil || f.Row == nil || f.Row.Dead {
		return nil, err
	}
	q, err := e.queuesNow(ctx)
	if err != nil {
		return nil, err
	}
	p := f.plan(q, e.store.cfg.Unmetered[s.AgentName])
	return &p, nil
}

// plan says when the scheduler wakes the session next, by the server's own clock. unmetered is true if it may wake a
// session that no budget limits.
func (f wakeFacts) plan(q queues, unmetered bool) picket.WakePlan {
	now, s := picket.Instant(f.Raw), f.schedule(q)
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
