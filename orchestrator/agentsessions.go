package orchestrator

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/store"
)

// ReportSessions stores the whole list of the sessions that the adapter of an agent keeps. A session
// that is not in it has ended. Only the key that registered the agent, or an operator, may report,
// and only for its present incarnation; an earlier one is refused with CodeAgentGone.
func (e *Engine) ReportSessions(ctx context.Context, by picket.Caller, agentID string,
	report picket.SessionsReport) error {
	if err := cmp.Or(picket.CheckName("agent_id", agentID), report.Check()); err != nil {
		return err
	}
	args := append([]any{agentID, by.Actor, boolArg(by.Operator), report.Incarnation}, e.healthArgs()...)
	for _, s := range report.Sessions {
		idle := any("")
		if s.IdleMs != nil {
			idle = *s.IdleMs
		}
		args = append(args, s.SessionID, string(s.Kind), s.Preset, string(s.State), s.PromptID, boolArg(s.Silent),
			s.DetachedBecause, idle, s.TaskID, boolArg(s.Metered))
	}
	return e.retryJudged(ctx, agentID, func() *reply { return e.run(ctx, "report_sessions", args...) }).Err
}

// healthArgs are the settings of the events about the health of sessions, in ms.
func (e *Engine) healthArgs() []any {
	wake := e.store.cfg.Wake
	return []any{wake.SessionHealthStaleAfter.Milliseconds(), wake.SessionHealthHookMinInterval.Milliseconds()}
}

// AgentSession reads a session, with what the scheduler plans for it. One that has ended is kept for a week if it was
// ever prompted.
func (e *Engine) AgentSession(ctx context.Context, sessionID string) (picket.AgentSession, error) {
	if err := picket.CheckID("sessionId", "asession", sessionID); err != nil {
		return picket.AgentSession{}, err
	}
	found, _, err := e.agentSessions(ctx, sessionID, "", 0, 1)
	if err != nil {
		return picket.AgentSession{}, err
	}
	s := found[0]
	if s.AgentName == "" || s.Health.State == picket.SessionStopped {
		return s, nil
	}
	s.WakePlan, err = e.wakePlan(ctx, s)
	return s, err
}

// AgentSessions pages through the sessions that have not ended, newest first.
func (e *Engine) AgentSessions(ctx context.Context, q picket.AgentSessionQuery) (picket.AgentSessionPage, error) {
	limit, err := pageLimit(q.Limit, 50, 100)
	if q.AgentID != "" {
		err = cmp.Or(err, picket.CheckName("agentId", q.AgentID))
	}
	if err != nil {
		return picket.AgentSessionPage{}, err
	}
	sessions, next, err := e.agentSessions(ctx, "", q.AgentID, max(q.Cursor, 0), limit)
	return picket.AgentSessionPage{Sessions: sessions, Cursor: next}, err
}

func (e *Engine) agentSessions(ctx context.Context, sessionID, agentID string, before int64,
	limit int) (sessions []picket.AgentSession, next int64, err error) {
	r := e.run(ctx, "agent_sessions", sessionID, agentID, before, limit)
	var v struct {
		Now   int64        `reply:"now"`
		Known int64        `reply:"known"`
		Rows  []sessionRow `reply:"rows"`
		More  bool         `reply:"more"`
	}
	r.Decode(&v)
	for _, row := range v.Rows {
		sessions = append(sessions, row.session(picket.Instant(v.Now), picket.Instant(v.Known),
			e.store.cfg.Wake.SessionHealthStaleAfter, row.Prompt != ""))
	}
	if n := len(v.Rows); v.More && n > 0 {
		next = v.Rows[n-1].Number
	}
	return sessions, next, r.Err
}

// sessionRow is session_row of the scripts.
type sessionRow struct {
	ID          string `reply:"id"`
	Agent       string `reply:"agent"`
	Name        string `reply:"name"`
	Incarnation int64  `reply:"incarnation"`
	Kind        string `reply:"kind"`
	Preset      string `reply:"preset"`
	State       string `reply:"state"`
	Prompt      string `reply:"prompt"`
	Silent      bool   `reply:"silent"`
	Metered     bool   `reply:"metered"`
	Because     string `reply:"because"`
	Reported    int64  `reply:"reported"`    // ms
	ReportedAt  int64  `reply:"reported_at"` // store time, ms
	Active      *int64 `reply:"active"`      // ms
	Started     int64  `reply:"started"`     // ms
	Number      int64  `reply:"number"`
	Task        string `reply:"task"`
	Turn        bool   `reply:"turn"`      // the turn after a prompt is under way
	Open        int    `reply:"open"`      // prompts
	Heartbeat   *int64 `reply:"heartbeat"` // ms; the last one of the agent
	Dead        bool   `reply:"dead"`      // the session or its agent
	Draining    bool   `reply:"draining"`
	Unhealthy   bool   `reply:"unhealthy"` // the agent
}

