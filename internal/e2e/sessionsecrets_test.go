//go:build linux

package e2e

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// openAgent hands each prompt with its capability to the test, and says them on stderr. Then it answers, or it ends
// without an answer.
const openAgent = `dir=${0%/*}
while IFS= read -r line; do
	printf '%s\n' "$line" >"$dir/line"
	printf '%s\n' "$line" >&2
	id=$(printf '%s' "$line" | sed 's/.*"promptId":"\([^"]*\)".*/\1/')
	read end <"$dir/go"
	[ "$end" = on ] || exit 3
	printf '{"type":"answer","promptId":"%s","text":"canary of the answer"}\n' "$id"
done
`

// The texts of this test, by what they are. None of them belongs into a log, an event, a metric or an error.
var sessionTexts = map[string]string{
	"the text of a prompt": "canary of the prompt",
	"an answer":            "canary of the answer",
	"a message":            "canary of the message",
	"the instructions":     "canary of the instructions",
	"the wake policy":      "canary of the policy",
	"the prompt of a wake": "Picket woke this session",
}

// toldSession is a server and an adapter whose session is prompted and woken at log level debug.
type toldSession struct {
	*secretScanner
	line     *fifo // prompts, as the agent gets them
	session  string
	prompts  int    // that the agent has had
	operator string // key of a person
}

// A session is prompted by a person, woken by one and by the scheduler, and goes wrong in between. Its capabilities
// and its texts stand in no log line, event, error or metric. The rows of its wakes name nobody and no directory.
func TestNoTextOfASessionIsTold(t *testing.T) {
	w := newTestEnv(t)
	w.put("agent.sh", openAgent)
	w.put("config/picket/picket.yaml", "wake: {wake_cooldown: 1s, min_interval: 1s}\nagents:\n  coder:\n"+
		"    session: {max: 1}\n    unmetered: true\n    launch: {command: [sh, "+w.path("agent.sh")+"]}\n")
	w.put("data/picket/agents/coder/AGENT.md", sessionTexts["the instructions"]+"\n")
	s := &toldSession{secretScanner: &secretScanner{testEnv: w, secrets: map[string]string{}}, line: w.fifo("line")}
	w.fifo("go")
	server := w.up("--log-level", "debug")
	var person picket.NewKey
	w.into(&person, http.MethodPost, "/keys",
		picket.KeyRequest{Name: "canary-of-a-person", Scopes: []picket.Scope{picket.ScopeOperator}})
	s.operator = person.Key.Reveal()
	s.secrets["the key of a person"] = s.operator
	for what, text := range sessionTexts {
		s.secrets[what] = text
	}
	adapter := w.start("adapter", "adapter", "--as", "coder", "--agent-id", "teller", "--log-level", "debug")
	w.register("other")
	s.awaitIdle()
	w.writePolicy("coder", sessionTexts["the wake policy"]+"\n")

	s.tell(s.secrets["a message"])
	held := s.takePrompt(s.promptByPerson, "the text of a prompt")
	s.callTools(held)
	s.answerPrompt(picket.PromptAnswered)
	s.takePrompt(s.wakeByPerson, "the prompt of a wake")
	s.give("go")
	s.awaitIdle()
	s.takePrompt(s.promptByPerson, "the text of a prompt")
	s.answerPrompt(picket.PromptFailed)
	s.takePrompt(s.wakeByScheduler, "the wake policy")
	s.give("go")
	s.awaitIdle()
	s.provokeErrors(held.Capability)

	for _, path := range []string{"/api/v1/events?limit=1000", "/api/v1/audit?limit=200", "/metrics",
		"/api/v1/agents/teller", "/api/v1/agent-sessions"} {
		s.ask(w.key, http.MethodGet, path, nil)
	}
	s.readWakes(person.KeyID)
	w.events.stop()
	w.events = nil
	server.signal(syscall.SIGQUIT) // every goroutine says where it is
	server.wait()
	adapter.signal(syscall.SIGQUIT)
	adapter.wait()
	each(w.path("out"), func(path string, text []byte) { s.scan(filepath.Base(path), text) })
	s.readFiles()
	t.Logf("%d texts and secrets looked for in %d places, %d bytes", len(s.secrets), s.places, s.bytes)
}

func (s *toldSession) awaitIdle() {
	s.t.Helper()
	s.until("the session is idle", func() bool {
		var page picket.AgentSessionPage
		s.into(&page, http.MethodGet, "/agent-sessions", nil)
		if len(page.Sessions) != 1 || !page.Sessions[0].Health.EligibleForWake {
			return false
		}
		s.session = page.Sessions[0].SessionID
		return true
	})
}

// givenPrompt is what the agent reads of a prompt.
type givenPrompt struct {
	Text         string `json:"text"`
	Capability   string `json:"capability"`
	ContextURL   string `json:"contextUrl"`
	Instructions string `json:"instructions"`
}

