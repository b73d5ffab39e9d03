//go:build unix

package adapter_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/budget"
)

// releasedExit is how the last run of a task was given back.
func releasedExit(t *testing.T, v adaptertest.View) picket.Exit {
	t.Helper()
	if len(v.Runs) == 0 || v.Runs[len(v.Runs)-1].Released == nil {
		t.Fatalf("the run was not given back: %+v", v)
	}
	return *v.Runs[len(v.Runs)-1].Released
}

// Claude Code says at its beginning that it has no tools, and would work on: it
// is ended, and people are told why.
func TestAnAgentWithoutToolsIsEnded(t *testing.T) {
	r := newRecordedAgent(t, agents.PresetClaude, "head -1 $RECORDED/claude-notools.jsonl\nexec sleep 600")
	r.cfg.Grace = time.Second
	exit := releasedExit(t, r.run(t, r.task()))
	if exit.Class != picket.ExitCrash || !strings.Contains(exit.Detail, "its MCP server picket is failed") {
		t.Errorf("it ended as %+v", exit)
	}
}

// endedLauncher is a launcher around another, which hears how the process ended.
type endedLauncher struct {
	process.Launcher
	ended chan process.Exited
}

func (l endedLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	job.Ended = func(e process.Exited) { l.ended <- e }
	return l.Launcher.Launch(ctx, job)
}

// The launcher of a coding agent reads the end of its output, and passes on how the
// process ended.
func TestWhoLaunchesACodingAgentHearsOfItsEnd(t *testing.T) {
	r := newRecordedAgent(t, agents.PresetClaude, "exit 3")
	inner := adapter.PresetLauncher{Preset: r.cfg.Preset}
	inner.Command = r.cfg.Command
	l := endedLauncher{inner, make(chan process.Exited, 1)}
	r.cfg.Launcher, r.cfg.Preset, r.cfg.Command = l, "", nil
	r.run(t, r.task())
	select {
	case e := <-l.ended:
		if e.Code != 3 {
			t.Errorf("it ended with code %d, want 3", e.Code)
		}
	default:
		t.Error("nobody was told that the process has ended")
	}
}

// Others report it on standard error or not at all; their failed calls show it.
func TestAnAgentThatNeverUsedAToolIsToldOf(t *testing.T) {
	for preset, want := range map[agents.Preset]struct {
		script string
		detail string
	}{
		agents.PresetCodex: {"cat $RECORDED/codex-notools.txt >&2; exit 1", "Codex has not reached Picket's tools"},
		agents.PresetGemini: {"cat $RECORDED/gemini-notools.txt >&2; cat $RECORDED/gemini-notools.jsonl",
			"Gemini CLI has not reached Picket's tools"},
		agents.PresetOpenCode: {"cat $RECORDED/opencode-notools.jsonl", "without having used a tool of Picket's"},
	} {
		t.Run(string(preset), func(t *testing.T) {
			t.Parallel()
			r := newRecordedAgent(t, preset, want.script)
			exit := releasedExit(t, r.run(t, r.task()))
			if !strings.Contains(exit.Detail, want.detail) {
				t.Errorf("it ended as %+v", exit)
			}
			if used := strings.Contains(exit.Detail, "never"); used {
				t.Errorf("it ended as %+v", exit)
			}
		})
	}
}

// Where the tools cannot be reached, no agent is started at all.
func TestNoAgentIsStartedWithoutItsTools(t *testing.T) {
	r := newRecordedAgent(t, agents.PresetOpenCode, "true")
	r.status.Store(http.StatusNotFound)
	exit := releasedExit(t, r.run(t, r.task()))
	if exit.Class != picket.ExitCrash || !strings.Contains(exit.Detail, "it answers 404") ||
		!strings.Contains(exit.Detail, "picket up") {
		t.Errorf("it ended as %+v", exit)
	}
	if _, err := os.Stat(filepath.Join(r.dir, "args")); err == nil {
		t.Error("the agent was started")
	}
}