// session judges the health of a session at an instant of the store. What was reported before known does not count. A
// report older than staleAfter is stale. prompting is true if a prompt is under way.
func (row sessionRow) session(now, known picket.Instant, staleAfter time.Duration,
	prompting bool) picket.AgentSession {
	h := heartbeat.Health(heartbeat.HealthFacts{
		ReportedAt:       picket.Instant(row.ReportedAt),
		KnownSince:       known,
		ReportedState:    picket.SessionState(row.State),
		ActivePrompt:     prompting || row.Turn,
		Nudged:           row.Silent,
		AgentDead:        row.Dead,
		AgentUnhealthy:   row.Unhealthy,
		AdapterDraining:  row.Draining,
		CannotStart:      row.Because == picket.CannotStart,
		ConversationLost: row.Because == picket.ConversationLost,
	}, staleAfter, now)
	// Ages are judged by the clock of the store, and people are shown that on the wall.
	h.UpdatedAt, h.LastPresenceAt = picket.Instant(row.Reported), picket.Instant(row.Reported)
	if row.Heartbeat != nil {
		h.LastPresenceAt = max(h.LastPresenceAt, picket.Instant(*row.Heartbeat))
	}
	if row.Active != nil {
		h.LastActivityAt = picket.Instant(*row.Active)
	}
	return picket.AgentSession{SessionID: row.ID, AgentID: row.Agent, AgentName: row.Name, Incarnation: row.Incarnation,
		Kind: picket.SessionKind(row.Kind), Preset: row.Preset, PromptID: row.Prompt, TaskID: row.Task,
		OpenPrompts: row.Open, Metered: row.Metered, StartedAt: picket.Instant(row.Started), Health: h}
}

// StopSession orders the adapter of a session to end it. The session has ended when the adapter reports
// it.
func (e *Engine) StopSession(ctx context.Context, by picket.Caller, sessionID string) error {
	if err := picket.CheckID("sessionId", "asession", sessionID); err != nil {
		return err
	}
	return e.run(ctx, "stop_session", sessionID, cmp.Or(by.Key, by.Actor), by.Idempotency.Key, by.Idempotency.Body,
		"stop_"+ulid.Make().String()).Err
}

// PendingCommands answers the adapter of an agent what waits for its sessions, and the commands that its heartbeats
// carry, apart from those that are known. If there is nothing, it waits. It can also wait for messages to the agent.
func (e *Engine) PendingCommands(ctx context.Context, by picket.Caller, agentID string,
	q picket.PendingQuery) (got picket.PendingCommands, err error) {
	if err := picket.CheckName("agent_id", agentID); err != nil {
		return got, err
	}
	wanted := []store.Topic{commandsTopic(agentID), agentTopic(agentID)}
	if q.MessagesAfter != nil {
		wanted = append(wanted, inboxTopic(agentID))
	}
	topics := e.records.Subscribe(wanted...)
	_, err = e.records.WaitUntil(ctx, topics, q.Wait, func() (done bool, again time.Duration, err error) {
		got, err = e.pendingNow(ctx, by, agentID, q)
		return len(got.Sessions)+len(got.Agent) > 0 || got.NewestMessage > 0, 0, err
	})
	return got, err
}

func (e *Engine) pendingNow(ctx context.Context, by picket.Caller, agentID string,
	q picket.PendingQuery) (picket.PendingCommands, error) {
	after := any("")
	if q.MessagesAfter != nil {
		after = *q.MessagesAfter
	}
	r := e.retryJudged(ctx, agentID, func() *reply {
		return e.run(ctx, "session_commands", agentID, by.Actor, boolArg(by.Operator), q.Incarnation,
			","+strings.Join(q.Known, ",")+",", after)
	})
	var v struct {
		Rows []struct {
			ID      string `reply:"id"`
			Command string `reply:"command"`
			Session string `reply:"session"`
			Text    string `reply:"text"`
			Left    int64  `reply:"left"` // ms
		} `reply:"rows"`
		Pending      map[string]string `reply:"pending"`
		Instructions string            `reply:"instructions"`
		Newest       int64             `reply:"newest"`
	}
	r.Decode(&v)
	got := picket.PendingCommands{Sessions: []picket.SessionCommand{}, Agent: r.commands(v.Pending, nil),
		Instructions: v.Instructions, NewestMessage: v.Newest}
	for _, row := range v.Rows {
		got.Sessions = append(got.Sessions, picket.SessionCommand{CommandID: row.ID, Command: row.Command,
			SessionID: row.Session, Text: row.Text, ExpiresInMs: row.Left})
		if c := &got.Sessions[len(got.Sessions)-1]; c.Command != picket.CommandStopSession {
			c.Namespace, c.ProxyURL = e.namespace, e.store.cfg.ProxyURL
		}
	}
	return got, r.Err
}

func commandsTopic(agentID string) store.Topic { return store.Topic("commands " + agentID) }
