package adapter

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Preset names a coding agent that the adapter knows: how it is started, how it
// is given Picket's tools, and how its output says what it has used.
type Preset string

const (
	PresetClaude   Preset = "claude"   // Claude Code
	PresetCodex    Preset = "codex"    // OpenAI's Codex CLI
	PresetGemini   Preset = "gemini"   // Gemini CLI
	PresetOpenCode Preset = "opencode" // OpenCode
	PresetExec     Preset = "exec"     // any other program: started as it is
)

// Presets are all that are known.
var Presets = []Preset{PresetClaude, PresetCodex, PresetGemini, PresetOpenCode, PresetExec}

// CodingAgent reports whether the preset is a program of its own that takes a
// prompt, unlike PresetExec.
func (p Preset) CodingAgent() bool { return p.spec() != nil }

// Check refuses a name that is not known.
func (p Preset) Check() error {
	if slices.Contains(Presets, p) {
		return nil
	}
	var names []string
	for _, known := range Presets {
		names = append(names, string(known))
	}
	return picket.Invalid("Preset", "Choose one of: "+strings.Join(names, ", ")+".", "there is no agent called %q",
		string(p))
}

// Env are the variables of the adapter's environment that such an agent gets
// beside the usual ones: its credentials, and where its model is.
func (p Preset) Env() []string {
	if kind := p.spec(); kind != nil {
		return append(slices.Clone(kind.env), networkEnv...)
	}
	return nil
}

// networkEnv are what programs on Node and others need behind a proxy.
var networkEnv = []string{"HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "https_proxy", "http_proxy", "no_proxy",
	"NODE_EXTRA_CA_CERTS"}

// presetSpec is what is known of one coding agent.
type presetSpec struct {
	program     string            // its name on PATH
	title       string            // for people
	install     string            // how to get it
	env         []string          // the variables it gets, by name
	keys        []string          // of those, credentials: one of them is enough
	logins      []string          // or one of these files, below the home directory
	proxyProbes map[string]string // the providers it can be pointed elsewhere for, and where to ask
	// arguments makes its command line, after the program, and writes what it
	// needs beside that. The prompt is one of the arguments.
	arguments func(*runSetup) ([]string, error)
	// newParser follows the output of one run.
	newParser func() lineParser
}

func (p Preset) spec() *presetSpec {
	switch p {
	case PresetClaude:
		return &claude
	case PresetCodex:
		return &codex
	case PresetGemini:
		return &gemini
	case PresetOpenCode:
		return &openCode
	}
	return nil
}

// PresetLauncher starts a coding agent with Picket's tools at hand, reads its
// output for what it has used, and has it go on with its own session when it ran
// on the same task here before. It ends an agent that has no access to the tools.
type PresetLauncher struct {
	// Preset is the agent. Required; not PresetExec.
	Preset Preset
	// Command is the program, and arguments that are passed on to it. Defaults
	// to the preset's program on PATH.
	Command []string
	// Env names variables passed on beside the usual ones and the preset's.
	// Defaults to none.
	Env []string
	// Containment is as in [CommandLauncher]. Defaults to the best that works
	// here.
	Containment string
	// Shim is as in [CommandLauncher]. Defaults to the running program, if it
	// calls RunShim.
	Shim []string
	// Limits are as in [CommandLauncher]. Defaults to the defaults of [Limits].
	Limits Limits
	// Sessions is a directory in which the agent's own sessions are noted, so
	// that a later run goes on with them. Defaults to none: each run begins anew.
	Sessions string
	// PicketPath is the picket program: agents that can are told to call it for the
	// last report after they have shortened their memory. Defaults to none.
	PicketPath string
	// HTTP asks the tool proxy whether its tools can be reached. Defaults to
	// that of [Client].
	HTTP *http.Client
}

