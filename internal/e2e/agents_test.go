//go:build linux

package e2e

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/llmstub"
)

// codingAgent is a real coding agent, as it is made to ask a scripted model.
type codingAgent struct {
	name  string
	api   llmstub.API
	env   func(model string) []string // NAME=value
	extra []string                    // arguments of its own
	files func(w *testEnv, model string)
	// What its output says that the four turns of the script have cost, beside 440
	// tokens; 0 for those that tell tokens only.
	costs budget.Money
}

var codingAgents = []codingAgent{
	{
		name:  "claude",
		api:   llmstub.Anthropic,
		costs: 2_400_000,
		env: func(model string) []string {
			return []string{"ANTHROPIC_API_KEY=sk-own", "ANTHROPIC_BASE_URL=" + model,
				"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1"}
		},
		extra: []string{"--model", "claude-opus-5-5"},
	},
	{
		name:  "codex",
		api:   llmstub.Responses,
		env:   func(string) []string { return []string{"OPENAI_API_KEY=sk-own"} },
		extra: []string{"-m", "stub-1"}, // one that it knows calls tools by writing programs
		files: func(w *testEnv, model string) {
			w.put("home/.codex/config.toml",
				"model_provider = \"stub\"\n[model_providers.stub]\nname = \"stub\"\nbase_url = \""+model+
					"/v1\"\nenv_key = \"OPENAI_API_KEY\"\nwire_api = \"responses\"\n")
		},
	},
	{
		name: "gemini", api: llmstub.Gemini,
		env: func(model string) []string {
			return []string{"GEMINI_API_KEY=sk-own", "GOOGLE_GEMINI_BASE_URL=" + model}
		},
		extra: []string{"-m", "gemini-2.5-flash"}, // else a model is asked which one to use
	},
	{
		name:  "opencode",
		api:   llmstub.Chat,
		costs: 1_800_000,
		env: func(string) []string {
			return []string{"OPENAI_API_KEY=sk-own", "OPENCODE_DISABLE_AUTOUPDATE=1", "OPENCODE_DISABLE_MODELS_FETCH=1"}
		},
		extra: []string{"--model", "stub/stub"},
		files: func(w *testEnv, model string) {
			w.put("config/opencode/opencode.json",
				`{"provider":{"stub":{"npm":"@ai-sdk/openai-compatible","name":"stub","options":{"baseURL":"`+model+
					`/v1","apiKey":"sk-own"},"models":{"stub":{"name":"stub","cost":{"input":3,"output":15}}}}}}`)
		},
	},
}

// clis is the directory of the agents' programs; a test without it is skipped.
func clis(t *testing.T, name string) string {
	dir := os.Getenv("PICKET_AGENT_CLIS")
	if dir == "" {
		t.Skip("PICKET_AGENT_CLIS names no directory of agents: `make agents` installs them and runs this")
	}
	if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
		t.Skipf("there is no %s in %s", name, dir)
	}
	return dir
}

func (w *testEnv) put(file, text string) {
	w.t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.path(file)), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path(file), []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// modelAndShop is what lies beyond the server: a model that plays a script, and a
// shop whose page http_request buys.
type modelAndShop struct {
	*httptest.Server
	model *llmstub.Server
	sold  atomic.Int32
}

func newModelAndShop(t *testing.T) *modelAndShop {
	o := &modelAndShop{}
	mux := http.NewServeMux()
	o.Server = httptest.NewServer(mux)
	t.Cleanup(o.Close)
	o.model = llmstub.New(llmstub.Play(
		llmstub.Turn{Call: "report_progress", Args: map[string]any{"summary": "half way"}},
		llmstub.Turn{Call: "http_request", Args: map[string]any{"method": "GET", "url": o.URL + "/shop"}},
		llmstub.Turn{Call: "mark_complete", Args: map[string]any{"output": 42, "summary": "done"}},
		llmstub.Turn{Say: "All done."},
	))
	mux.Handle("/", o.model)
	mux.HandleFunc("/shop", func(w http.ResponseWriter, _ *http.Request) {
		o.sold.Add(1)
		_, _ = w.Write([]byte("goods"))
	})
	return o
}

