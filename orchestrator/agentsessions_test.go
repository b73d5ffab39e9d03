package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// sessionAgent registers an agent that keeps sessions, and returns its incarnation.
func (f *fixture) sessionAgent(t *testing.T, id string) int64 {
	t.Helper()
	a, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: id, RoleID: "coder",
		Metadata: picket.RawJSON(`{"agent_name":"ann"}`)})
	kit.OK(t, err)
	return a.Incarnation
}

func newSessionID() string { return "asession_" + ulid.Make().String() }

func idleSession(id string) picket.SessionReport {
	return picket.SessionReport{SessionID: id, Kind: picket.SessionResumable, Preset: "claude",
		State: picket.SessionIdle}
}

// report reports a whole list of sessions, as the agent.
func (f *fixture) report(agent string, incarnation int64, sessions ...picket.SessionReport) error {
	return f.ReportSessions(f.Ctx, kit.Operator, agent,
		picket.SessionsReport{Incarnation: incarnation, Sessions: sessions})
}

// sessionEvents are the events of sessions so far, as "type reason".
func (f *fixture) sessionEvents(t *testing.T) (list []string) {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Limit: 1000})
	kit.OK(t, err)
	for _, e := range page.Events {
		if rest, ok := strings.CutPrefix(e.Type, "agent_session."); ok {
			list = append(list, strings.TrimSpace(rest+" "+e.Reason))
		}
	}
	return list
}

func (f *fixture) wantHealth(t *testing.T, id, want string) picket.AgentSession {
	t.Helper()
	s, err := f.AgentSession(f.Ctx, id)
	kit.OK(t, err)
	reason, detail := "-", "-"
	if s.Health.IneligibilityReason != nil {
		reason = string(*s.Health.IneligibilityReason)
	}
	if s.Health.DetailCode != nil {
		detail = string(*s.Health.DetailCode)
	}
	got := fmt.Sprintf("%s/%s/%s/%s", s.Health.State, s.Health.Health, reason, detail)
	if got != want {
		t.Errorf("health is %s, want %s", got, want)
	}
	return s
}

// The health of a session follows from its report, its agent and the time of the store.
func TestSessionHealthIsJudged(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		idle := kit.Ptr(int64(1500))
		s := idleSession(id)
		s.IdleMs = idle
		kit.OK(t, f.report("a1", n, s))
		got := f.wantHealth(t, id, "idle/healthy/-/-")
		if got.AgentName != "ann" || got.AgentID != "a1" || got.Incarnation != n || got.StartedAt.IsZero() ||
			got.Health.LastActivityAt.IsZero() || got.Health.UpdatedAt.IsZero() || !got.Health.EligibleForWake {
			t.Errorf("%+v", got)
		}
		for _, c := range []struct {
			change func(*picket.SessionReport)
			want   string
		}{
			{func(s *picket.SessionReport) {
				s.State, s.PromptID = picket.SessionPrompting, "prompt_"+ulid.Make().String()
			}, "prompting/healthy/session_prompt_active/-"},
			{func(s *picket.SessionReport) {
				s.State, s.PromptID, s.Silent = picket.SessionPrompting, "prompt_"+ulid.Make().String(), true
			}, "prompting/degraded/session_unhealthy/health_hung"},
			{func(s *picket.SessionReport) {
				s.State, s.DetachedBecause = picket.SessionDetached, picket.CannotStart
			}, "detached/degraded/session_not_attachable/-"},
			{func(s *picket.SessionReport) {}, "idle/healthy/-/-"},
		} {
			s := idleSession(id)
			c.change(&s)
			kit.OK(t, f.report("a1", n, s))
			f.wantHealth(t, id, c.want)
		}
		f.JumpStoreTime(t, 85*time.Second) // within two minutes of the report, the agent not yet unhealthy
		f.wantHealth(t, id, "idle/healthy/-/-")
		f.JumpStoreTime(t, 10*time.Second) // its agent is silent, and nobody has written that down
		f.wantHealth(t, id, "idle/stale/session_unhealthy/health_stale")
		f.JumpStoreTime(t, 40*time.Second)
		_, err := f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
			ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
		kit.OK(t, err)
		f.wantHealth(t, id, "idle/stale/session_unhealthy/health_stale") // the report is too old
		kit.OK(t, f.report("a1", n, idleSession(id)))
		f.wantHealth(t, id, "idle/healthy/-/-")
	})
}

