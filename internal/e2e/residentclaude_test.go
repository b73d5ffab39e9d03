//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/llmstub"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// residentScript is what the scripted model does with the prompts of a resident session. thinking is closed when the
// model is asked to think for long, and thought ends it.
func residentScript(begun, on string, thinking, thought chan struct{}) llmstub.Script {
	think := sync.OnceFunc(func() { close(thinking) })
	bash := func(command string) llmstub.Turn {
		return llmstub.Turn{Call: "Bash", Args: map[string]any{"command": command, "description": "do it"}}
	}
	return func(r llmstub.Request) llmstub.Turn {
		if len(r.Tools) == 0 {
			return llmstub.Turn{Say: "stub", In: 1, Out: 1}
		}
		asked := func(words string) bool { return strings.Contains(r.Prompt, words) }
		switch {
		case asked("Picket passes on messages"):
			return llmstub.Turn{Say: "I have read it."}
		case asked("Which process are you?") && r.Step == 0:
			return bash("echo pid $PPID")
		case asked("Look around.") && r.Step == 0:
			return llmstub.Turn{Call: "get_context"}
		case asked("Read your messages.") && r.Step == 0:
			return llmstub.Turn{Call: "read_messages"}
		case asked("Wait for the tool.") && r.Step == 0:
			return bash("echo begun >" + begun + "; read x <" + on + "; echo over")
		case asked("Think for long."):
			think()
			<-thought
			return llmstub.Turn{Say: "Thought."}
		}
		return llmstub.Turn{Say: "It says: " + r.Result}
	}
}

// residentClaude is a resident session of Claude Code, with a scripted model.
func residentClaude(t *testing.T, kept, more string, script func(w *testEnv) llmstub.Script) *agentInSession {
	dir := clis(t, "claude")
	s := &agentInSession{testEnv: newTestEnv(t), agent: codingAgents[0], kept: ", kind: resident" + kept}
	s.model = llmstub.New(script(s.testEnv))
	o := httptest.NewServer(s.model)
	t.Cleanup(o.Close)
	s.more, s.env = strings.ReplaceAll(more, "$MODEL", o.URL), append(s.env, "REAL_KEY=sk-real")
	s.begin(dir, o.URL)
	return s
}

// pid asks the agent for the id of its process.
func (s *agentInSession) pid() string {
	s.t.Helper()
	_, pid, _ := strings.Cut(s.prompt("Which process are you?", "pid "), "pid ")
	return strings.TrimSpace(pid)
}

// allRead waits until the agent has read every message.
func (s *agentInSession) allRead(n int) {
	s.t.Helper()
	s.until("the messages are read", func() bool {
		var page picket.MessagePage
		s.into(&page, http.MethodGet, "/agents/coder-1/messages", nil)
		read := 0
		for _, m := range page.Messages {
			if m.ReadAt != nil {
				read++
			}
		}
		return read == n
	})
}

// One process of Claude Code answers all prompts. It hears messages while a tool runs and while its model thinks, and
// sees each of them once. It goes on after a restart of the server. If it is killed, the next one goes on with the
// conversation.
func TestClaudeStaysBetweenPrompts(t *testing.T) {
	thinking, thought := make(chan struct{}), make(chan struct{})
	var begun, on *fifo
	s := residentClaude(t, "", "", func(w *testEnv) llmstub.Script {
		begun, on = w.fifo("begun"), w.fifo("on")
		return residentScript(w.path("begun"), w.path("on"), thinking, thought)
	})
	first := s.pid()
	for range 2 {
		s.prompt("Look around.", "coder-1") // over one MCP session, with one capability
	}
	answer := make(chan outcome, 1)
	ask := func(words string) { answer <- s.cliFor(6*waitLimit, "session", "prompt", s.id, words) }
	answered := func(words ...string) {
		t.Helper()
		got := <-answer
		for _, w := range words {
			if got.code != 0 || !strings.Contains(got.out, w) {
				t.Errorf("exit %d, without %q\n%s%s", got.code, w, got.out, got.errOut)
			}
		}
	}
	go ask("Wait for the tool.")
	begun.take()
	s.ok("agent", "tell", "coder-1", "The color is blue.")
	s.allRead(1)
	on.give("on")
	answered("over")
	go ask("Think for long.")
	<-thinking
	s.ok("agent", "tell", "coder-1", "The color is green.")
	s.allRead(2)
	close(thought)
	answered("Thought.", "I have read it.")
	s.prompt("Read your messages.", `"messages":[]`)
	s.server.signal(syscall.SIGTERM)
	s.server.wait()
	s.server = s.up()
	s.prompt("Look around.", "coder-1")
	if again := s.pid(); again != first {
		t.Errorf("process %s answers after %s", again, first)
	}
	killed, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	proctest.Send(t, killed, syscall.SIGKILL)
	if again := s.pid(); again == first {
		t.Errorf("process %s is dead and answers", first)
	}
	requests := s.model.Requests()
	last := requests[len(requests)-1].Body
	for _, words := range []string{"> The color is blue.", "> The color is green.", "Think for long."} {
		if n := strings.Count(last, words); n != 1 {
			t.Errorf("the conversation has %q %d times:\n%s", words, n, last)
		}
	}
}

// The models of the tool proxy are paid by the prompt that is open. A process that got no prompt for a while is ended,
// and the next prompt starts another one.
func TestAResidentClaudeIsMeteredAndEndedReal(t *testing.T) {
	s := residentClaude(t, ", idle_stop: 1s",
		"tools:\n  models: {'*': {input: 4, output: 20}}\n  llm: {anthropic: {url: '$MODEL', key_env: REAL_KEY}}\n",
		func(*testEnv) llmstub.Script { return residentScript("", "", make(chan struct{}), nil) })
	first := s.pid()
	proctest.Eventually(t, func() bool { return !proctest.Alive(first) }, "the process is not ended")
	if again := s.pid(); again == first {
		t.Error("a process that was ended answers")
	}
	s.remembers("Which process are you?")
	var page picket.PromptPage
	s.into(&page, http.MethodGet, "/agent-sessions/"+s.id+"/prompts", nil)
	for _, p := range page.Prompts {
		if want := budget.Money(2 * (100*4_000 + 10*20_000)); p.Spent.USD != want {
			t.Errorf("a prompt has spent $%s, want $%s", p.Spent.USD, want)
		}
	}
	requests := s.model.Requests()
	last := requests[len(requests)-1]
	if last.Key != "sk-real" || strings.Count(last.Body, "Which process are you?") != 2 {
		t.Errorf("the last request has the key %s:\n%s", last.Key, last.Body)
	}
}
