//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/llmstub"
)

// sessionTurns is what the scripted model does when its newest prompt has these words.
type sessionTurns struct {
	words string
	turns []llmstub.Turn
}

// The first row that fits counts.
var sessionScript = []sessionTurns{
	{"Which word did I tell you?", []llmstub.Turn{{Say: "It was heron."}}},
	{"Remember the word heron.", []llmstub.Turn{{Say: "I keep it in mind.", Out: 50_000}}}, // $1.00
	{"The answer: blue", []llmstub.Turn{
		{Call: "mark_complete", Args: map[string]any{"output": 42, "summary": "done"}},
		{Say: "Handed in."},
	}},
	{"You have asked for a task.", []llmstub.Turn{
		{Call: "report_progress", Args: map[string]any{"summary": "half way"}},
		{Call: "request_human_help", Args: map[string]any{"question": "Which color?"}},
		{Say: "I wait for the answer."},
	}},
	{"Picket woke this session.", []llmstub.Turn{
		{Call: "get_context"},
		{Call: "read_messages"},
		{Call: "next_task"}, // until a turn is reserved
	}},
}

// reserved is in the answer of next_task, which some agents send within a string of JSON.
var reserved = regexp.MustCompile(`reserved\\*": *true`)

func playSession(r llmstub.Request) llmstub.Turn {
	if reserved.MatchString(r.Result) {
		return llmstub.Turn{Say: "My turn is reserved."}
	}
	for _, row := range sessionScript {
		if strings.Contains(r.Prompt, row.words) {
			return llmstub.Play(row.turns...)(r)
		}
	}
	return llmstub.Turn{Say: "stub", In: 1, Out: 1}
}

// agentInSession is a coding agent that keeps a session and takes tasks in it.
type agentInSession struct {
	*testEnv
	agent codingAgent
	model *llmstub.Server

	server *process
	kept   string // more keys of session: in picket.yaml, behind a comma
	more   string // more of picket.yaml
	id     string // of the session
	task   string
}

// A real coding agent keeps one conversation. A person prompts it, wakes have it ask for a task, and its runs go on
// with the same conversation. The task pays for its runs alone, not for the prompts around them.
func TestCodingAgentsTakeTasksInSessions(t *testing.T) {
	for _, c := range []struct {
		name  string
		agent codingAgent
		kept  string
	}{{"claude", codingAgents[0], ""}, {"codex", codingAgents[1], ""},
		{"resident claude", codingAgents[0], ", kind: resident"}} {
		t.Run(c.name, func(t *testing.T) {
			dir := clis(t, c.agent.name)
			s := &agentInSession{testEnv: newTestEnv(t), agent: c.agent, model: llmstub.New(playSession), kept: c.kept}
			o := httptest.NewServer(s.model)
			t.Cleanup(o.Close)
			s.begin(dir, o.URL)
			s.prompt("Remember the word heron.", "I keep it in mind.")
			s.runUntilQuestion()
			s.completeWithAnswer()
			s.prompt("Which word did I tell you?", "It was heron.")
			s.remembers("Which word did I tell you?", "Remember the word heron.", "count the birds",
				"The answer: blue", "Handed in.")
			s.instructed()
		})
	}
}

// begin starts a server, and a worker that takes a task only if its session asks for one.
func (s *agentInSession) begin(dir, model string) {
	s.t.Helper()
	s.put("config/picket/picket.yaml",
		s.more+"wake: {wake_cooldown: 1s, min_interval: 1s}\nagents:\n  coder:\n    session: {max: 1, only: true"+s.kept+"}\n"+
			"    launch: {preset: "+s.agent.name+"}\n    review: none\n    prompt_budget: 1\n")
	s.put("data/picket/agents/coder/AGENT.md", "Never count fish.\n")
	s.put("HEARTBEAT.md", "---\nversion: 1\n---\nTake a task if there is one.\n")
	s.agentReady(s.agent, dir, model)
	s.server = s.up()
	s.start("worker", append([]string{"adapter", "--as", "coder", "--agent-id", "coder-1", "--"}, s.agent.extra...)...)
	s.awaitIdle()
	s.ok("agent", "heartbeat", "write", "coder", "--file", "HEARTBEAT.md")
}

// awaitIdle waits until the session can be prompted and woken.
func (s *agentInSession) awaitIdle() {
	s.t.Helper()
	s.until("an idle session", func() bool {
		var page picket.AgentSessionPage
		s.into(&page, http.MethodGet, "/agent-sessions", nil)
		if len(page.Sessions) != 1 {
			return false
		}
		s.id = page.Sessions[0].SessionID
		return page.Sessions[0].Health.State == picket.SessionIdle
	})
}

// prompt has a person prompt the agent, and returns the answer.
func (s *agentInSession) prompt(words, want string) string {
	s.t.Helper()
	s.awaitIdle()
	got := s.cliFor(6*waitLimit, "session", "prompt", s.id, words)
	if got.code != 0 || !strings.Contains(got.out, want) {
		s.t.Fatalf("the answer to %q: exit %d\n%s%s", words, got.code, got.out, got.errOut)
	}
	return got.out
}