// A prompt that the adapter has accepted is under way, before the adapter reports it and until it ends.
func TestAnAcceptedPromptIsUnderWay(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		p, err := f.PromptSession(f.Ctx, kit.Operator, id,
			picket.PromptRequest{Text: "hello", TimeoutSeconds: kit.Ptr(1)})
		kit.OK(t, err)
		f.wantHealth(t, id, "idle/healthy/-/-")
		kit.OK(t, f.result(n, p.PromptID, picket.PromptAccepted, ""))
		s := f.wantHealth(t, id, "prompting/healthy/session_prompt_active/-")
		if s.PromptID != p.PromptID || !s.Health.ActivePrompt || !s.Health.Attachable || s.Health.EligibleForWake {
			t.Errorf("%+v", s)
		}
		kit.OK(t, f.report("a1", n, idleSession(id))) // it was made before the prompt was accepted
		f.wantHealth(t, id, "prompting/healthy/session_prompt_active/-")
		f.JumpStoreTime(t, 31*time.Second) // nobody says any more what became of it
		f.wantHealth(t, id, "idle/healthy/-/-")
		p, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		kit.OK(t, f.result(n, p.PromptID, picket.PromptAccepted, ""))
		f.wantHealth(t, id, "prompting/healthy/session_prompt_active/-")
		kit.OK(t, f.result(n, p.PromptID, picket.PromptAnswered, ""))
		f.wantHealth(t, id, "idle/healthy/-/-")
	})
}

// A list that leaves a session out ends it. One that was never prompted leaves nothing behind.
func TestSessionsAreTheWholeList(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n := f.sessionAgent(t, "a1")
		one, two := newSessionID(), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(one), idleSession(two)))
		kit.OK(t, f.report("a1", n, idleSession(one), idleSession(two)))
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if stats.AgentSessions != 2 {
			t.Errorf("%d sessions are counted", stats.AgentSessions)
		}
		page, err := f.AgentSessions(f.Ctx, picket.AgentSessionQuery{Limit: 1})
		kit.OK(t, err)
		if len(page.Sessions) != 1 || page.Sessions[0].SessionID != two || page.Cursor == 0 {
			t.Fatalf("%+v", page)
		}
		page, err = f.AgentSessions(f.Ctx, picket.AgentSessionQuery{AgentID: "a1", Cursor: page.Cursor})
		kit.OK(t, err)
		if len(page.Sessions) != 1 || page.Sessions[0].SessionID != one || page.Cursor != 0 {
			t.Fatalf("%+v", page)
		}
		prompted, err := f.PromptSession(f.Ctx, kit.Operator, one, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		stopped := idleSession(one)
		stopped.State = picket.SessionStopped
		kit.OK(t, f.report("a1", n, stopped))
		kit.OK(t, f.report("a1", n, stopped)) // once more
		if got, want := f.sessionEvents(t), []string{"started", "started", "prompted", "ended stopped",
			"ended left_out"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		_, err = f.AgentSession(f.Ctx, two)
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantHealth(t, one, "stopped/dead/session_unhealthy/health_dead")
		p, err := f.SessionPrompt(f.Ctx, one, prompted.PromptID, 0, 0)
		kit.OK(t, err)
		if p.State != picket.PromptFailed || p.Reason != "session_ended" || p.EndedAt == nil {
			t.Errorf("the prompt of an ended session: %+v", p)
		}
		_, err = f.PromptSession(f.Ctx, kit.Operator, one, picket.PromptRequest{Text: "more"})
		kit.Refused(t, err, picket.CodeStateConflict)
		for _, key := range []string{"asession:" + one, "prompt:" + prompted.PromptID} {
			if left := f.Raw.PTTL(f.Ctx, "pk:{default}:"+key).Val(); left <= 0 || left > 7*24*time.Hour {
				t.Errorf("%s is kept for %s", key, left)
			}
		}
		kit.OK(t, f.report("a1", n, idleSession(one))) // the same conversation goes on
		f.wantHealth(t, one, "idle/healthy/-/-")
		if left := f.Raw.PTTL(f.Ctx, "pk:{default}:asession:"+one).Val(); left > 0 {
			t.Errorf("a session that goes on is deleted in %s", left)
		}
		if n := f.Raw.Exists(f.Ctx, "pk:{default}:asession:"+two).Val(); n != 0 {
			t.Error("a session that nobody prompted is kept")
		}
	})
}

