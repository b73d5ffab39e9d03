package branches

import (
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverSessions takes the ways of agent sessions and their prompts.
func coverSessions(t *testing.T, f *fixture) {
	a := f.MustRegister(t, picket.Registration{AgentID: "ses", Metadata: picket.RawJSON(`{"agent_name":"ann"}`)})
	other := f.MustRegister(t, picket.Registration{AgentID: "ses2"})
	id, by := "asession_"+ulid.Make().String(), kit.AgentOwner
	idle := picket.SessionReport{SessionID: id, Kind: picket.SessionResident, Preset: "exec", State: picket.SessionIdle,
		IdleMs: kit.Ptr(int64(5))}
	stopped := idle
	stopped.State = picket.SessionStopped
	report := func(list ...picket.SessionReport) {
		t.Helper()
		kit.OK(t, f.ReportSessions(f.Ctx, by, "ses", picket.SessionsReport{Incarnation: a.Incarnation, Sessions: list}))
	}
	prompt := func(seconds int) string {
		t.Helper()
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "x", TimeoutSeconds: &seconds})
		kit.OK(t, err)
		return p.PromptID
	}
	result := func(pid string, state picket.PromptState, output string, want picket.Code) {
		t.Helper()
		err := kit.SendResult(f.Ctx, f, by, "ses", pid,
			picket.CommandResult{Incarnation: a.Incarnation, State: state, Output: output})
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
	}
	poll := func(known ...string) {
		t.Helper()
		_, err := f.PendingCommands(f.Ctx, by, "ses", picket.PendingQuery{Incarnation: a.Incarnation, Known: known})
		kit.OK(t, err)
	}
	_, err := f.Tell(f.Ctx, kit.OtherOperator, "ses", picket.MessageRequest{Body: "x"})
	kit.OK(t, err)
	for _, after := range []int64{0, picket.MaxNumber} {
		_, err := f.PendingCommands(f.Ctx, by, "ses", picket.PendingQuery{Incarnation: a.Incarnation,
			MessagesAfter: &after})
		kit.OK(t, err)
	}
	report(idle)
	idle.IdleMs = nil
	report(idle)
	coverRefusedReports(t, f, a, other, idle)
	f.CallTwice(t, func() error {
		_, err := f.PromptSession(f.Ctx, kit.Idempotent("Q"), id, picket.PromptRequest{Text: "x"})
		return err
	})
	clash := kit.Idempotent("Q")
	clash.Idempotency.Body = strings.Repeat("d", 64)
	_, err = f.PromptSession(f.Ctx, clash, id, picket.PromptRequest{Text: "y"})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	page, err := f.SessionPrompts(f.Ctx, id, 0, 0)
	kit.OK(t, err)
	first := page.Prompts[0].PromptID
	poll()
	poll(first)
	ping, err := f.CommandAgent(f.Ctx, kit.OtherOperator, "ses", picket.AgentCommand{Command: picket.CommandPing})
	kit.OK(t, err)
	poll()
	poll(ping)
	result(first, picket.PromptAccepted, "a", "")
	result(first, picket.PromptAccepted, "a", "")
	kit.Refused(t, kit.SendResult(f.Ctx, f, by, "ses", first, picket.CommandResult{Incarnation: a.Incarnation,
		State: picket.PromptAccepted, Output: "z", Offset: 7}), picket.CodeStateConflict)
	kit.Refused(t, kit.SendResult(f.Ctx, f, by, "ses", first, picket.CommandResult{Incarnation: a.Incarnation,
		State: picket.PromptAccepted, Output: "z"}), picket.CodeStateConflict)
	second := prompt(600)
	kept := "pk:{default}:kept-bytes:" + by.Actor
	kit.OK(t, f.Raw.HSet(f.Ctx, kept, "total", 1<<40).Err())
	result(first, picket.PromptAnswered, "abü", "")
	_, err = f.SessionPrompt(f.Ctx, id, first, 3, 0)
	kit.OK(t, err)
	result(first, picket.PromptAnswered, "", "")
	result(first, picket.PromptFailed, "", picket.CodeStateConflict)
	kit.Refused(t, kit.SendResult(f.Ctx, f, by, "ses2", second, picket.CommandResult{Incarnation: other.Incarnation,
		State: picket.PromptAccepted}), picket.CodeNotFound)
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:prompt:"+first).Err()) // as if its week were over
	kit.OK(t, f.Raw.HSet(f.Ctx, kept, "total", 1<<40).Err())
	result(second, picket.PromptRefused, "", "")
	coverOverdue(t, f, prompt, result, poll, func() { report(idle) })
	_, err = f.SessionPrompts(f.Ctx, id, 0, 1)
	kit.OK(t, err)
	_, err = f.SessionPrompts(f.Ctx, id, page.Cursor, 0)
	kit.OK(t, err)
	_, err = f.SessionPrompts(f.Ctx, "asession_"+ulid.Make().String(), 0, 0)
	kit.Refused(t, err, picket.CodeNotFound)
	for _, pid := range []string{first, "prompt_" + ulid.Make().String()} {
		_, _ = f.SessionPrompt(f.Ctx, id, pid, 0, 0)
	}
	_, err = f.SessionPrompt(f.Ctx, "asession_"+ulid.Make().String(), first, 0, 0)
	kit.Refused(t, err, picket.CodeNotFound)
	for _, q := range []picket.AgentSessionQuery{{}, {AgentID: "ses", Limit: 1}, {Cursor: 1}} {
		_, err = f.AgentSessions(f.Ctx, q)
		kit.OK(t, err)
	}
	_, err = f.AgentSession(f.Ctx, "asession_"+ulid.Make().String())
	kit.Refused(t, err, picket.CodeNotFound)
	for range picket.MaxOpenPrompts {
		prompt(600)
	}
	_, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "x"})
	kit.Refused(t, err, picket.CodeStateConflict)
	f.CallTwice(t, func() error { return f.StopSession(f.Ctx, kit.Idempotent("Z"), id) })
	kit.OK(t, f.StopSession(f.Ctx, kit.Operator, id))
	clash = kit.Idempotent("Z")
	clash.Idempotency.Body = strings.Repeat("d", 64)
	kit.Refused(t, f.StopSession(f.Ctx, clash, id), picket.CodeIdempotencyConflict)
	got, err := f.PendingCommands(f.Ctx, by, "ses", picket.PendingQuery{Incarnation: a.Incarnation})
	kit.OK(t, err)
	for _, c := range got.Sessions {
		poll(c.CommandID)
	}
	_, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "x"})
	kit.Refused(t, err, picket.CodeStateConflict)
	report(stopped)
	report(stopped)
	kit.Refused(t, f.StopSession(f.Ctx, kit.Operator, id), picket.CodeStateConflict)
	_, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "x"})
	kit.Refused(t, err, picket.CodeStateConflict)
	kit.Refused(t, f.StopSession(f.Ctx, kit.Operator, "asession_"+ulid.Make().String()), picket.CodeNotFound)
	_, err = f.AgentSession(f.Ctx, id)
	kit.OK(t, err)
	idle.SessionID = id
	kit.OK(t, f.ReportSessions(f.Ctx, by, "ses2", picket.SessionsReport{Incarnation: other.Incarnation,
		Sessions: []picket.SessionReport{idle}})) // it goes on with another agent of the key
	kit.OK(t, f.ReportSessions(f.Ctx, by, "ses2", picket.SessionsReport{Incarnation: other.Incarnation}))
	report(idle) // and with the first
	_, err = f.PromptSession(f.Ctx, kit.Operator, "asession_"+ulid.Make().String(), picket.PromptRequest{Text: "x"})
	kit.Refused(t, err, picket.CodeNotFound)
	prompt(600)
	for range picket.MaxPromptsListed {
		result(prompt(600), picket.PromptAnswered, "", "")
	}
	held := prompt(3000)
	for range picket.MaxPromptsListed {
		result(prompt(3000), picket.PromptAnswered, "", "")
	}
	result(held, picket.PromptAnswered, "", "")
	idle.SessionID = "asession_" + ulid.Make().String()
	report(idle)
	report()
	report(idle)
	_, err = f.Deregister(f.Ctx, by, "ses", nil)
	kit.OK(t, err)
	again := f.MustRegister(t, picket.Registration{AgentID: "ses"})
	kit.OK(t, f.ReportSessions(f.Ctx, by, "ses", picket.SessionsReport{Incarnation: again.Incarnation,
		Sessions: []picket.SessionReport{idle}}))
	_, err = f.RunChores(f.Ctx, 1000)
	kit.OK(t, err)
	_, err = f.Deregister(f.Ctx, by, "ses", nil)
	kit.OK(t, err)
	_, err = f.RunChores(f.Ctx, 1000)
	kit.OK(t, err)
	_, err = f.AgentSession(f.Ctx, id)
	kit.OK(t, err)
	kit.Refused(t, kit.SendResult(f.Ctx, f, by, "ses", first, picket.CommandResult{Incarnation: a.Incarnation,
		State: picket.PromptAccepted}), picket.CodeAgentGone)
	_, err = f.PendingCommands(f.Ctx, by, "ses", picket.PendingQuery{Incarnation: a.Incarnation})
	kit.Refused(t, err, picket.CodeAgentGone)
}