// It is not started on an empty envelope either.
func TestNoAgentIsStartedWithoutBudget(t *testing.T) {
	for _, tc := range []struct {
		left budget.Envelope
		says string
		adds string
	}{
		{budget.Envelope{Tokens: 1000}, ": $0.00 left, ", "--usd 1.00"},
		{budget.Envelope{USD: 1}, ": 0 tokens left, ", "--tokens 100000"},
		{budget.Envelope{Tokens: -5, USD: 1}, ": -5 tokens left, ", "--tokens 100005"},
		{budget.Envelope{USD: -2_000_000_001}, ": -$2.000000001 and 0 tokens left, ", "--usd 3.01 --tokens 100000"},
	} {
		left := tc.left
		r := newRecordedAgent(t, agents.PresetClaude, "true")
		task := r.task(func(task *adaptertest.Task) { task.Budget = &left })
		exit := releasedExit(t, r.run(t, task))
		if !strings.Contains(exit.Detail, tc.says) ||
			!strings.HasSuffix(exit.Detail, "picket budget top-up "+task+" "+tc.adds) ||
			!adapter.NotStartedForBudget(&exit) {
			t.Errorf("with %+v it ended as %+v", left, exit)
		}
		if _, err := os.Stat(filepath.Join(r.dir, "args")); err == nil {
			t.Errorf("with %+v the agent was started", left)
		}
	}
}

// An agent that reports more use of models than its envelope had is stopped.
func TestAnAgentThatHasSpentTooMuchIsStopped(t *testing.T) {
	r := newRecordedAgent(t, agents.PresetOpenCode, "head -3 $RECORDED/opencode-done.jsonl\nexec sleep 600")
	r.cfg.Grace = time.Second
	v := r.run(t, r.task(func(task *adaptertest.Task) { task.Overrun = true }))
	exit := releasedExit(t, v)
	if exit.Class != picket.ExitCrash || !strings.Contains(exit.Detail, "stopped after") ||
		!strings.Contains(exit.Detail, "picket budget top-up") {
		t.Errorf("it ended as %+v", exit)
	}
	if n := len(v.Runs[0].Usage); n != 1 {
		t.Errorf("%d reports of what it has used, want that of its first step", n)
	}
}

// The next run of a task goes on with the session of the one before, where it
// was; after a session that the agent cannot go on with, a new one begins.
func TestTheNextRunGoesOnWithTheSession(t *testing.T) {
	flags := map[agents.Preset]struct {
		flag string
		id   string
	}{
		agents.PresetClaude:   {"--resume", "21f23940-55bc-4cd5-9a93-91671386a6b7"},
		agents.PresetCodex:    {"resume", "01a200a5-3e89-7453-a35e-66f3424fcde2"},
		agents.PresetGemini:   {"--resume", "695ba83a-73a4-4f05-a0f9-622fc7b4d818"},
		agents.PresetOpenCode: {"--session", "ses_dff5a314effeIx43bVf1v3fD06"},
	}
	for preset, want := range flags {
		t.Run(string(preset), func(t *testing.T) {
			t.Parallel()
			// It says its session and fails; with the session it fails at once.
			r := newRecordedAgent(t, preset, `case "$*" in *`+want.id+`*) echo broken >&2; exit 7;; esac
cat $RECORDED/`+string(preset)+`-done.jsonl; exec "$TEST" agent fail`)
			task := r.task()
			var seen []string
			for range 3 {
				r.run(t, task)
				seen = append(seen, after(r.args(t), want.flag))
			}
			if seen[0] == want.id || seen[1] != want.id || seen[2] == want.id {
				t.Errorf("the three runs went on with %q, want only the second with %s", seen, want.id)
			}
		})
	}
}

// The session that the agent names is the one that the launcher is told.
func TestTheSessionOfAnAgentIsKnown(t *testing.T) {
	for preset, want := range map[agents.Preset]string{
		agents.PresetClaude:   "21f23940-55bc-4cd5-9a93-91671386a6b7",
		agents.PresetCodex:    "01a200a5-3e89-7453-a35e-66f3424fcde2",
		agents.PresetGemini:   "695ba83a-73a4-4f05-a0f9-622fc7b4d818",
		agents.PresetOpenCode: "ses_dff5a314effeIx43bVf1v3fD06",
	} {
		t.Run(string(preset), func(t *testing.T) {
			t.Parallel()
			release := filepath.Join(t.TempDir(), "go")
			if err := syscall.Mkfifo(release, 0o600); err != nil {
				t.Fatal(err)
			}
			r := newRecordedAgent(t, preset, `cat $RECORDED/`+string(preset)+`-done.jsonl
cat `+release+`; exec "$TEST" agent fail`)
			var once sync.Once
			named := ""
			r.cfg.ProgressTick.Interval = 50 * time.Millisecond
			r.cfg.OnEvent = func(e adapter.Event) {
				if e.Launcher == nil || e.Launcher.SessionID == e.RunID || e.Launcher.SessionID == "" {
					return
				}
				once.Do(func() {
					named = e.Launcher.SessionID
					go func() { _ = os.WriteFile(release, nil, 0o600) }()
				})
			}
			r.run(t, r.task())
			if named != want {
				t.Errorf("session %q, want %q", named, want)
			}
		})
	}
}