// Launch starts the agent.
func (l PresetLauncher) Launch(ctx context.Context, job Job) (Process, error) {
	kind := l.Preset.spec()
	if kind == nil {
		return nil, picket.Invalid("Preset", "Use CommandLauncher for it.", "%q is not a coding agent",
			string(l.Preset))
	}
	if job.StateDir == "" {
		return nil, picket.Invalid("StateDir", "Give the run a directory of its own.",
			"%s needs a directory for its configuration", kind.title)
	}
	e := l.newRunSetup(job)
	if err := e.waitForTools(ctx, l.HTTP); err != nil {
		return nil, err
	}
	if err := e.checkBudget(ctx, l.HTTP); err != nil {
		return nil, err
	}
	e.probeModels(ctx, l.HTTP, kind.proxyProbes)
	arguments, err := kind.arguments(e)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", kind.title, err)
	}
	command := l.command()
	inner := CommandLauncher{
		Command: slices.Concat(command[:1], arguments, command[1:]), Env: slices.Concat(l.Preset.Env(), l.Env),
		Containment: l.Containment, Shim: l.Shim, Limits: l.Limits,
	}
	w := newOutputReader(l.Preset, job, e.session, kind.newParser())
	job.Env = slices.Concat(job.Env, e.env)
	job.Stdout, job.Stderr = w.wrap(job.Stdout), w.wrap(job.Stderr)
	p, err := inner.Launch(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, kind.install)
	}
	return w.follow(p), nil
}

func (l PresetLauncher) command() []string {
	if len(l.Command) > 0 {
		return l.Command
	}
	return []string{l.Preset.spec().program}
}

// newRunSetup puts together what the agent is to know.
func (l PresetLauncher) newRunSetup(job Job) *runSetup {
	proxyURL := envValue(job.Env, "PICKET_PROXY_URL")
	e := &runSetup{
		job:        job,
		picketPath: l.PicketPath,
		proxyURL:   proxyURL,
		mcpURL:     cmp.Or(job.Lease.MCPURL, strings.TrimSuffix(proxyURL, "/")+"/mcp"),
		remaining:  job.Lease.BudgetEnvelope.USD,
	}
	for _, name := range slices.Concat(defaultEnv, l.Preset.Env(), l.Env) {
		if value, set := os.LookupEnv(name); set && value != "" {
			e.inheritedEnv = append(e.inheritedEnv, name+"="+value)
		}
	}
	e.session = openAgentSession(l.Sessions, l.Preset, job)
	return e
}

// envValue is the value of a name among NAME=value.
func envValue(env []string, name string) string {
	for _, kv := range env {
		if n, value, _ := strings.Cut(kv, "="); n == name {
			return value
		}
	}
	return ""
}

// launcher is what starts the agents of a configuration.
func (cfg *Config) launcher() (Launcher, error) {
	if cfg.Preset != "" {
		if err := cfg.Preset.Check(); err != nil {
			return nil, err
		}
	}
	if !cfg.Preset.CodingAgent() {
		if len(cfg.Command) == 0 {
			return nil, picket.Invalid("Command", "Name the program to run and its arguments.",
				"there is no command to run")
		}
		return CommandLauncher{Command: cfg.Command, Env: cfg.Env, Containment: cfg.Containment, Limits: cfg.Limits},
			nil
	}
	return PresetLauncher{
		Preset:      cfg.Preset,
		Command:     cfg.Command,
		Env:         cfg.Env,
		Containment: cfg.Containment,
		Limits:      cfg.Limits,
		PicketPath:  cfg.PicketPath,
		Sessions:    agentSessionsDir(cfg.StateDir),
		HTTP:        cfg.HTTP,
	}, nil
}

// linger is what an agent gets to end by itself after it handed in its result.
// A coding agent tells at its very end what it has used.
func (p Preset) linger() time.Duration {
	if p.CodingAgent() {
		return time.Minute
	}
	return 10 * time.Second
}

// PlannedContainment answers how the trees of agents are held together.
func (l PresetLauncher) PlannedContainment() string {
	return CommandLauncher{Command: l.command(), Containment: l.Containment, Shim: l.Shim}.PlannedContainment()
}

// SupportsExec says whether programs can be run beside its agents.
func (l PresetLauncher) SupportsExec() bool {
	return CommandLauncher{Command: l.command(), Containment: l.Containment, Shim: l.Shim}.SupportsExec()
}

// failByLauncher ends the run for something that its launcher has seen.
func (r *run) failByLauncher(reason string) {
	r.requestStop(stopRequest{mode: stopTermThenKill, class: picket.ExitCrash, reason: reason, inReport: true})
}

// stopOnOverrun ends an agent that has used more than the task had left. Its output
// tells that after the fact: it is stopped after, not refused before.
func (r *run) stopOnOverrun(u picket.Usage) {
	if u.Overrun {
		r.failByLauncher("stopped after the agent's own use of models came to more than the task had left. Top up, then retry it: " +
			picket.TopUpCommand(r.lease.TaskID, NeededToStart(u.Available)))
	}
}
