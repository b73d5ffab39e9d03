package invariants

import (
	"errors"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// sessionFixture is the part of a scene that is about agent sessions. Both are of m1.
type sessionFixture struct {
	session     string // with two open prompts
	stopping    string // a session that is being stopped
	firstPrompt string // that the adapter gets
	nextPrompt  string
}

// A session and a prompt without a record.
const (
	missingSession = "asession_01JZZZZZZZZZZZZZZZZZZZZZZX"
	missingPrompt  = "prompt_01JZZZZZZZZZZZZZZZZZZZZZZZ"
)

func (s *inspectFixture) addSessions() sessionFixture {
	s.t.Helper()
	m := sessionFixture{session: "asession_" + ulid.Make().String(), stopping: "asession_" + ulid.Make().String()}
	s.reportSessions(m.session, m.stopping)
	prompt := func() string {
		p, err := s.PromptSession(s.Ctx, kit.OtherOperator, m.session, picket.PromptRequest{Text: "hello",
			TimeoutSeconds: kit.Ptr(3600)})
		kit.OK(s.t, err)
		return p.PromptID
	}
	kit.OK(s.t, s.StopSession(s.Ctx, kit.OtherOperator, m.stopping))
	m.firstPrompt, m.nextPrompt = prompt(), prompt()
	return m
}

// reportSessions reports the sessions of m1.
func (s *inspectFixture) reportSessions(ids ...string) {
	s.t.Helper()
	a, _, err := s.Agent(s.Ctx, "m1")
	kit.OK(s.t, err)
	report := picket.SessionsReport{Incarnation: a.Incarnation}
	for _, id := range ids {
		report.Sessions = append(report.Sessions, picket.SessionReport{SessionID: id, Kind: picket.SessionResident,
			Preset: "exec", State: picket.SessionIdle})
	}
	// An agent that another damage has ended reports no more, and has ended its sessions.
	if err := s.ReportSessions(s.Ctx, kit.OtherOperator, "m1", report); !errors.Is(err, picket.CodeAgentGone) {
		kit.OK(s.t, err)
	}
}

// SessionDamages are those of agent sessions and their prompts.
var SessionDamages = []damage{
	{Kind: "session_damaged", what: "a field is gone", Plant: func(s *inspectFixture) {
		s.rawCommand("HDEL", "asession:"+s.session, "owner")
	}},
	{Kind: "entry_orphaned", what: "session", Plant: rawDamage("ZADD", "asessions", farScore, missingSession)},
	{Kind: "entry_orphaned", what: "due session", Plant: rawDamage("ZADD", "wake-due", farScore, missingSession)},
	{Kind: "session_missing", what: "of its agent", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "asessions:m1", s.session)
	}},
	{Kind: "session_missing", what: "of its name", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "named-sessions:ann", s.session)
	}},
	{Kind: "session_missing", what: "never stopped", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "stopping:m1", s.stopping)
	}},
	{Kind: "session_missing", what: "never woken", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "wake-due", s.session)
	}},
	{Kind: "session_extra", what: "nobody stops it", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "stopping:m1", 1, s.session)
	}},
	{Kind: "session_extra", what: "it has ended", Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "asession:"+s.stopping, "ended", 1)
	}},
	{Kind: "session_score", what: "first of all", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "asessions:m1", 1, s.stopping)
	}},
	{Kind: "prompt_missing", what: "never offered", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "ready-prompts:m1", s.firstPrompt)
	}},
	{Kind: "prompt_extra", what: "two at once", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "ready-prompts:m1", farScore, s.nextPrompt)
	}},
	{Kind: "prompt_extra", what: "its record is lost", also: []string{"prompt_missing", "envelope_kept"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("DEL", "prompt:"+s.firstPrompt)
		}},
	{Kind: "prompt_extra", what: "of nobody", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "open-prompts:"+s.session, farScore, missingPrompt)
	}},
	{Kind: "prompt_extra", what: "it was accepted", Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "prompt:"+s.firstPrompt, "state", "accepted")
	}},
	{Kind: "prompt_score", what: "last of all", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "ready-prompts:m1", farScore, s.firstPrompt)
	}},
	{Kind: "wake_open", what: "a person's prompt", Plant: func(s *inspectFixture) {
		s.rawCommand("HSET", "session-wake:"+s.session, "under_way", s.firstPrompt)
	}},
	{Kind: "wake_open", what: "its record is lost",
		Plant: func(s *inspectFixture) {
			s.rawCommand("HSET", "session-wake:"+s.session, "under_way", missingPrompt)
		}},
	{Kind: "session_extra", what: "woken after its end", Plant: func(s *inspectFixture) {
		s.reportSessions(s.stopping)
		s.rawCommand("ZADD", "wake-due", farScore, s.session)
	}},
}
