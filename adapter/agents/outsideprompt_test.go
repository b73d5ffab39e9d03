package agents

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// promptArguments prepares a prompt outside of any run, and returns its command line and variables.
func promptArguments(t *testing.T, p Preset, prompt Prompt) (setup *Setup, all string) {
	t.Helper()
	setup = NewPromptSetup(p, prompt)
	args, err := setup.Arguments()
	if err != nil {
		t.Fatal(err)
	}
	return setup, strings.Join(slices.Concat(args, setup.Env()), " ")
}

// A prompt outside of any run goes on with the conversation of the prompt before it, and its answer
// is what the agent says.
func TestAPromptGoesOnWithTheConversation(t *testing.T) {
	for _, p := range Presets {
		if !p.CodingAgent() {
			continue
		}
		t.Run(string(p), func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join("testdata", string(p)+"-done.jsonl"))
			if err != nil {
				t.Fatal(err)
			}
			answer := ""
			prompt := Prompt{Text: "hello", Dir: t.TempDir(), StateDir: t.TempDir(),
				Answer: func(words string) { answer += words }}
			setup, first := promptArguments(t, p, prompt)
			if setup.Resumes() || !strings.Contains(first, "hello") {
				t.Fatalf("the first prompt is started with %s", first)
			}
			out := setup.NewOutputReader()
			if _, err := out.Wrap(nil).Write(text); err != nil {
				t.Fatal(err)
			}
			out.Finish(0, false)
			if answer != "All done." || out.Stopped() != "" {
				t.Errorf("the answer is %q, and it stopped because %q", answer, out.Stopped())
			}
			again, second := promptArguments(t, p, prompt)
			if id := out.Conversation(); id == "" || !again.Resumes() || !strings.Contains(second, id) {
				t.Errorf("the second prompt does not go on with %q: %s", id, second)
			}
			prompt.Dir = t.TempDir()
			if elsewhere, _ := promptArguments(t, p, prompt); elsewhere.Resumes() {
				t.Error("a conversation is continued in another directory")
			}
		})
	}
}

// Outside of a run there is no lease to name, and a prompt cannot be an option of the program.
func TestAPromptNamesNoLeaseAndIsNoOption(t *testing.T) {
	for _, p := range Presets {
		if !p.CodingAgent() {
			continue
		}
		dir := t.TempDir()
		setup, all := promptArguments(t, p, Prompt{Text: "\x00--help", Dir: dir, StateDir: dir})
		if strings.Contains(all, "PICKET") || strings.Contains(all, "picket") {
			t.Errorf("%s is told about Picket: %s", p, all)
		}
		if args, err := setup.Arguments(); err != nil || !slices.Contains(args, "\n--help") {
			t.Errorf("%s takes the prompt for an option: %q, %v", p, args, err)
		}
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			if strings.Contains(string(text), "mcp") {
				t.Errorf("%s gets MCP servers: %s", p, text)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
}

// With a tool proxy a prompt has Picket's tools. Their bearer is named by its variable.
func TestAPromptHasTools(t *testing.T) {
	for _, p := range Presets {
		if !p.CodingAgent() {
			continue
		}
		dir := t.TempDir()
		_, all := promptArguments(t, p, Prompt{Text: "hello", Dir: dir, StateDir: dir, ProxyURL: "http://proxy:1/"})
		err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			text, err := os.ReadFile(path)
			all += string(text)
			return err
		})
		if err != nil {
			t.Error(err)
		}
		if !strings.Contains(all, "http://proxy:1/mcp") || !strings.Contains(all, "PICKET_SESSION_CAPABILITY") ||
			strings.Contains(all, "PICKET_LEASE_TOKEN") {
			t.Errorf("%s is told %s", p, all)
		}
		if p == PresetClaude && !strings.Contains(all, "mcp__picket,") {
			t.Errorf("the tools are not allowed: %s", all)
		}
	}
}

func TestPiecesOfAnAnswerAreJoined(t *testing.T) {
	answer := ""
	r := &answerReader{to: func(words string) { answer += words }}
	for _, line := range []string{
		`{"type":"message","role":"user","content":"hi"}`,
		`{"type":"message","role":"assistant","content":"Hel","delta":true}`,
		`{"type":"message","role":"assistant","content":"lo.","delta":true}`,
		`{"type":"tool_use","tool_name":"ls"}`,
		`{"type":"message","role":"assistant","content":"Done.","delta":true}`,
		"garbage",
	} {
		r.read([]byte(line))
	}
	if answer != "Hello.\n\nDone." {
		t.Errorf("the answer is %q", answer)
	}
}
