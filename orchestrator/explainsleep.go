package orchestrator

import (
	"context"

	"github.com/picket-dev/picket"
)

// maxSleepingAgents bounds the agents whose sessions an explanation looks at.
const maxSleepingAgents = 3

// sleepingSession is a session of an agent that could take a task which nobody asks for.
type sleepingSession struct {
	picket.WakeDecision // what the scheduler would decide now
	plan                picket.WakePlan
	due                 bool // the scheduler wakes it in its next cycle
	// seen is true if the task waited already when the session was woken last, and no other work has come since.
	seen bool
}

// sleepingSessions says why sessions of the first of these agents are not woken now, one of each agent. lane is that
// of the task.
func (e *Engine) sleepingSessions(ctx context.Context, agents []string, lane string) (asleep []sleepingSession,
	err error) {
	if len(agents) == 0 {
		return nil, nil
	}
	q, err := e.queuesNow(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range agents[:min(len(agents), maxSleepingAgents)] {
		page, err := e.AgentSessions(ctx, picket.AgentSessionQuery{AgentID: id, Limit: 1})
		if err != nil {
			return nil, err
		}
		for _, s := range page.Sessions {
			if s.AgentName == "" {
				continue
			}
			f, err := e.wakeFacts(ctx, s.AgentName, s.SessionID)
			if err != nil {
				return nil, err
			}
			if f.Row != nil {
				asleep = append(asleep, e.sleepingSession(f, q, lane))
			}
		}
	}
	return asleep, nil
}

func (e *Engine) sleepingSession(f wakeFacts, q queues, lane string) sleepingSession {
	w := wake{e: e, name: f.name, source: picket.WakeSourceScheduler, unmetered: e.store.cfg.Unmetered[f.name]}
	_, counted := q.Lanes[lane]
	return sleepingSession{
		WakeDecision: w.decide(f, picket.Instant(f.Raw)),
		plan:         f.plan(q, w.unmetered),
		due:          f.schedule(q).Due(picket.Instant(f.Raw)),
		seen: counted && laneAgent(lane) == "" && f.Last != 0 && !f.UnderWay && f.Context != "" &&
			f.Context == f.contextNow(q),
	}
}

// explainSleep says why sessions of agents that could take the task are not woken for it.
func (f explainResult) explainSleep(x *explanation) {
	for _, s := range f.asleep {
		switch s.Reason {
		case picket.WakeReasonSent, picket.WakeReasonCoalesced, picket.WakeReasonRateLimited:
			if s.seen {
				x.sayWoken(s)
				continue
			}
		}
		x.sayAsleep(s)
	}
}

// sayWoken is about a session that was woken for the work that waits now.
func (x *explanation) sayWoken(s sleepingSession) {
	until, next := picket.Instant(0), "it is woken again when something else comes for it"
	if s.plan.NextAt != nil && !s.plan.OnlyIfChanged {
		until, next = *s.plan.NextAt, "it is woken again at "+s.plan.NextAt.String()+" at the earliest"
	}
	x.sayUntil(until, picket.ReasonSessionAsleep,
		"session %s of %s was woken at %s, when the task waited already, and has not taken it; %s", s.SessionID,
		s.AgentName, s.plan.LastAt, next)
	x.next("picket agent heartbeat wake %s --session %s", s.AgentName, s.SessionID)
}

// sayAsleep is about a session that was not woken for the work that waits now.
func (x *explanation) sayAsleep(s sleepingSession) {
	switch {
	case s.Result == picket.WakeResultSent && s.due:
		x.say(picket.ReasonSessionAsleep, "session %s of %s is idle; the scheduler wakes it within a minute",
			s.SessionID, s.AgentName)
		return
	case s.Result == picket.WakeResultSent:
		x.say(picket.ReasonSessionAsleep, "session %s of %s is idle; the scheduler does not wake it for this task",
			s.SessionID, s.AgentName)
		x.next("picket agent heartbeat wake %s --session %s", s.AgentName, s.SessionID)
		return
	}
	until := picket.Instant(0)
	if s.NextAllowedAt != nil {
		until = *s.NextAllowedAt
	}
	x.sayUntil(until, picket.ReasonSessionAsleep, "session %s of %s is not woken for it: %s", s.SessionID,
		s.AgentName, s.Reason)
	if s.Reason == picket.WakeReasonNoPolicy {
		x.next("picket agent heartbeat write %s --file HEARTBEAT.md", s.AgentName)
	} else {
		x.next("picket agent heartbeat wake %s --session %s --dry-run", s.AgentName, s.SessionID)
	}
}
