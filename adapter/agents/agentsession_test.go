package agents

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

func newConversation(t *testing.T) Conversation { return Conversation{t.TempDir(), t.TempDir()} }

// promptOf prepares a prompt of a conversation.
func promptOf(p Preset, c Conversation) *Setup {
	return NewPromptSetup(p, Prompt{Text: "hello", Dir: c.Workspace, StateDir: c.Dir})
}

// runOf prepares a run of a task that an agent session has taken, in a directory. used takes what the agent tells.
func runOf(t *testing.T, p Preset, c Conversation, dir string, used func(picket.UsageReport)) *Setup {
	return NewSetup(p, Run{Lease: picket.Lease{TaskID: "task_1", Task: picket.LeaseTask{Title: "count the birds"}},
		Dir: dir, StateDir: t.TempDir(), Conversation: c, Used: used})
}

// commandOf is the command line with the variables.
func commandOf(t *testing.T, setup *Setup) string {
	t.Helper()
	args, err := setup.Arguments()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(slices.Concat(args, setup.Env()), " ")
}

// agentPrints has an agent print what was recorded, in a conversation with an id, and end.
func agentPrints(t *testing.T, setup *Setup, recorded, id string, code int) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", recorded))
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		if f := setup.preset.spec().newParser()(bytes.TrimSpace(line)); f.session != "" {
			text = bytes.ReplaceAll(text, []byte(f.session), []byte(id))
			break
		}
	}
	out := setup.NewOutputReader()
	if _, err := out.Wrap(nil).Write(text); err != nil {
		t.Fatal(err)
	}
	out.Finish(code, false)
}

// A run of an agent session goes on with its conversation, in the workspace of the task. Agents that find a
// conversation only where it began start another one there, and the session keeps its own.
func TestARunGoesOnWithTheConversationOfItsSession(t *testing.T) {
	for p, anywhere := range map[Preset]bool{
		PresetClaude: true, PresetCodex: true, PresetGemini: false, PresetOpenCode: false,
	} {
		t.Run(string(p), func(t *testing.T) {
			c := newConversation(t)
			agentPrints(t, promptOf(p, c), string(p)+"-done.jsonl", "thread-1", 0)
			run := runOf(t, p, c, t.TempDir(), nil)
			if all := commandOf(t, run); run.Resumes() != anywhere || strings.Contains(all, "thread-1") != anywhere {
				t.Errorf("elsewhere it goes on with the conversation: %t, want %t: %s", run.Resumes(), anywhere, all)
			}
			if words := run.prompt(); !strings.HasPrefix(words, "You have asked for a task.") ||
				!strings.Contains(words, "\ncount the birds\n") || strings.Contains(words, "You go on with the task") {
				t.Errorf("the agent is told\n%s", words)
			}
			printed := map[bool]string{true: "thread-1", false: "thread-2"}[anywhere]
			agentPrints(t, run, string(p)+"-resumed.jsonl", printed, 0)
			if all := commandOf(t, promptOf(p, c)); !strings.Contains(all, "thread-1") {
				t.Errorf("after the run a prompt does not go on with the conversation: %s", all)
			}
			if here := runOf(t, p, c, c.Workspace, nil); !here.Resumes() {
				t.Error("where the conversation began, a run does not go on with it")
			}
		})
	}
}

// What an agent tells about its conversation is charged to a run without what the prompts before it have used.
func TestARunIsChargedForItselfAlone(t *testing.T) {
	for p, usd := range map[Preset]budget.Money{PresetClaude: 2_400_000, PresetCodex: 0} {
		t.Run(string(p), func(t *testing.T) {
			c := newConversation(t)
			var told []picket.UsageReport
			take := func(u picket.UsageReport) { told = append(told, u) }
			want := picket.UsageReport{Source: string(p), Session: "thread-1", Scope: "run", Tokens: 440, USD: usd}
			agentPrints(t, promptOf(p, c), string(p)+"-done.jsonl", "thread-1", 0)                       // 440 in all
			agentPrints(t, runOf(t, p, c, t.TempDir(), take), string(p)+"-resumed.jsonl", "thread-1", 0) // 880 in all
			if len(told) != 1 || told[0] != want {
				t.Errorf("the run has told %+v, want %+v", told, want)
			}
			// Less than before is nothing, and not a debt.
			agentPrints(t, runOf(t, p, c, t.TempDir(), take), string(p)+"-done.jsonl", "thread-1", 0)
			if last := told[len(told)-1]; last.Tokens != 0 || last.USD != 0 {
				t.Errorf("a run that has told less than the prompts before has told %+v", last)
			}
			// Another conversation begins at nothing.
			agentPrints(t, runOf(t, p, c, t.TempDir(), take), string(p)+"-done.jsonl", "thread-2", 0)
			want.Session = "thread-2"
			if last := told[len(told)-1]; len(told) != 3 || last != want {
				t.Errorf("the run in a new conversation has told %+v, want %+v", last, want)
			}
		})
	}
}

// A run without a session of an adapter reports the figures as the agent tells them. The server subtracts.
func TestARunWithoutASessionTellsFiguresOfTheConversation(t *testing.T) {
	var told []picket.UsageReport
	setup := runOf(t, PresetClaude, Conversation{}, t.TempDir(),
		func(u picket.UsageReport) { told = append(told, u) })
	agentPrints(t, setup, "claude-resumed.jsonl", "thread-1", 0)
	if len(told) != 1 || told[0].Scope != "session" || told[0].Tokens != 880 {
		t.Errorf("the run has told %+v", told)
	}
	if words := setup.prompt(); !strings.HasPrefix(words, "count the birds\n") {
		t.Errorf("the agent is told\n%s", words)
	}
}

// A run that fails keeps the conversation of its session, unless the agent could not go on with it.
func TestAFailedRunKeepsTheConversation(t *testing.T) {
	c := newConversation(t)
	agentPrints(t, promptOf(PresetCodex, c), "codex-done.jsonl", "thread-1", 0)
	begins := runOf(t, PresetCodex, c, t.TempDir(), nil).NewOutputReader()
	_, _ = begins.Wrap(nil).Write([]byte(`{"type":"thread.started","thread_id":"thread-1"}` + "\n"))
	begins.Finish(1, false)
	if !promptOf(PresetCodex, c).Resumes() {
		t.Error("the conversation was given up although the agent went on with it")
	}
	silent := runOf(t, PresetCodex, c, t.TempDir(), nil).NewOutputReader()
	_, _ = silent.Wrap(nil).Write([]byte("no such thread\n"))
	silent.Finish(1, false)
	if promptOf(PresetCodex, c).Resumes() {
		t.Error("a conversation that the agent cannot go on with is kept")
	}
}