// A real coding agent, with a scripted model: it reports, buys something, hands
// in its result, and tells what it has cost when its task is closed already.
func TestCodingAgents(t *testing.T) {
	for _, agent := range codingAgents {
		t.Run(agent.name, func(t *testing.T) {
			dir := clis(t, agent.name)
			w, o := newTestEnv(t), newModelAndShop(t)
			w.put("config/picket/picket.yaml",
				"tools:\n  http_request: {allow: ['"+strings.TrimPrefix(o.URL, "http://")+
					"']}\n  prices: {http_request: {call: 0.01}}\n")
			w.agentReady(agent, dir, o.URL)
			w.up()
			task := w.agentRuns(agent, "0.50")
			if n := o.sold.Load(); n != 1 {
				t.Errorf("it bought %d times, want once; the model was asked %+v", n, prompts(o.model))
			}
			for _, r := range o.model.Requests() {
				if r.API != agent.api || r.Key != "sk-own" {
					t.Errorf("the model was asked over %s with the key %q, want %s and its own", r.API, r.Key,
						agent.api)
				}
			}
			// What the agent tells is charged beside what the tool cost.
			w.until("its cost in the task", func() bool { task = w.task(task.TaskID); return task.Spent.Tokens >= 440 })
			if want := 10_000_000 + agent.costs; task.Spent.USD != want || task.Held != (budget.Envelope{}) {
				t.Errorf("spent $%s and held %+v, want $%s and nothing; ledger:\n%s", task.Spent.USD, task.Held, want,
					w.ok("budget", "ledger", task.TaskID))
			}
			w.paidLate(task.TaskID, agent.name)
		})
	}
}

// Where the proxy passes on to the models, the agent never sees a key of
// theirs, and what a call has cost is charged once: as it is made.
func TestCodingAgentsThroughTheProxy(t *testing.T) {
	for _, agent := range codingAgents[:2] {
		t.Run(agent.name, func(t *testing.T) {
			dir := clis(t, agent.name)
			w, o := newTestEnv(t), newModelAndShop(t)
			provider := map[string]string{"claude": "anthropic", "codex": "openai"}[agent.name]
			w.put("config/picket/picket.yaml",
				"tools:\n  http_request: {allow: ['"+strings.TrimPrefix(o.URL, "http://")+
					"']}\n  prices: {http_request: {call: 0.01}}\n"+
					"  models: {'*': {input: 4, output: 20}}\n  llm: {"+provider+": {url: '"+o.URL+
					"', key_env: REAL_KEY}}\n")
			w.agentReady(agent, dir, "http://127.0.0.1:9") // nobody is there
			w.env = append(w.env, "REAL_KEY=sk-real")
			w.up()
			task := w.agentRuns(agent, "20") // for a moment, more is reserved than spent
			for _, r := range o.model.Requests() {
				if r.Key != "sk-real" {
					t.Errorf("the model was asked with the key %q", r.Key)
				}
			}
			// Three turns of 100 tokens read and 10 written, as the proxy prices them:
			// after mark_complete there is no lease to think with. What the agent says
			// of itself comes to what the proxy has seen, and is not charged again.
			w.until("the end of the run",
				func() bool { task = w.task(task.TaskID); return task.CurrentRun == nil && task.Runs[0].Exit != nil })
			if want := budget.Money(10_000_000 + 3*(100*4_000+10*20_000)); task.Spent.USD != want ||
				task.Spent.Tokens != 330 {
				t.Errorf("spent $%s and %d tokens, want $%s and 330; ledger:\n%s", task.Spent.USD, task.Spent.Tokens,
					want, w.ok("budget", "ledger", task.TaskID))
			}
		})
	}
}

// A search that the vendor makes is not offered before it has a price, and
// charged with it.
func TestCodingAgentsSearchForAPrice(t *testing.T) {
	for name, prices := range map[string]string{
		"priced":   "  prices: {llm_web_search: {call: 0.01}}\n",
		"unpriced": "",
	} {
		t.Run(name, func(t *testing.T) {
			agent := codingAgents[1]
			dir := clis(t, agent.name)
			w := newTestEnv(t)
			model := llmstub.New(llmstub.Play(
				llmstub.Turn{Call: "report_progress", Args: map[string]any{"summary": "half way"}, Searches: 2},
				llmstub.Turn{Call: "mark_complete", Args: map[string]any{"output": 42, "summary": "done"}},
				llmstub.Turn{Say: "All done."},
			))
			o := httptest.NewServer(model)
			t.Cleanup(o.Close)
			w.put("config/picket/picket.yaml",
				"tools:\n"+prices+"  models: {'*': {input: 4, output: 20}}\n  llm: {openai: {url: '"+o.URL+
					"', key_env: REAL_KEY}}\n")
			w.agentReady(agent, dir, "http://127.0.0.1:9") // nobody is there
			w.env = append(w.env, "REAL_KEY=sk-real")
			w.up()
			task := w.agentRuns(agent, "20")
			want, offered := budget.Money(2*(100*4_000+10*20_000)), false
			for _, r := range model.Requests() {
				offered = offered || r.Offers("web_search")
			}
			if prices != "" {
				want += 2 * 10_000_000
			}
			w.until("the end of the run",
				func() bool { task = w.task(task.TaskID); return task.CurrentRun == nil && task.Runs[0].Exit != nil })
			if task.Spent.USD != want || offered != (prices != "") {
				t.Errorf("spent $%s, want $%s; a search was offered: %t; ledger:\n%s", task.Spent.USD, want, offered,
					w.ok("budget", "ledger", task.TaskID))
			}
		})
	}
}