// Only the present process of an agent speaks for its sessions, and only for its own.
func TestSessionsBelongToOneRegistration(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		m := f.sessionAgent(t, "a2")
		kit.Refused(t, f.report("a2", m, idleSession(id)), picket.CodeForbidden)
		kit.Refused(t, f.report("a1", n+1000, idleSession(id)), picket.CodeAgentGone)
		kit.Refused(t, f.ReportSessions(f.Ctx, picket.Caller{Actor: "key_other"}, "a1",
			picket.SessionsReport{Incarnation: n}), picket.CodeForbidden)
		kit.Refused(t, f.report("nobody", n), picket.CodeNotFound)
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		kit.Refused(t, kit.SendResult(f.Ctx, f, kit.Operator, "a2", p.PromptID,
			picket.CommandResult{Incarnation: m, State: picket.PromptAccepted}), picket.CodeNotFound)
		_, err = f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		f.wantHealth(t, id, "stopped/dead/session_unhealthy/health_dead") // at once
		kit.Refused(t, f.report("a2", m, idleSession(id)), picket.CodeForbidden)
		n2, err := f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		if n2 == 0 {
			t.Error("nothing ended the sessions of the agent")
		}
		strange, err := f.Register(f.Ctx, kit.AgentOwner, picket.Registration{AgentID: "a3"})
		kit.OK(t, err)
		kit.Refused(t, f.ReportSessions(f.Ctx, kit.AgentOwner, "a3", picket.SessionsReport{
			Incarnation: strange.Incarnation, Sessions: []picket.SessionReport{idleSession(id)}}), picket.CodeForbidden)
		kit.OK(t, f.report("a2", m, idleSession(id))) // the next worker of the same key
		f.wantHealth(t, id, "idle/healthy/-/-")
		kit.OK(t, f.report("a2", m))
		again := f.sessionAgent(t, "a1")
		kit.Refused(t, f.report("a1", n, idleSession(id)), picket.CodeAgentGone)
		_, err = f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
		kit.Refused(t, err, picket.CodeAgentGone)
		kit.Refused(t, kit.SendResult(f.Ctx, f, kit.Operator, "a1", p.PromptID,
			picket.CommandResult{Incarnation: n, State: picket.PromptAnswered}), picket.CodeAgentGone)
		kit.OK(t, f.report("a1", again, idleSession(id)))
		if got, want := f.sessionEvents(t), []string{"started", "prompted", "lost deregistered",
			"started", "ended left_out", "started"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		p, err = f.SessionPrompt(f.Ctx, id, p.PromptID, 0, 0)
		kit.OK(t, err)
		if p.State != picket.PromptFailed || p.Reason != "session_lost" {
			t.Errorf("the prompt of a lost session: %+v", p)
		}
	})
}

// An agent that registered again has lost the sessions of its earlier registration, even if nobody has
// written that down.
func TestSessionsOfAnEarlierRegistrationAreLost(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id, other := f.sessionAgent(t, "a1"), newSessionID(), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id), idleSession(other)))
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		_, err = f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		n = f.sessionAgent(t, "a1")
		kit.OK(t, f.report("a1", n, idleSession(id), idleSession(other)))
		_, err = f.RunChores(f.Ctx, 100)
		kit.OK(t, err)
		kit.OK(t, f.report("a1", n, idleSession(id), idleSession(other)))
		if got, want := f.sessionEvents(t), []string{"started", "started", "prompted", "lost re_registered",
			"lost re_registered", "started", "started"}; !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		for _, session := range []string{id, other} {
			f.wantHealth(t, session, "idle/healthy/-/-")
		}
		p, err = f.SessionPrompt(f.Ctx, id, p.PromptID, 0, 0)
		kit.OK(t, err)
		if p.State != picket.PromptFailed || p.Reason != "session_lost" {
			t.Errorf("%+v", p)
		}
	})
}

