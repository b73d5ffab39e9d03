//go:build unix

package adapter_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// recordedAgent is a program that prints what a coding agent has once printed, and
// writes down how it was started. Of its lease it does what the script says.
type recordedAgent struct {
	dir      string
	server   *adaptertest.Server
	status   atomic.Int32 // of the tools' answer
	models   atomic.Bool  // are passed on to
	searches atomic.Bool  // have a price
	cfg      adapter.Config
}

// newRecordedAgent makes a program called as the preset's, with a shell script.
func newRecordedAgent(t *testing.T, p agents.Preset, script string) *recordedAgent {
	t.Helper()
	r := &recordedAgent{dir: t.TempDir(), server: adaptertest.New()}
	r.status.Store(http.StatusOK)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		switch {
		case q.URL.Path == "/mcp":
			if !strings.HasPrefix(q.Header.Get("Authorization"), "Bearer pkl_") {
				w.WriteHeader(http.StatusUnauthorized)
				return
			}
			w.WriteHeader(int(r.status.Load()))
		case strings.HasPrefix(q.URL.Path, "/llm/") && r.models.Load():
			w.WriteHeader(r.answerProbe(q))
		default:
			r.server.ServeHTTP(w, q)
		}
	}))
	t.Cleanup(func() { front.CloseClientConnections(); front.Close() })
	r.server.URL = front.URL
	recorded, err := filepath.Abs(filepath.Join("agents", "testdata"))
	if err != nil {
		t.Fatal(err)
	}
	text := "#!/bin/sh\nTEST=" + proctest.Agent("")[0] + "\nRECORDED=" + recorded + "\nOUT=" + r.dir + "\n" +
		"for a in \"$@\"; do printf '%s\\000' \"$a\"; done > $OUT/args\nenv > $OUT/env\npwd > $OUT/pwd\n" + script +
		"\n"
	file := filepath.Join(r.dir, "bin", string(p))
	if err := os.Mkdir(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	r.cfg = adapter.Config{
		BaseURL:      r.server.URL,
		Key:          adaptertest.Key,
		Preset:       p,
		Command:      []string{file},
		StateDir:     filepath.Join(r.dir, "state"),
		Workspace:    workspace.Here,
		Dir:          r.dir,
		PicketPath:   "/opt/it's/picket",
		Unregistered: true,
		Wait:         time.Second,
	}
	return r
}

// run has an adapter take one lease on the task to its end.
func (r *recordedAgent) run(t *testing.T, task string) adaptertest.View {
	t.Helper()
	a, err := adapter.New(r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := client.New(r.server.URL, adaptertest.Key, client.Options{})
	leases, err := c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: a.AgentID()})
	if err != nil || len(leases) != 1 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	_, _ = a.RunLease(ctx, leases[0])
	return r.server.View(task)
}

func (r *recordedAgent) task(change ...func(*adaptertest.Task)) string {
	release := "the release branch"
	task := adaptertest.Task{
		Title:   "fix the flaky test",
		Input:   picket.RawJSON(`"It fails on Mondays."`),
		MCPURL:  r.server.URL + "/mcp",
		Retries: 3,
		Answers: []picket.Answer{{Question: "Which branch?", Option: &release, Answer: picket.RawJSON("null")},
			{Question: "How long?", Answer: picket.RawJSON(`"an hour"`)},
			{Question: "Is that all?", Input: picket.RawJSON(`1`), InputEdited: true}},
	}
	for _, f := range change {
		f(&task)
	}
	return r.server.Queue(task)
}

func (r *recordedAgent) read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func (r *recordedAgent) args(t *testing.T) []string {
	t.Helper()
	return strings.Split(strings.TrimSuffix(r.read(t, "args"), "\x00"), "\x00")
}

// after is the argument that follows another.
func after(args []string, flag string) string {
	if i := slices.Index(args, flag); i >= 0 && i+1 < len(args) {
		return args[i+1]
	}
	return ""
}