// takePrompt sends a prompt, and answers what the agent gets of it. Its text has one of the texts of the test.
func (s *toldSession) takePrompt(send func(), text string) (got givenPrompt) {
	s.t.Helper()
	send()
	line := s.line.take()
	s.must(json.Unmarshal([]byte(line), &got))
	if !strings.HasPrefix(got.Capability, picket.SessionCapabilityPrefix) ||
		!strings.Contains(got.Text, s.secrets[text]) ||
		!strings.Contains(got.Instructions, s.secrets["the instructions"]) {
		s.t.Fatalf("the agent gets %s", line)
	}
	s.prompts++
	s.secrets[fmt.Sprint("capability ", s.prompts)] = got.Capability
	return got
}

func (s *toldSession) promptByPerson() {
	s.t.Helper()
	got := s.call(s.operator, http.MethodPost, s.url+"/api/v1/agent-sessions/"+s.session+"/prompts",
		picket.PromptRequest{Text: s.secrets["the text of a prompt"]})
	if got.status != http.StatusCreated {
		s.t.Fatalf("a prompt: %d %s", got.status, got.body)
	}
}

func (s *toldSession) wakeByPerson() {
	s.t.Helper()
	s.until("a wake is sent", func() bool {
		var d picket.WakeDecision
		got := s.ask(s.operator, http.MethodPost, "/api/agents/coder/heartbeat/wake", map[string]string{})
		s.must(json.Unmarshal(got.body, &d))
		return d.Result == picket.WakeResultSent
	})
}

// tell has a person send a message to the agent.
func (s *toldSession) tell(body string) {
	s.t.Helper()
	got := s.ask(s.operator, http.MethodPost, "/api/v1/agents/teller/messages", map[string]string{"body": body})
	if got.status/100 != 2 {
		s.t.Fatalf("a message: %d %s", got.status, got.body)
	}
}

// wakeByScheduler sends a message, and waits for the wake that follows within a cycle of the scheduler.
func (s *toldSession) wakeByScheduler() {
	s.t.Helper()
	s.awaitIdle()
	s.tell(s.secrets["a message"] + ", once more")
	woken := func() bool {
		var page picket.WakePage
		got := s.ask(s.operator, http.MethodGet, "/api/agents/coder/heartbeat/wakes", nil)
		s.must(json.Unmarshal(got.body, &page))
		return len(page.Wakes) > 0 && page.Wakes[0].Source == picket.WakeSourceScheduler &&
			page.Wakes[0].Result == picket.WakeResultSent
	}
	for deadline := time.Now().Add(3 * waitLimit); !woken(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("the scheduler sends no wake: %s", s.ok("agent", "heartbeat", "wakes", "coder"))
		}
	}
}

// answerPrompt lets the agent answer, or end without an answer.
func (s *toldSession) answerPrompt(as picket.PromptState) {
	s.t.Helper()
	for _, c := range s.fifos {
		if c.name == "go" {
			c.give(map[picket.PromptState]string{picket.PromptAnswered: "on", picket.PromptFailed: "end"}[as])
		}
	}
	s.until("the prompt ends", func() bool {
		var page picket.PromptPage
		s.into(&page, http.MethodGet, "/agent-sessions/"+s.session+"/prompts", nil)
		s.scan("the reason of a prompt", []byte(page.Prompts[0].Reason))
		return page.Prompts[0].State == as
	})
	s.awaitIdle()
}

// callTools uses a capability while its prompt is open: as it is meant, and as it is refused.
func (s *toldSession) callTools(held givenPrompt) {
	s.t.Helper()
	proxy := strings.TrimSuffix(held.ContextURL, "/agent/context")
	tool := func(bearer, name string, args any) answer {
		return s.call(bearer, http.MethodPost, proxy+"/v1/tools/"+name, args)
	}
	var read picket.MessagesRead
	got := tool(held.Capability, "read_messages", struct{}{})
	s.must(json.Unmarshal(got.body, &read))
	if len(read.Messages) != 1 || read.Messages[0].Body != s.secrets["a message"] {
		s.t.Fatalf("the agent reads %d %s", got.status, got.body)
	}
	for name, args := range map[string]any{"get_context": struct{}{}, "next_task": struct{}{},
		"send_message": map[string]string{"to": "other", "body": s.secrets["a message"]}} {
		got := tool(held.Capability, name, args)
		if got.status != http.StatusOK {
			s.t.Errorf("%s: %d %s", name, got.status, got.body)
		}
		s.scan(name, got.body)
	}
	forged := held.Capability[:len(held.Capability)-4] + "AAAA"
	for _, bearer := range []string{held.Capability, forged, held.Capability + "x"} {
		for name, args := range map[string]any{
			"sql": map[string]string{"statement": s.secrets["a message"]}, "report_progress": struct{}{},
			"send_message": map[string]string{"to": "nobody", "body": s.secrets["a message"] + " " + held.Capability},
			"get_context":  map[string]string{"x": held.Capability},
		} {
			s.scan("a refused "+name, tool(bearer, name, args).body)
		}
		s.scan("a refused call of a model", s.call(bearer, http.MethodPost, proxy+"/llm/v1/messages",
			map[string]string{"model": s.secrets["a message"]}).body)
		s.ask(bearer, http.MethodGet, "/api/v1/agent-sessions", nil)
		s.ask(bearer, http.MethodPost, "/api/agents/coder/heartbeat/wake", map[string]string{})
	}
}

