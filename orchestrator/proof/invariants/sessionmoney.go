package invariants

import (
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// sessionMoneyFixture is the part of a scene that is about the money of agent sessions: a prompt with a call of a
// model under way, and one that has ended after another.
type sessionMoneyFixture struct {
	working, ended string // prompts
	day            string // the envelope from which both are carved
	modelCall      string // of working, under way
	payer          string // their agent
	incarnation    int64  // of it
}

func (s *inspectFixture) addSessionMoney() sessionMoneyFixture {
	s.t.Helper()
	id := "s-" + ulid.Make().String()
	a := s.MustRegister(s.t, picket.Registration{AgentID: id, Metadata: picket.RawJSON(`{"agent_name":"payer"}`)})
	session := "asession_" + ulid.Make().String()
	kit.OK(s.t, s.ReportSessions(s.Ctx, kit.AgentOwner, id, picket.SessionsReport{Incarnation: a.Incarnation,
		Sessions: []picket.SessionReport{{SessionID: session, Kind: picket.SessionResident, Preset: "exec",
			State: picket.SessionIdle}}}))
	work := func() (picket.LeaseCredential, picket.Reservation) {
		p, err := s.PromptSession(s.Ctx, kit.Operator, session, picket.PromptRequest{Text: "work"})
		kit.OK(s.t, err)
		held := picket.LeaseCredential{PromptID: p.PromptID, Secret: strings.Repeat("c", 64)}
		kit.OK(s.t, kit.SendResult(s.Ctx, s, kit.AgentOwner, id, p.PromptID, picket.CommandResult{
			Incarnation: a.Incarnation, State: picket.PromptAccepted, CapabilityHash: held.Secret}))
		call := kit.PaidCall("0.03")
		call.Tool, call.Reserve.Tokens = "llm_anthropic", 50
		return held, s.MustReserve(s.t, held, call)
	}
	ended, call := work()
	settlement := kit.DoneSettlement(call, "0.01")
	settlement.Cost = budget.Envelope{Tokens: 20, USD: kit.USD("0.01")}
	s.Fixture.MustSettle(s.t, settlement)
	kit.OK(s.t, kit.SendResult(s.Ctx, s, kit.AgentOwner, id, ended.PromptID,
		picket.CommandResult{Incarnation: a.Incarnation, State: picket.PromptAnswered}))
	working, call := work()
	day, err := s.Raw.HGet(s.Ctx, "pk:{default}:env:"+working.PromptID, "parent").Result()
	kit.OK(s.t, err)
	return sessionMoneyFixture{working.PromptID, ended.PromptID, day, call.CallID, id, a.Incarnation}
}

// EndSessions ends the sessions of a scene, so that the next scene has what their prompts have reserved.
func (s *inspectFixture) EndSessions() {
	s.t.Helper()
	kit.OK(s.t, s.ReportSessions(s.Ctx, kit.AgentOwner, s.payer, picket.SessionsReport{Incarnation: s.incarnation}))
}

// SessionMoneyDamages are those of the envelopes of prompts.
var SessionMoneyDamages = []damage{
	{Kind: "envelope_kept", what: "the prompt has ended", also: []string{"prompt_extra"},
		Plant: func(s *inspectFixture) { s.rawCommand("HSET", "prompt:"+s.working, "state", "answered") }},
	{Kind: "envelope_kept", what: "the prompt is gone", also: []string{"prompt_extra"}, Plant: func(s *inspectFixture) {
		s.rawCommand("DEL", "prompt:"+s.working)
	}},
	{Kind: "prompt_envelope_missing", what: "nobody would look at it", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "prompt-envelopes", s.working)
	}},
	{Kind: "prompt_envelope_extra", what: "of a prompt that has ended", Plant: func(s *inspectFixture) {
		s.rawCommand("ZADD", "prompt-envelopes", 1, s.ended)
	}},
	{Kind: "books_differ", what: "a prompt has money from nowhere", Plant: func(s *inspectFixture) {
		s.rawCommand("HINCRBY", "env:"+s.working, "available_u", 7)
	}},
	{Kind: "carved_differs", what: "a day has reserved more than its prompts", Plant: func(s *inspectFixture) {
		s.rawCommand("HINCRBY", "env:"+s.day, "carved_u", 7)
		s.rawCommand("HINCRBY", "env:"+s.day, "granted_u", 7)
		s.rawCommand("HINCRBY", "env:"+sessionsOf(s.day), "carved_u", 7)
		s.rawCommand("HINCRBY", "env:"+sessionsOf(s.day), "granted_u", 7)
	}},
	{Kind: "not_given_back", what: "a prompt that has ended keeps money", also: []string{"carved_differs"},
		Plant: func(s *inspectFixture) {
			s.rawCommand("HINCRBY", "env:"+s.ended, "granted_u", 7)
			s.rawCommand("HINCRBY", "env:"+s.ended, "available_u", 7)
		}},
	{Kind: "held_differs", what: "a call of a model is forgotten", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "calls:"+s.working, s.modelCall)
	}},
	{Kind: "hold_missing", what: "a call of a model is never settled", Plant: func(s *inspectFixture) {
		s.rawCommand("ZREM", "holds", s.working+":"+s.modelCall)
	}},
}

// sessionsOf is the envelope from which that of an agent name and a day is carved.
func sessionsOf(day string) string { return "sessions" + day[strings.LastIndex(day, ":"):] }