func TestACodingAgentIsStartedWithItsToolsAndItsCostArrivesLate(t *testing.T) {
	for preset, want := range map[agents.Preset]picket.UsageReport{
		agents.PresetClaude:   {Source: "claude", Scope: "session", Tokens: 440, USD: 2_400_000},
		agents.PresetCodex:    {Source: "codex", Scope: "session", Tokens: 440},
		agents.PresetGemini:   {Source: "gemini", Tokens: 440},
		agents.PresetOpenCode: {Source: "opencode", Tokens: 440, USD: 1_800_000},
	} {
		t.Run(string(preset), func(t *testing.T) {
			t.Parallel()
			// The result is handed in first, and the cost is told after it, in a last
			// line without an end.
			r := newRecordedAgent(t, preset,
				"$TEST agent complete\nprintf %s \"$(cat $RECORDED/"+string(preset)+"-done.jsonl)\"")
			v := r.run(t, r.task())
			if v.State != picket.TaskReview || len(v.Runs) != 1 {
				t.Fatalf("the task is %s after %d runs", v.State, len(v.Runs))
			}
			run := v.Runs[0]
			if len(run.Usage) == 0 {
				t.Fatalf("no cost has arrived; stderr: %s", run.Stderr)
			}
			got := run.Usage[len(run.Usage)-1]
			if got.Session == "" {
				t.Error("the session is not told")
			}
			got.Session = ""
			if got != want {
				t.Errorf("told %+v, want %+v", got, want)
			}
			if run.ExitReport == nil || run.ExitReport.Class != picket.ExitSuccess {
				t.Errorf("the end of the process is told as %+v", run.ExitReport)
			}
			r.checkStart(t, preset)
		})
	}
}

// checkStart holds the command line and the configuration against what each
// agent needs, and against what nobody may see.
func (r *recordedAgent) checkStart(t *testing.T, p agents.Preset) {
	t.Helper()
	args := r.args(t)
	all, env := strings.Join(args, "\n"), r.read(t, "env")
	for _, words := range []string{"fix the flaky test", "It fails on Mondays.", "mark_complete",
		"The answer: the release branch", "The answer: an hour", "The answer: The input of the task was edited"} {
		if !strings.Contains(all, words) {
			t.Errorf("the prompt does not say %q: %s", words, all)
		}
	}
	token := valueOf(env, "PICKET_LEASE_TOKEN")
	if !strings.HasPrefix(token, "pkl_") || strings.Contains(all, "pkl_") {
		t.Errorf("the lease token is %q in the environment, and may not be an argument: %s", token, all)
	}
	config := ""
	switch p {
	case agents.PresetClaude:
		config = after(args, "--mcp-config")
		if after(args, "--output-format") != "stream-json" || !slices.Contains(args, "--verbose") ||
			!slices.Contains(args, "--strict-mcp-config") ||
			!strings.Contains(after(args, "--allowedTools"), "mcp__picket") || after(args, "--max-budget-usd") == "" ||
			slices.Contains(args, "--resume") {
			t.Errorf("the command line is %q", args)
		}
		hook := readFile(t, after(args, "--settings"))
		if !strings.Contains(hook, `"matcher": "compact"`) || !strings.Contains(hook, `'/opt/it'\\''s/picket' pinned`) {
			t.Errorf("the hook is %s", hook)
		}
	case agents.PresetCodex:
		if args[0] != "exec" || !strings.Contains(all, `bearer_token_env_var="PICKET_LEASE_TOKEN",required=true`) ||
			!strings.Contains(all, r.server.URL+"/mcp") || args[1] == "resume" {
			t.Errorf("the command line is %q", args)
		}
	case agents.PresetGemini:
		config = filepath.Join(valueOf(env, "GEMINI_CLI_HOME"), ".gemini", "settings.json")
		if after(args, "-o") != "stream-json" || after(args, "--approval-mode") != "yolo" ||
			slices.Contains(args, "--resume") {
			t.Errorf("the command line is %q", args)
		}
	case agents.PresetOpenCode:
		config = valueOf(env, "OPENCODE_CONFIG")
		if args[0] != "run" || after(args, "--format") != "json" || slices.Contains(args, "--session") {
			t.Errorf("the command line is %q", args)
		}
	}
	if config == "" {
		return
	}
	info, err := os.Stat(config)
	if err != nil || info.Mode().Perm() != 0o600 || !strings.HasPrefix(config, r.cfg.StateDir) {
		t.Errorf("the configuration %s has the mode %v, %v", config, info.Mode(), err)
	}
	if text := readFile(t, config); !strings.Contains(text, r.server.URL+"/mcp") ||
		!strings.Contains(text, "PICKET_LEASE_TOKEN") || strings.Contains(text, token) {
		t.Errorf("the configuration is %s", text)
	}
}

func valueOf(env, name string) string {
	for line := range strings.Lines(env) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+"="); ok {
			return value
		}
	}
	return ""
}

func readFile(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