// provokeErrors sends what is refused, with a text or a secret in it.
func (s *toldSession) provokeErrors(capability string) {
	s.t.Helper()
	long := strings.Repeat(s.secrets["the text of a prompt"], 1000)
	prompts := "/api/v1/agent-sessions/" + s.session + "/prompts"
	for _, body := range []any{map[string]string{"text": long}, map[string]string{"txet": s.secrets["a message"]},
		[]string{s.secrets["the text of a prompt"]}, map[string]string{"text": capability}} {
		s.ask(s.operator, http.MethodPost, prompts+"x", body)
		s.ask(s.operator, http.MethodPost, "/api/v1/agent-sessions/asession_01JZZZZZZZZZZZZZZZZZZZZZZZ/prompts", body)
		s.ask(s.operator, http.MethodPost, "/api/v1/agents/teller/messages", body)
	}
	for _, text := range []string{
		"---\nversion: 1\nlease: " + s.secrets["the wake policy"] + "\n---\n",
		"---\nversion: " + s.secrets["the wake policy"] + "\n---\n",
		"---\n" + s.secrets["the wake policy"],
		"token: " + capability + "\n",
	} {
		for _, ask := range []struct{ method, path string }{{http.MethodPut, ""}, {http.MethodPost, "/validate"}} {
			got := s.call(s.operator, ask.method, s.url+"/api/agents/coder/heartbeat"+ask.path,
				map[string]string{"body": text, "expected_digest": "sha256:" + strings.Repeat("0", 64)})
			s.nameless("the diagnostics of "+ask.method, got.body)
			if bytes.Contains(got.body, []byte(capability)) {
				s.t.Errorf("a capability is answered: %d %s", got.status, got.body)
			}
		}
	}
}

// readFiles has the server refuse files beside its policies, and looks at what it says about them.
func (s *toldSession) readFiles() {
	s.t.Helper()
	capability := s.secrets["capability 1"]
	s.put("data/picket/agents/coder/AGENT.md", s.secrets["the instructions"]+" "+capability+"\n")
	s.put("data/picket/agents/coder/HEARTBEAT.md", s.secrets["the wake policy"]+" "+capability+"\n")
	server := s.up("--log-level", "debug")
	server.says("AGENT.md")
	got := s.ask(s.operator, http.MethodGet, "/api/agents/coder/heartbeat/status", nil)
	if !bytes.Contains(got.body, []byte("AGENT.md")) {
		s.t.Errorf("the status says nothing of the files: %s", got.body)
	}
	s.nameless("the status", got.body)
	s.ask(s.operator, http.MethodPost, "/api/agents/coder/heartbeat/wake", map[string]string{})
	s.ask(s.operator, http.MethodGet, "/api/v1/events?limit=1000", nil)
	s.scan("the log of the next server", []byte(server.err.text()))
	for _, name := range []string{"AGENT.md", "HEARTBEAT.md"} {
		s.must(os.Remove(s.path("data/picket/agents/coder", name)))
	}
	s.events.stop()
	s.events = nil
}

// nameless checks that a text names no directory of this machine.
func (s *toldSession) nameless(where string, text []byte) {
	s.t.Helper()
	if bytes.Contains(text, []byte(s.dir)) {
		s.t.Errorf("%s name a directory: %s", where, text)
	}
}

// readWakes checks what the rows of the wakes show.
func (s *toldSession) readWakes(person string) {
	s.t.Helper()
	got := s.ask(s.operator, http.MethodGet, "/api/agents/coder/heartbeat/wakes?limit=100", nil)
	shown := s.ok("agent", "heartbeat", "wakes", "coder") + s.ok("agent", "heartbeat", "wakes", "coder", "--json")
	sources := map[picket.WakeSource]bool{}
	var page picket.WakePage
	s.must(json.Unmarshal(got.body, &page))
	for _, r := range page.Wakes {
		sources[r.Source] = sources[r.Source] || r.Result == picket.WakeResultSent
	}
	if !sources[picket.WakeSourceManual] || !sources[picket.WakeSourceScheduler] {
		s.t.Errorf("sent wakes by source: %v", sources)
	}
	rows := fmt.Appendf(nil, "%s\n%s", got.body, shown)
	s.scan("the rows of wakes", rows)
	s.nameless("the rows of wakes", rows)
	for _, name := range []string{person, "canary-of-a-person", "key_"} {
		if bytes.Contains(rows, []byte(name)) {
			s.t.Errorf("the rows of wakes have %q: %s", name, rows)
		}
	}
}
