//go:build linux

package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
)

// talks leaves an agent with a session: prompts that were answered, one that was not, and one whose answer
// goes on.
func (s *consoleFixture) talks() {
	s.w.t.Helper()
	s.session = s.keepSession("talker", "reviewer")
	first := s.promptSession(s.session, "Which of the open reviews is the oldest?")
	s.session.say(first, picket.CommandResult{State: picket.PromptAnswered,
		Output: s.say("answer", "The oldest is “Guard Close with a mutex”.\n\nIt waits since Tuesday.\n")})
	failed := s.promptSession(s.session, s.say("prompt", "Summarize it."))
	s.session.say(failed, picket.CommandResult{State: picket.PromptFailed,
		Reason: s.say("prompt reason", "agent_ended: exit status 1")})
	open := s.promptSession(s.session, "Then list what is missing in its tests.")
	s.session.say(open, picket.CommandResult{State: picket.PromptAccepted,
		Output: s.say("answer", "1. Close twice in a row.\n2. Close while Put waits.\n")})
	s.promptSession(s.session, "And write them down.")
	s.session.report(s.w, picket.SessionPrompting, open)
}

// keptSession is a session that a test keeps in place of an adapter.
type keptSession struct {
	w           *testEnv
	agent, id   string
	incarnation int64
}

func (s *consoleFixture) keepSession(agent, name string) *keptSession {
	s.w.t.Helper()
	var made picket.Agent
	s.w.into(&made, http.MethodPost, "/agents", map[string]any{"agent_id": agent, "role_id": "coder",
		"metadata": map[string]any{"agent_name": name}})
	k := &keptSession{s.w, agent, "asession_" + ulid.Make().String(), made.Incarnation}
	k.report(s.w, picket.SessionIdle, "")
	return k
}

func (k *keptSession) path() string { return "/console/sessions/" + k.id }

func (k *keptSession) report(w *testEnv, state picket.SessionState, prompt string) {
	w.t.Helper()
	idle := int64(1500)
	one := picket.SessionReport{SessionID: k.id, Kind: picket.SessionResumable, Preset: "claude", State: state,
		PromptID: prompt, IdleMs: &idle}
	w.into(&struct{}{}, http.MethodPut, "/agents/"+k.agent+"/sessions",
		picket.SessionsReport{Incarnation: k.incarnation, Sessions: []picket.SessionReport{one}})
}

func (s *consoleFixture) promptSession(k *keptSession, text string) (prompt string) {
	s.w.t.Helper()
	var made picket.SessionPrompt
	s.w.into(&made, http.MethodPost, "/agent-sessions/"+k.id+"/prompts", picket.PromptRequest{Text: text})
	return made.PromptID
}

func (k *keptSession) say(prompt string, result picket.CommandResult) {
	k.w.t.Helper()
	result.Incarnation = k.incarnation
	k.w.into(&struct{}{}, http.MethodPost, "/agents/"+k.agent+"/commands/"+prompt+"/result", result)
}

// newest is the prompt of a session that was sent last.
func (k *keptSession) newest() picket.SessionPrompt {
	k.w.t.Helper()
	var page picket.PromptPage
	k.w.into(&page, http.MethodGet, "/agent-sessions/"+k.id+"/prompts", nil)
	if len(page.Prompts) == 0 {
		k.w.t.Fatal("the session has no prompt")
	}
	return page.Prompts[0]
}

// A person prompts a session and sees the answer as the agent writes it, without a new page. What they
// type for the next prompt stays.
func talk(t *testing.T, s *consoleFixture) {
	k := s.keepSession("talker-"+s.role(), "ann")
	b := s.signedInTab(k.path())
	b.reads("#prompts", "No prompts.")
	b.fill("#text", "How far are you?")
	b.click("#ask button.primary")
	b.reads("#prompts", "How far are you?")
	b.reads("#prompts", "has not begun")
	b.live()
	b.mark()
	b.fill("#text", "and th")
	prompt := k.newest().PromptID
	const first = "Half of it. <img src=x onerror=\"window.__xss='live'\">\n"
	k.say(prompt, picket.CommandResult{State: picket.PromptAccepted, Output: first})
	b.reads("pre.answer", "onerror=") // as text
	b.reads("#prompts", "is answering")
	k.say(prompt, picket.CommandResult{State: picket.PromptAccepted, Output: "Now \u202emore.\n", Offset: len(first)})
	b.reads("pre.answer", "\nNow more.")
	k.say(prompt, picket.CommandResult{State: picket.PromptAnswered, Output: "Done.\n",
		Offset: len(first) + len("Now \u202emore.\n")})
	b.reads("#prompts", "answered")
	b.reads("pre.answer", "Now more.\nDone.")
	b.until("the answer is not followed any more", `!document.querySelector("[data-log]")`)
	b.press("e", "n", "?")
	b.until("what was typed", `document.querySelector("#text").value === "and then?"`)
	b.until("the same page", samePage)
	k.report(s.w, picket.SessionStopped, "")
	b.reads("#health", "stopped")
}