// wake sends a wake as soon as one is allowed.
func (s *agentInSession) wake() {
	s.t.Helper()
	s.awaitIdle()
	s.until("a wake is sent", func() bool {
		return strings.Contains(s.ok("agent", "heartbeat", "wake", "coder"), "sent: wake_sent")
	})
}

// awaitTask waits until the task is in a state.
func (s *agentInSession) awaitTask(state picket.TaskState) (task picket.Task) {
	s.t.Helper()
	// Some agents take long to begin on a busy machine.
	for deadline := time.Now().Add(3 * waitLimit); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if task = s.testEnv.task(s.task); task.State == state {
			return task
		}
	}
	s.t.Fatalf("the task is %s, want %s; the prompts of the session:\n%s", task.State, state,
		s.ok("session", "logs", s.id))
	return task
}

// runUntilQuestion has a message and a wake bring the agent to take a task, about which it asks a person.
func (s *agentInSession) runUntilQuestion() {
	s.t.Helper()
	s.task = s.ok("task", "create", "count the birds", "--role", "coder", "--budget", "0.50", "-o", "name")
	s.ok("agent", "tell", "coder-1", "Please look for work.")
	s.wake()
	task := s.awaitTask(picket.TaskHandoff)
	if task.LastReport == nil || task.LastReport.Summary != "half way" || task.Handoff.Question != "Which color?" {
		s.t.Errorf("the report is %+v, and the hand-off %+v", task.LastReport, task.Handoff)
	}
	s.remembers("You have asked for a task.", "Remember the word heron.", "I keep it in mind.",
		"Please look for work.", "My turn is reserved.", "count the birds")
	s.paid(3)
}

// completeWithAnswer has a person answer. The next wake brings the agent to take the task again.
func (s *agentInSession) completeWithAnswer() {
	s.t.Helper()
	s.ok("handoff", "answer", s.ok("handoff", "list", "-o", "name"), "--text", "blue")
	s.wake()
	task := s.awaitTask(picket.TaskCompleted)
	if string(task.Output) != "42" {
		s.t.Errorf("the output is %s", task.Output)
	}
	s.remembers("The answer: blue", "Remember the word heron.", "Which color?", "I wait for the answer.")
	s.paid(5)
	if task = s.testEnv.task(s.task); len(task.Runs) != 2 || task.Runs[0].AgentID != "coder-1" {
		s.t.Errorf("the runs are %+v", task.Runs)
	}
}

// remembers holds against the first request after a prompt what the agent said and was told before.
func (s *agentInSession) remembers(prompt string, words ...string) {
	s.t.Helper()
	for _, r := range s.model.Requests() {
		if !strings.Contains(r.Prompt, prompt) || r.Step > 0 || len(r.Tools) == 0 {
			continue
		}
		for _, w := range words {
			if !strings.Contains(r.Body, w) {
				s.t.Errorf("with %q the agent did not send %q:\n%s", prompt, w, r.Body)
			}
		}
		return
	}
	s.t.Errorf("the model was never asked with %q", prompt)
}

// instructed checks that every prompt came with the standing instructions: those of people, wakes and runs.
func (s *agentInSession) instructed() {
	s.t.Helper()
	prompts := map[string]bool{}
	for _, r := range s.model.Requests() {
		if r.Step > 0 || len(r.Tools) == 0 {
			continue
		}
		for _, row := range sessionScript {
			if strings.Contains(r.Prompt, row.words) {
				prompts[row.words] = true
				if !strings.Contains(r.Prompt, "Never count fish.") {
					s.t.Errorf("the agent was not told its instructions with %q:\n%s", row.words, r.Prompt)
				}
			}
		}
	}
	if len(prompts) != len(sessionScript) {
		s.t.Errorf("the model was asked with %v only", prompts)
	}
}

// paid waits until the task was charged for a number of answers of the model, and for nothing else.
func (s *agentInSession) paid(turns int64) {
	s.t.Helper()
	s.awaitIdle()
	task := s.testEnv.task(s.task)
	want := budget.Envelope{USD: s.agent.costs / 4 * budget.Money(turns), Tokens: 110 * turns}
	for deadline := time.Now().Add(waitLimit); task.Spent.Tokens < want.Tokens && time.Now().Before(deadline); {
		time.Sleep(20 * time.Millisecond)
		task = s.testEnv.task(s.task)
	}
	if task.Spent.USD != want.USD || task.Spent.Tokens != want.Tokens {
		s.t.Errorf("the task has spent $%s and %d tokens, want $%s and %d; ledger:\n%s", task.Spent.USD,
			task.Spent.Tokens, want.USD, want.Tokens, s.ok("budget", "ledger", s.task))
	}
}
