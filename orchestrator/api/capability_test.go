package api_test

import (
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// openCapability is the capability of a prompt of an agent session that is open.
func (p *fixture) openCapability() string {
	p.t.Helper()
	ctx := p.t.Context()
	a, err := p.Register(ctx, root, picket.Registration{AgentID: "talker"})
	must(p.t, err)
	session := "asession_" + ulid.Make().String()
	must(p.t, p.ReportSessions(ctx, root, "talker", picket.SessionsReport{Incarnation: a.Incarnation,
		Sessions: []picket.SessionReport{{SessionID: session, Kind: picket.SessionResident, Preset: "exec",
			State: picket.SessionIdle}}}))
	prompt, err := p.PromptSession(ctx, root, session, picket.PromptRequest{Text: "hello"})
	must(p.t, err)
	secret := picket.NewSessionCapability("default", prompt.PromptID)
	_, err = p.CommandResult(ctx, root, "talker", prompt.PromptID, picket.CommandResult{Incarnation: a.Incarnation,
		State: picket.PromptAccepted, CapabilityHash: picket.SessionCapabilityHash(secret)})
	must(p.t, err)
	return secret.Reveal()
}