// When Claude Code shortens its memory, it is told again what the task is and
// what was reported last.
func TestTheReportIsPinnedWhenMemoryIsShortened(t *testing.T) {
	agent := codingAgents[0]
	dir := clis(t, agent.name)
	w := newTestEnv(t)
	play := llmstub.Play(
		// of a million
		llmstub.Turn{
			Call: "report_progress",
			Args: map[string]any{"summary": "half way", "nextStep": "the other half"},
			In:   990_000,
		},
		llmstub.Turn{Call: "mark_complete", Args: map[string]any{"output": 42, "summary": "done"}},
		llmstub.Turn{Say: "All done."},
	)
	var shortened atomic.Bool // what follows it begins with the second turn
	model := llmstub.New(func(r llmstub.Request) llmstub.Turn {
		if strings.Contains(r.Body, "Respond with TEXT ONLY") { // it is asked to shorten its memory
			shortened.Store(true)
			return llmstub.Turn{Say: "<summary>The task is under way.</summary>"}
		}
		if shortened.Load() {
			r.Step++
		}
		return play(r)
	})
	o := httptest.NewServer(model)
	t.Cleanup(o.Close)
	w.agentReady(agent, dir, o.URL)
	w.up()
	w.agentRuns(agent, "50")
	for _, r := range model.Requests() {
		if strings.Contains(r.Body, "The last report on this task (number 1):") &&
			strings.Contains(r.Body, "Next: the other half") {
			return
		}
	}
	t.Errorf("the report was not told again; memory was shortened: %v; %d requests", shortened.Load(),
		len(model.Requests()))
}

// agentReady gives the world the agent's programs and what they need.
func (w *testEnv) agentReady(agent codingAgent, dir, model string) {
	for i, kv := range w.env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			w.env[i] = "PATH=" + dir + ":" + path
		} else if strings.HasPrefix(kv, "TMPDIR=") { // they leave things behind
			w.env[i] = "TMPDIR=" + w.t.TempDir()
		}
	}
	w.env = append(w.env, agent.env(model)...)
	if agent.files != nil {
		agent.files(w, model)
	}
}

// agentRuns has the agent do a task and answers it, completed.
func (w *testEnv) agentRuns(agent codingAgent, usd string) picket.Task {
	w.t.Helper()
	began := time.Now()
	args := append([]string{"run", "--agent", agent.name, "--budget", usd, "--review", "none", "do the task", "--"},
		agent.extra...)
	ran := w.cliFor(6*waitLimit, args...) // some take long to begin on a busy machine
	var list struct {
		Tasks []picket.Task `json:"tasks"`
	}
	w.into(&list, http.MethodGet, "/tasks", nil)
	if ran.code != 0 || len(list.Tasks) != 1 {
		w.t.Fatalf("picket run: exit %d with %d tasks\n%s%s", ran.code, len(list.Tasks), ran.out, ran.errOut)
	}
	task := w.task(list.Tasks[0].TaskID)
	if task.State != picket.TaskCompleted || string(task.Output) != "42" || task.LastReport == nil ||
		task.LastReport.Summary != "half way" {
		w.t.Fatalf("the task is %s with the output %s and the report %+v\n%s%s", task.State, task.Output,
			task.LastReport, ran.out, ran.errOut)
	}
	w.t.Logf("%s took %.1f s", agent.name, time.Since(began).Seconds())
	return task
}

// paidLate holds against the log that the agent's cost came after the end of
// its task, and was charged all the same.
func (w *testEnv) paidLate(task, source string) {
	w.t.Helper()
	var page struct {
		Rows []picket.LedgerRow `json:"rows"`
	}
	w.into(&page, http.MethodGet, "/ledger?task="+task, nil)
	var log struct {
		Events []picket.Event `json:"events"`
	}
	w.into(&log, http.MethodGet, "/events?after=0&limit=500&task="+task, nil)
	completed := int64(0)
	for _, ev := range log.Events {
		if ev.Type == "task.completed" {
			completed = ev.Seq
		}
	}
	usages, late := 0, false
	for _, row := range page.Rows {
		if row.Kind == picket.LedgerUsage && row.Tool == source {
			usages++
			late = row.Seq > completed
		}
	}
	if completed == 0 || usages == 0 || !late {
		w.t.Errorf("the task was completed with event %d, and its %d reports of usage came late: %v", completed, usages,
			late)
	}
}

func prompts(model *llmstub.Server) (all []string) {
	for _, r := range model.Requests() {
		all = append(all, string(r.API)+" offered "+strings.Join(r.Tools, ","))
	}
	return all
}