// In another directory there is no session to go on with.
func TestASessionStaysWhereItBegan(t *testing.T) {
	r := newRecordedAgent(t, agents.PresetClaude, `cat $RECORDED/claude-done.jsonl; exec "$TEST" agent fail`)
	task := r.task()
	r.run(t, task)
	r.cfg.Dir = t.TempDir()
	r.run(t, task)
	if args := r.args(t); slices.Contains(args, "--resume") {
		t.Errorf("it was started with %q", args)
	}
}

// answerProbe answers what the proxy does for a question without a model, of which
// one without a price is refused before.
func (r *recordedAgent) answerProbe(q *http.Request) int {
	body, err := io.ReadAll(q.Body)
	if err == nil && strings.Contains(string(body), `"web_search`) && !r.searches.Load() {
		return http.StatusForbidden
	}
	return http.StatusBadRequest
}

// Agents are told not to search where nobody has named the price of it: each of
// their calls would be refused.
func TestAgentsSearchWhereItHasAPrice(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "sk-own")
	for preset, off := range map[agents.Preset]string{
		agents.PresetCodex:  "-c\nweb_search=\"disabled\"",
		agents.PresetClaude: "--disallowedTools=WebSearch",
	} {
		for _, c := range []struct {
			models   bool
			searches bool
			off      bool
		}{{true, false, true}, {true, true, false}, {false, false, false}} {
			r := newRecordedAgent(t, preset, "cat $RECORDED/"+string(preset)+"-done.jsonl")
			r.models.Store(c.models)
			r.searches.Store(c.searches)
			r.run(t, r.task())
			if args := strings.Join(r.args(t), "\n"); strings.Contains(args, off) != c.off {
				t.Errorf("%s, %+v: its arguments are %s", preset, c, args)
			}
		}
	}
}

// Where the proxy passes on to the models, agents ask there, with the lease for
// a key: their own stays unused.
func TestAgentsAskModelsThroughTheProxy(t *testing.T) {
	t.Setenv("ANTHROPIC_API_KEY", "sk-own")
	for preset, check := range map[agents.Preset]func(t *testing.T, r *recordedAgent, args, env string){
		agents.PresetClaude: func(t *testing.T, r *recordedAgent, _, env string) {
			if valueOf(env, "ANTHROPIC_BASE_URL") != r.server.URL+"/llm/anthropic" ||
				valueOf(env, "ANTHROPIC_AUTH_TOKEN") != valueOf(env, "PICKET_LEASE_TOKEN") ||
				valueOf(env, "ANTHROPIC_API_KEY") != "" {
				t.Errorf("its environment is %s", env)
			}
		},
		agents.PresetCodex: func(t *testing.T, r *recordedAgent, args, _ string) {
			if !strings.Contains(args, `base_url="`+r.server.URL+`/llm/openai/v1",env_key="PICKET_LEASE_TOKEN"`) {
				t.Errorf("its arguments are %s", args)
			}
		},
		agents.PresetOpenCode: func(t *testing.T, r *recordedAgent, _, env string) {
			if config := readFile(t,
				valueOf(env, "OPENCODE_CONFIG")); !strings.Contains(config, r.server.URL+"/llm/anthropic/v1") ||
				!strings.Contains(config, r.server.URL+"/llm/openai/v1") {
				t.Errorf("its configuration is %s", config)
			}
		},
	} {
		for _, passedOn := range []bool{true, false} {
			r := newRecordedAgent(t, preset, "cat $RECORDED/"+string(preset)+"-done.jsonl")
			r.models.Store(passedOn)
			r.run(t, r.task())
			args, env := strings.Join(r.args(t), "\n"), r.read(t, "env")
			if passedOn {
				check(t, r, args, env)
			} else if strings.Contains(args+env, "/llm/") ||
				preset == agents.PresetClaude && valueOf(env, "ANTHROPIC_API_KEY") != "sk-own" {
				t.Errorf("%s is sent to a proxy that passes nothing on", preset)
			}
		}
	}
}