// The page of an agent shows a message of another agent as it comes, without a new page. Its event names the sender.
func messages(t *testing.T, s *consoleFixture) {
	k := s.keepSession("hearer-"+s.role(), "hal")
	l := s.leased(s.role(), "sender-"+s.role(), "Tells another agent something")
	b := s.signedInTab("/console/agents/" + k.agent)
	b.live()
	b.mark()
	const text = "The tests pass now."
	began := time.Now()
	s.with(l, "/v1/tools/send_message", map[string]any{"to": k.agent, "body": text})
	b.reads("#messages", text)
	if took := time.Since(began); took > 20*time.Second { // every page is read again after half a minute
		t.Errorf("the message came after %v", took)
	}
	b.until("the same page", samePage)
}

// The findings come while somebody types, at their lines, and go when the text is right. Saving by a second
// person shows both texts.
func editPolicy(t *testing.T, s *consoleFixture) {
	page := "/console/policies/ed-" + s.role()
	b := s.signedInTab(page)
	b.forgive("status of 409")
	b.live()
	b.mark()
	b.fill("#body", "---\nmodel: large\n---\nLook at your inbox.\n")
	b.reads("#check", "heartbeat_forbidden_field")
	b.reads(".numbers b.error", "2")
	b.until("five numbers", `document.querySelector(".numbers").textContent.trim().split("\n").length === 5`)
	b.click("#check [data-goto]")
	b.until("the line is selected", `(f => document.activeElement === f && f.value.slice(f.selectionStart, `+
		`f.selectionEnd) === "model: large")(document.querySelector("#body"))`)
	b.press("s", "u", "m", "m", "a", "r", "y", ":", " ", "x")
	b.reads("#check", "The text is a valid policy.")
	b.until("no finding", `!document.querySelector(".findings, .numbers b")`)
	b.until("the same page", samePage)
	b.click("#editor button.primary")
	b.reads("main", "Saved. This is the wake policy now.")
	b.fill("#body", "\nMine.\n")
	s.writePolicy("ed-"+s.role(), "Theirs.\n")
	b.reads(".held", "Somebody has changed this policy while you were writing.")
	b.until("what was typed", `document.querySelector("#body").value.includes("Mine.")`)
	b.click("#editor button.primary")
	b.reads("#theirs", "Theirs.")
	b.reads("#theirs ins", "Mine.")
	b.until("what was typed", `document.querySelector("#body").value.includes("Mine.")`)
	b.click("#editor button.primary")
	b.reads("main", "Saved. This is the wake policy now.")
}

// writePolicy writes a policy in place of the one that is there.
func (s *consoleFixture) writePolicy(name, body string) {
	s.w.t.Helper()
	url := s.w.url + "/api/agents/" + name + "/heartbeat"
	var was picket.WakePolicy
	decodeInto(s.w.t, s.w.call(s.w.key, http.MethodGet, url, nil).body, &was)
	got := s.w.call(s.w.key, http.MethodPut, url, picket.PolicyWrite{Body: body,
		PolicyCondition: picket.PolicyCondition{ExpectedDigest: was.Digest}})
	if got.status != http.StatusOK {
		s.w.t.Fatalf("write the policy of %s: %d %s", name, got.status, got.body)
	}
}

// plans leaves wake policies.
func (s *consoleFixture) plans() {
	s.w.t.Helper()
	summary := string(quoted(s.say("policy summary", "Look at the open reviews.")))
	head := "---\nversion: 1\nsummary: " + summary + "\npreferences:\n  min_interval: 30m\n" +
		"  active_hours:\n  - {timezone: Europe/Berlin, start: \"08:00\", end: \"20:00\"}\n" +
		"  quiet_windows:\n  - {timezone: Europe/Berlin, start: \"12:00\", end: \"13:00\"}\n" +
		"  context:\n    include: [self, task, inbox_summary]\n---\n"
	text := s.say("policy", "Read your messages first. Then look at the reviews that wait.") + "\n"
	s.writePolicy("reviewer", "Look at the open reviews.\n")
	s.writePolicy("reviewer", head+text)
	s.writePolicy("coder", "---\nenabled: false\n---\n")
	for range 2 { // it is refused, and counted in one row
		s.w.call(s.w.key, http.MethodPost, s.w.url+"/api/agents/reviewer/heartbeat/wake",
			picket.WakeRequest{SessionID: "asession_01JZZZZZZZZZZZZZZZZZZZZZZZ"})
	}
}
