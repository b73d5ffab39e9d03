package agents

import (
	"os"
	"os/exec"
	"path/filepath"
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
func (p Preset) CodingAgent() bool { return p.spec().program != "" }

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
	if !p.CodingAgent() {
		return nil
	}
	return slices.Concat(p.spec().env, networkEnv)
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
	arguments func(*Setup) ([]string, error)
	// newParser follows the output of one run.
	newParser func() lineParser
	// staysBetweenPrompts is true if one process can take the prompts of a conversation one after the other.
	staysBetweenPrompts bool
	// resumesAnywhere is true if it goes on with a conversation in any directory, not only where that began.
	resumesAnywhere bool
}

// spec is empty for PresetExec and for unknown names.
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
	return &presetSpec{}
}

// Title is the agent's name for people; empty for PresetExec.
func (p Preset) Title() string { return p.spec().title }

// Program is the agent's name on PATH; empty for PresetExec.
func (p Preset) Program() string { return p.spec().program }

// InstallHint tells how to get the agent; empty for PresetExec.
func (p Preset) InstallHint() string { return p.spec().install }

// SessionKinds are the kinds of agent sessions that the agent can have. The first one is the default.
func (p Preset) SessionKinds() []picket.SessionKind {
	switch spec := p.spec(); {
	case spec.program == "":
		return []picket.SessionKind{picket.SessionResident}
	case spec.staysBetweenPrompts:
		return []picket.SessionKind{picket.SessionResumable, picket.SessionResident}
	}
	return []picket.SessionKind{picket.SessionResumable}
}

// SessionKindRefusal says why the agent has only the default kind of session, as the end of a sentence.
func (p Preset) SessionKindRefusal() string {
	if p.CodingAgent() {
		return p.Title() + " answers one prompt and exits"
	}
	return "a command of its own has no conversation that could be resumed"
}

// Linger is what an agent gets to end on its own after it handed in its result.
// A coding agent tells at its very end what it has used.
func (p Preset) Linger() time.Duration {
	if p.CodingAgent() {
		return time.Minute
	}
	return 10 * time.Second
}

// Limits of a run of a coding agent whose task sets none.
const (
	defaultTimeout    = 2 * time.Hour
	defaultStallAfter = 15 * time.Minute
)

// Timeout is how long a run may take if its task sets no timeout; 0 means any time. A
// coding agent that hangs would otherwise hold its task for ever.
func (p Preset) Timeout() time.Duration {
	if p.CodingAgent() {
		return defaultTimeout
	}
	return 0
}

// StallAfter is the silence after which a run is nudged, and ended after as long again,
// if its task does not set it; 0 means never.
func (p Preset) StallAfter() time.Duration {
	if p.CodingAgent() {
		return defaultStallAfter
	}
	return 0
}

// Readiness is what a coding agent finds on this machine.
type Readiness struct {
	Title   string // its name for people
	Program string // its path; empty when it is not on PATH
	Key     string // the variable or the file that it signs in with; empty when there is none
	Remedy  string // what to do about what is missing; empty when nothing is
}

// Readiness looks whether the agent could be started here. PresetExec is always
// ready.
func (p Preset) Readiness() Readiness {
	kind := p.spec()
	if !p.CodingAgent() {
		return Readiness{Title: "a program of your own"}
	}
	r := Readiness{Title: kind.title}
	if path, err := exec.LookPath(kind.program); err == nil {
		r.Program = path
	}
	r.Key = kind.credential()
	switch {
	case r.Program == "":
		r.Remedy = strings.ToUpper(kind.install[:1]) + kind.install[1:]
	case r.Key == "":
		r.Remedy = "Set " + strings.Join(kind.keys, " or ")
		if len(kind.logins) > 0 {
			r.Remedy += ", or sign in once: " + kind.program
		}
	}
	return r
}

// credential is what the agent would sign in with.
func (k *presetSpec) credential() string {
	for _, name := range k.keys {
		if os.Getenv(name) != "" {
			return name
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	for _, login := range k.logins {
		file := filepath.Join(home, filepath.FromSlash(login))
		if _, err := os.Stat(file); err == nil {
			return file
		}
	}
	return ""
}
