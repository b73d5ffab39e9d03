package settings

import (
	"errors"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// rfc16YAML is the YAML of RFC-0016 section 12, as it stands there.
const rfc16YAML = `agents:
  billing-processor:
    role_id: billing-processor
    capabilities:
      - billing
      - invoicing
      - stripe-integration
    capacity:
      max_concurrent_tasks: 5
    heartbeat:
      interval_seconds: 30
      unhealthy_after_seconds: 90
      dead_after_seconds: 300
    drain_timeout_seconds: 120
    pool:
      min_instances: 1
      max_instances: 5

  code-reviewer:
    role_id: code-reviewer
    capabilities:
      - code-review
      - linting
    capacity:
      max_concurrent_tasks: 3
    heartbeat:
      interval_seconds: 60
      unhealthy_after_seconds: 180
      dead_after_seconds: 600
`

func TestTheDocumentsYAMLLoadsAsItStands(t *testing.T) {
	got, err := loadFile(t, rfc16YAML)
	if err != nil {
		t.Fatal(err)
	}
	e, err := got.AgentNamed("billing-processor")
	if err != nil {
		t.Fatal(err)
	}
	reg := e.registration()
	if err := reg.Normalize(); err != nil {
		t.Fatal(err)
	}
	if reg.RoleID != "billing-processor" ||
		!slices.Equal(reg.Capabilities, []string{"billing", "invoicing", "stripe-integration"}) ||
		*reg.Capacity.MaxConcurrentTasks != 5 ||
		reg.Heartbeat.Config() != (picket.HeartbeatConfig{
			IntervalSeconds:       30,
			UnhealthyAfterSeconds: 90,
			DeadAfterSeconds:      300,
		}) ||
		*reg.DrainTimeoutSeconds != 120 {
		t.Errorf("registration = %+v", reg)
	}
	reviewer, ok := got.AgentOfRole("code-reviewer")
	if reg := reviewer.registration(); !ok || *reg.Heartbeat.DeadAfterSeconds != 600 || reg.DrainTimeoutSeconds != nil {
		t.Errorf("code-reviewer = %+v", reg)
	}
	advice := got.Advice()
	if a := advice["billing-processor"]; len(advice) != 1 || *a.MinInstances != 1 || *a.MaxInstances != 5 {
		t.Errorf("advice = %+v", advice)
	}
}

// fullAgentYAML gives each key of an entry a value that is not its default.
const fullAgentYAML = `stall_after: 9m
workspace: {source: copy, keep: 1h}
agents:
  my.coder:
    role_id: coder
    capabilities: [go, git]
    capacity: {max_concurrent_tasks: 3}
    heartbeat: {interval_seconds: 1, unhealthy_after_seconds: 2, dead_after_seconds: 4}
    drain_timeout_seconds: 7
    pool: {min_instances: 2, max_instances: 2}
    launch: {preset: exec, command: [./agent.sh, "two words"], env: [ANTHROPIC_API_KEY, HTTPS_PROXY]}
    session: {max: 3, only: true, kind: resident, idle_stop: 20m}
    unmetered: true
    wake_budget: 0
    prompts_budget: 3.5
    prompt_budget: $0.25
    linger: 0s
    launcher: {heartbeat_interval: 11s, timeout_warning: 0.5}
    workspace: {source: worktree, resume: fresh, keep: 36h}
    timeout: 10m
    stall_after: 3m
    budget: $0.75
    retry: {max_attempts: 5, on: [timeout, crash], backoff: 1500ms}
    escalate: fail
    review: none
    on_exit: complete
    a2a: {enabled: true, budget: $0.5, max_queue: 20, timeout: 5m, review: none, reused_message_ids: true}
    card:
      name: Coder
      description: |
        Writes code.
        And tests.
      documentation_url: https://example.com/docs
      icon_url: https://example.com/icon.png
      organization: Example
      organization_url: https://example.com
    skills:
      go: {name: Go, description: Writes Go., examples: [fix the test, "a, b"], input_modes: text/plain, output_modes: [text/plain]}
  my.coder.launch: {}
  partner:
    remote: {url: "http://10.1.2.3:7070/agents/builder/", token_env: PARTNER_KEY, allow: [10.0.0.0/8, example.com]}
`

func TestEveryKeyOfAnAgentIsHonoured(t *testing.T) {
	got, err := loadFile(t, fullAgentYAML)
	if err != nil {
		t.Fatal(err)
	}
	e, ok := got.AgentOfRole("coder")
	if !ok {
		t.Fatal("no entry has the role coder")
	}
	for _, k := range keysOf(reflect.ValueOf(e)) {
		path := strings.Split(strings.ReplaceAll(k.Name, "NAME", "go"), ".")
		name := "my.coder"
		if path[0] == "remote" { // it excludes launch
			name = "partner"
		}
		if _, given := got.values[keyOf(append([]string{"agents", name}, path...))]; !given {
			t.Errorf("%s is not in the example: it may be accepted and ignored", k.Name)
		}
	}
	r := got.Agents["partner"].Remote
	if r.URL != "http://10.1.2.3:7070/agents/builder/" || r.TokenEnv != "PARTNER_KEY" ||
		!slices.Equal(r.Allow, []string{"10.0.0.0/8", "example.com"}) {
		t.Errorf("remote = %+v", r)
	}
	if got.LocalWorkerCommand("picket adapter --role partner -- COMMAND") != "picket adapter --as partner" {
		t.Error("the worker of a foreign agent needs no command")
	}
	if e.WakeBudget.String() != "0" || e.PromptsBudget.String() != "3.5" || e.PromptBudget.String() != "0.25" {
		t.Errorf("budgets %s, %s and %s", e.WakeBudget, e.PromptsBudget, e.PromptBudget)
	}
	if !e.Unmetered || e.Session.Max != 3 {
		t.Errorf("unmetered %t, sessions %d", e.Unmetered, e.Session.Max)
	}
	task := got.TaskOf(e)
	if task.BudgetEnvelope.USD.String() != "0.75" || *task.Retry.MaxAttempts != 5 ||
		*task.Retry.BackoffSeconds != 2 ||
		!slices.Equal(task.Retry.On, []picket.ExitClass{"timeout", "crash"}) || task.Escalate != "fail" ||
		task.Review != "none" || task.OnExit != "complete" {
		t.Errorf("task = %+v", task)
	}
	if env := e.Env([]string{"HTTPS_PROXY", "X"}); !slices.Equal(env,
		[]string{"ANTHROPIC_API_KEY", "HTTPS_PROXY", "X"}) {
		t.Errorf("env = %q", env)
	}
	if e.Session.Max != 3 {
		t.Errorf("session.max = %d", e.Session.Max)
	}
	if !e.Session.Only {
		t.Error("session.only is not read")
	}
	if e.Session.Kind != picket.SessionResident || e.Session.IdleStop != 20*time.Minute {
		t.Errorf("session.kind = %q, session.idle_stop = %s", e.Session.Kind, e.Session.IdleStop)
	}
	if e.Linger == nil || *e.Linger != 0 {
		t.Errorf("linger = %v", e.Linger)
	}
	own := got.ForRole("coder")
	if own.Workspace.Source != "worktree" || own.Workspace.Resume != "fresh" ||
		own.Workspace.Keep != 36*time.Hour || own.StallAfter != 3*time.Minute || own.Timeout != 10*time.Minute {
		t.Errorf("the role's own settings do not hold: %v", own)
	}
	if own.Launcher.HeartbeatInterval != 11*time.Second || own.Launcher.TimeoutWarning != 0.5 {
		t.Errorf("the role's own launcher settings do not hold: %v", own.Launcher)
	}
	if other := got.ForRole("tester"); other.Workspace.Source != "copy" || other.StallAfter != 9*time.Minute {
		t.Errorf("another role has them, too: %v", other)
	}
}

// The entry's name is its role unless role_id says otherwise.
func TestAnEntryWithoutKeys(t *testing.T) {
	got, err := loadFile(t, "agents:\n  tester:\n  other: {capabilities: , pool: {}}\n")
	if err != nil {
		t.Fatal(err)
	}
	if e, ok := got.AgentOfRole("tester"); !ok || e.registration().Capacity != nil || got.TaskOf(e).Retry != nil ||
		len(got.Advice()) > 0 {
		t.Errorf("tester: %v %+v", ok, e.registration())
	}
	if _, ok := got.AgentOfRole(""); ok {
		t.Error("a worker that names no role gets an entry")
	}
}

// Every coding agent has the sessions that it can have, and a worker may name its coding agent elsewhere.
func TestKindsOfSessions(t *testing.T) {
	for _, file := range []string{
		"agents: {a: {launch: {preset: claude}, session: {max: 1, kind: resident, idle_stop: 5m}}}",
		"agents: {a: {launch: {preset: claude}, session: {max: 1, kind: resumable}}}",
		"agents: {a: {launch: {preset: codex}, session: {max: 1, kind: resumable}}}",
		"agents: {a: {launch: {command: [./a]}, session: {max: 1, idle_stop: 5m}}}",
		"agents: {a: {session: {max: 1, idle_stop: 5m}}}",
	} {
		if _, err := loadFile(t, file); err != nil {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestBadAgents(t *testing.T) {
	for file, want := range map[string][2]string{
		"agents: []":         {"picket.yaml:1:9: a mapping", ""},
		"agents:\n  a: x":    {"picket.yaml:2:6: a mapping", ""},
		"agents:\n  a b: {}": {"picket.yaml:2:3: 'a b' is not a name of an agent", ""},
		"agents:\n  a:\n    capabilites: [x]": {`picket.yaml:3:5: there is no key "capabilites" in agents.a`,
			`Did you mean "capabilities"?`},
		"agents:\n  a:\n    retry: {max_attemps: 3}": {`picket.yaml:3:13: there is no key "max_attemps" in agents.a.retry`, `Did you mean "max_attempts"?`},
		"agents:\n  a:\n    session: {max: 65}":      {"picket.yaml:3:15: agents.a.session.max", ""},
		"agents:\n  a:\n    session: {kind: pet}":    {`picket.yaml:3:15: agents.a.session.kind: "pet" is not one of resumable, resident`, ""},
		"agents:\n  a:\n    launch: {preset: codex}\n    session: {kind: resident}": {
			"picket.yaml:4:15: agents.a.session.kind is resident, and Codex answers one prompt and exits", "write resumable"},
		"agents:\n  a:\n    launch: {preset: gemini}\n    session: {kind: resident}": {
			"picket.yaml:4:15: agents.a.session.kind is resident, and Gemini CLI answers one prompt", "write resumable"},
		"agents:\n  a:\n    launch: {preset: opencode}\n    session: {kind: resident}": {
			"picket.yaml:4:15: agents.a.session.kind is resident, and OpenCode answers one prompt", "write resumable"},
		"agents:\n  a:\n    launch: {command: [./a]}\n    session: {kind: resumable}": {
			"picket.yaml:4:15: agents.a.session.kind is resumable, and a command of its own has no conversation", "write resident"},
		"agents:\n  a:\n    launch: {preset: claude}\n    session: {max: 1, idle_stop: 5m}": {
			"picket.yaml:4:23: agents.a.session.idle_stop is given, and a resumable session has no process between prompts", "set session.kind to resident"},
		"agents:\n  a:\n    session: {max: 1, kind: resumable, idle_stop: 5m}": {
			"agents.a.session.idle_stop is given, and a resumable session", "Leave session.idle_stop out"},
		"agents:\n  a:\n    launch: {command: [./a]}\n    session: {idle_stop: 5m}": {
			"picket.yaml:4:15: agents.a.session.idle_stop is given, and a worker keeps no sessions", "session.max to at least 1"},
		"agents:\n  a:\n    session: {max: 1, idle_stop: -5m}": {"agents.a.session.idle_stop", ""},
		"agents:\n  a:\n    launch: {preset: clod}":            {"picket.yaml:3:14: agents.a.launch.preset: there is no agent called clod", ""},
		"agents:\n  a:\n    launch: {preset: exec}":            {"picket.yaml:3:14: agents.a.launch.preset is exec, and no command is given", "Add the command"},
		"agents:\n  a:\n    launch: {command: []}": {"picket.yaml:3:14: agents.a.launch.command names no program",
			""},
		"agents:\n  a:\n    launch: {command: {x: y}}": {"agents.a.launch.command: a list of single values", ""},
		"agents:\n  a:\n    launch: {env: [A=b]}":      {"picket.yaml:3:14: agents.a.launch.env: A=b: write only the name", ""},
		"agents:\n  a:\n    launch: {env: PICKET_API_KEY}": {"PICKET_API_KEY cannot be passed",
			""},
		"agents:\n  a:\n    role_id: [x]": {"picket.yaml:3:5: agents.a.role_id: a single value is expected", ""},
		"agents:\n  a:\n    role_id: 'x y'": {"picket.yaml:3:5: agents.a.role_id",
			""},
		"agents:\n  a: {}\n  b: {role_id: a}":                           {"picket.yaml:3:7: the role a is that of agents.a already, at picket.yaml:2:3", "one pool"},
		"agents: {a: {}}\n---\nagents: {a: {}}":                         {"agents.a is there already, at picket.yaml:1:10", ""},
		"agents:\n  a:\n    pool: {min_instances: 3, max_instances: 2}": {"picket.yaml:3:12: agents.a.pool.min_instances is 3, more than max_instances (2)", "at most"},
		"agents:\n  a:\n    pool: {min_instances: -1}":                  {"picket.yaml:3:12: agents.a.pool.min_instances: -1 is not a whole number", ""},
		"agents:\n  a:\n    heartbeat:\n      interval_seconds: 60":     {"picket.yaml:3:5: agents.a.heartbeat.unhealthy_after_seconds: unhealthy_after_seconds is 90, less than twice interval_seconds (60)", "at least twice"},
		"agents:\n  a:\n    heartbeat: {dead_after_seconds: 179}":       {"picket.yaml:3:17: agents.a.heartbeat.dead_after_seconds", "at least twice"},
		"agents:\n  a:\n    heartbeat: {interval_seconds: 0}":           {"picket.yaml:3:17: agents.a.heartbeat.interval_seconds is 0, allowed are 1", "Give a number"},
		"agents:\n  a:\n    drain_timeout_seconds: 2m":                  {"agents.a.drain_timeout_seconds: 2m is not a whole number", ""},
		"agents:\n  a:\n    capabilities: [ok, 'not ok']":               {"picket.yaml:3:5: agents.a.capabilities", ""},
		"agents:\n  a:\n    retry: {on: [lease_lost]}": {"picket.yaml:3:13: agents.a.retry.on",
			"Give one of"},
		"agents:\n  a:\n    retry: {max_attempts: 101}": {"picket.yaml:3:13: agents.a.retry.max_attempts is 101", ""},
		"agents:\n  a:\n    escalate: dog":              {"picket.yaml:3:5: agents.a.escalate is \"dog\"", "human"},
		"agents:\n  a:\n    review: parent":             {"picket.yaml:3:5: agents.a.review: a task that no other task delegated has no parent to review it", "Give human or none"},
		"agents:\n  a:\n    on_exit: 3":                 {"agents.a.on_exit is \"3\"", ""},
		"agents:\n  a:\n    budget: lots": {"picket.yaml:3:5: agents.a.budget",
			""},
		"agents:\n  a:\n    timeout: 100ms": {"agents.a.timeout: 100ms is not",
			""},
		"agents:\n  a:\n    timeout: 9999h":                                       {"picket.yaml:3:5: agents.a.timeout: 9999h is not a whole number of seconds from 1s to 168h", ""},
		"agents:\n  a:\n    workspace: {source: there}":                           {"agents.a.workspace.source: \"there\" is not one of", ""},
		"agents:\n  a:\n    workspace: {resume: x}":                               {"agents.a.workspace.resume", ""},
		"agents:\n  a:\n    launcher: {heartbeat_interval: 9s}":                   {`agents.a.launcher.heartbeat_interval: "9s" is not a duration from 10s to 24h`, ""},
		"agents:\n  a:\n    launcher: {timeout_warning: 80}":                      {`agents.a.launcher.timeout_warning: "80" is not a share above 0 and up to 1, such as 0.8`, ""},
		"agents:\n  a:\n    stall_after: 1s":                                      {"agents.a.stall_after", ""},
		"agents:\n  a:\n    capacity: {max_concurrent_tasks: 5, current_load: 1}": {`there is no key "current_load" in agents.a.capacity`, "max_concurrent_tasks"},
	} {
		_, err := loadFile(t, file)
		if err == nil || !strings.Contains(exit.Text(err), want[0]) || exit.Code(err) != exit.Usage ||
			!strings.Contains(exit.Remedy(err), want[1]) {
			t.Errorf("%q:\n     %v (fix: %s; exit code %d)\nwant %q, fix %q", file, err, exit.Remedy(err),
				exit.Code(err),
				want[0], want[1])
		}
		if refusal := new(picket.Error); !errors.As(err, &refusal) {
			t.Errorf("%q: no refusal: %v", file, err)
		}
	}
}

// The tables of the manual have the keys of the fields, with their flags and defaults.
func TestDocumentedKeys(t *testing.T) {
	text, err := os.ReadFile("../../../docs/operations/settings.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 {
			if name, ok := strings.CutPrefix(strings.TrimSpace(cells[1]), "`"); ok {
				documented[strings.TrimSuffix(name, "`")] = cells[2:]
			}
		}
	}
	inCode := func(text string) string {
		if text == "" {
			return ""
		}
		return "`" + text + "`"
	}
	for _, k := range keysOf(reflect.ValueOf(Settings{})) {
		cells, ok := documented[k.Name]
		if !ok {
			t.Errorf("docs/operations/settings.md does not have the key %s", k.Name)
			continue
		}
		delete(documented, k.Name)
		flag := k.Flag
		if flag != "" {
			flag = "--" + flag
		}
		if k.Env == "" {
			continue
		}
		if shown := strings.TrimSpace(cells[0]); shown != inCode(flag) {
			t.Errorf("docs/operations/settings.md: the flag of %s is %s, not %s", k.Name, inCode(flag), shown)
		}
		shown := strings.TrimSpace(cells[1])
		if coded := strings.HasPrefix(shown, "`") && !strings.Contains(shown, " "); k.Name != "data" &&
			(k.Default != "" || coded) && shown != inCode(k.Default) {
			t.Errorf("docs/operations/settings.md: the default of %s is %s, not %s", k.Name, inCode(k.Default), shown)
		}
	}
	for name := range documented {
		t.Errorf("docs/operations/settings.md has the key %s, which does not exist", name)
	}
}

// An entry of a coding agent has the limits of its preset, unless the entry or a general key
// sets them.
func TestAnEntryOfACodingAgentHasLimits(t *testing.T) {
	for file, want := range map[string][2]time.Duration{
		"": {2 * time.Hour, 15 * time.Minute},
		"    timeout: 10m\n    stall_after: 5m\n":         {10 * time.Minute, 5 * time.Minute},
		"    stall_after: 5m\n":                           {2 * time.Hour, 5 * time.Minute},
		"stall_after: 20m\ntimeout: 3h\n":                 {3 * time.Hour, 20 * time.Minute},
		"    timeout: 10m\nstall_after: 20m\n":            {10 * time.Minute, 20 * time.Minute},
		"    stall_after: 5m\ntimeout: 3h\n":              {3 * time.Hour, 5 * time.Minute},
		"  other:\n    launch: {command: [./agent.sh]}\n": {2 * time.Hour, 15 * time.Minute},
	} {
		got, err := loadFile(t, "agents:\n  coder:\n    launch: {preset: claude}\n"+file)
		if err != nil {
			t.Fatal(file, err)
		}
		own := got.ForRole("coder")
		if limits := [2]time.Duration{own.Timeout, own.StallAfter}; limits != want {
			t.Errorf("%q: the limits are %v, want %v", file, limits, want)
		}
		if strings.HasPrefix(file, "  other") {
			if other := got.ForRole("other"); other.Timeout != 0 || other.StallAfter != 0 {
				t.Errorf("a command has the limits %s, %s", other.Timeout, other.StallAfter)
			}
		}
	}
}

// What `config show` says of keys that nothing sets are the limits of the presets.
func TestUnsetLimitsAreShownAsTheyAre(t *testing.T) {
	for _, k := range KnownSettings() {
		want := map[string]time.Duration{
			"timeout": agents.PresetClaude.Timeout(), "stall_after": agents.PresetClaude.StallAfter(),
		}[k.Name]
		if want == 0 {
			continue
		}
		shown, _, _ := strings.Cut(k.Unset, " ")
		if d, err := time.ParseDuration(shown); err != nil || d != want || !strings.Contains(k.What, shown) {
			t.Errorf("%s is shown as %q and described as %q, want %s", k.Name, k.Unset, k.What, want)
		}
	}
}