// An agent cannot fill the log with sessions that begin and end.
func TestNewSessionsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n := f.sessionAgent(t, "a1")
		many := func() (list []picket.SessionReport) {
			for range picket.MaxAgentSessions {
				list = append(list, idleSession(newSessionID()))
			}
			return list
		}
		kit.OK(t, f.report("a1", n, many()...))
		kit.OK(t, f.report("a1", n, many()...))
		kit.Refused(t, f.report("a1", n, idleSession(newSessionID())), picket.CodeRateLimited)
		if got := len(f.sessionEvents(t)); got != 3*picket.MaxAgentSessions {
			t.Errorf("%d events", got)
		}
		f.JumpStoreTime(t, 11*time.Second)
		kit.OK(t, f.report("a1", n, idleSession(newSessionID())))
	})
}

// The name of an agent is what it registered, if it can be a name.
func TestSessionsHaveTheNameOfTheirAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i, c := range []struct{ metadata, name string }{
			{`{"agent_name":"ann"}`, "ann"}, {`{"agent_name":7}`, ""}, {`{}`, ""}, {``, ""},
			{`{"agent_name":"a b"}`, ""}, {`{"agent_name":"-a"}`, ""}, {`{"agent_name":{"x":1}}`, ""},
		} {
			agent, id := fmt.Sprint("b", i), newSessionID()
			a, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: agent, RoleID: "coder",
				Metadata: picket.RawJSON(c.metadata)})
			kit.OK(t, err)
			kit.OK(t, f.report(agent, a.Incarnation, idleSession(id)))
			s, err := f.AgentSession(f.Ctx, id)
			kit.OK(t, err)
			if s.AgentName != c.name {
				t.Errorf("%s: the name is %q, want %q", c.metadata, s.AgentName, c.name)
			}
		}
	})
}

// After an adoption of the store a session is unknown until it is reported again.
func TestSessionsAreUnknownAfterAnAdoption(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		f.JumpStoreTime(t, time.Second)
		f.AdoptOnNewServer(t)
		f.wantHealth(t, id, "detached/unknown/session_unhealthy/health_unknown")
		kit.OK(t, f.report("a1", n, idleSession(id)))
		f.wantHealth(t, id, "idle/healthy/-/-")
	})
}

// What a report cannot say is refused before anything is stored.
func TestSessionReportsAreChecked(t *testing.T) {
	good := idleSession(newSessionID())
	kit.OK(t, picket.SessionsReport{Incarnation: 1, Sessions: []picket.SessionReport{good}}.Check())
	for field, change := range map[string]func(*picket.SessionReport){
		"/sessions/0/sessionId":       func(r *picket.SessionReport) { r.SessionID = "asession_1" },
		"/sessions/0/kind":            func(r *picket.SessionReport) { r.Kind = "other" },
		"/sessions/0/preset":          func(r *picket.SessionReport) { r.Preset = "a b" },
		"/sessions/0/state":           func(r *picket.SessionReport) { r.State = "asleep" },
		"/sessions/0/promptId":        func(r *picket.SessionReport) { r.State = picket.SessionPrompting },
		"/sessions/0/detachedBecause": func(r *picket.SessionReport) { r.State = picket.SessionDetached },
		"/sessions/0/idleMs":          func(r *picket.SessionReport) { r.IdleMs = kit.Ptr(int64(-1)) },
	} {
		r := good
		change(&r)
		err := picket.SessionsReport{Incarnation: 1, Sessions: []picket.SessionReport{r}}.Check()
		refusal, ok := picket.RefusalOf(err)
		if !ok || refusal.Facts["field"] != field || refusal.Remedy == "" {
			t.Errorf("%s: %v", field, err)
		}
	}
	twice := picket.SessionsReport{Incarnation: 1, Sessions: []picket.SessionReport{good, good}}
	if twice.Check() == nil || (picket.SessionsReport{}).Check() == nil ||
		(picket.SessionsReport{Incarnation: 1, Sessions: make([]picket.SessionReport, 65)}).Check() == nil {
		t.Error("a list that cannot be true was let through")
	}
	text, err := json.Marshal(good)
	kit.OK(t, err)
	if strings.Contains(string(text), "promptId") {
		t.Errorf("%s", text)
	}
}