func coverRefusedReports(t *testing.T, f *fixture, a, other picket.Agent, idle picket.SessionReport) {
	for _, r := range []struct {
		agent       string
		incarnation int64
		list        []picket.SessionReport
		want        picket.Code
	}{
		{"ses2", other.Incarnation, []picket.SessionReport{idle}, picket.CodeForbidden},
		{"ses", a.Incarnation + 100, nil, picket.CodeAgentGone},
		{"nobody-ses", 1, nil, picket.CodeNotFound},
	} {
		kit.Refused(t, f.ReportSessions(f.Ctx, kit.AgentOwner, r.agent,
			picket.SessionsReport{Incarnation: r.incarnation, Sessions: r.list}), r.want)
	}
	for range 3 { // the third time is too much, and no agent has a name
		var list []picket.SessionReport
		for range picket.MaxAgentSessions {
			idle.SessionID = "asession_" + ulid.Make().String()
			list = append(list, idle)
		}
		_ = f.ReportSessions(f.Ctx, kit.AgentOwner, "ses2",
			picket.SessionsReport{Incarnation: other.Incarnation, Sessions: list})
	}
}

// coverOverdue lets prompts pass their deadlines before and after they were accepted.
func coverOverdue(t *testing.T, f *fixture, prompt func(int) string,
	result func(string, picket.PromptState, string, picket.Code), poll func(...string), report func()) {
	late := prompt(1)
	f.JumpStoreTime(t, 2*time.Second)
	result(late, picket.PromptAccepted, "", picket.CodeStateConflict)
	poll()
	poll()
	hung, next := prompt(1), prompt(600)
	result(hung, picket.PromptAccepted, "", "")
	f.JumpStoreTime(t, 33*time.Second)
	result(hung, picket.PromptAnswered, "", picket.CodeStateConflict)
	report()
	result(next, picket.PromptAccepted, "", "")
	short := prompt(1)
	f.JumpStoreTime(t, 2*time.Second)
	last := prompt(600) // sees that the one before it is over, and that another is under way
	result(short, picket.PromptAnswered, "", picket.CodeStateConflict)
	result(next, picket.PromptAnswered, "", "")
	result(last, picket.PromptAnswered, "", "")
}
