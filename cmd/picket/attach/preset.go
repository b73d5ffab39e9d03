package attach

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/cmd/picket/a2a/foreign"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// launch is what is started for a task: a coding agent with arguments of its
// own, or a plain command.
type launch struct {
	preset  agents.Preset   // empty for a plain command
	command []string        // of a coding agent: its program and what is added to its arguments; nil for its own
	foreign *foreign.Remote // to which tasks are passed on; nil: a program is started
}

// agentFlag names the coding agent.
func agentFlag(c *cobra.Command) {
	c.Flags().String("agent", "",
		"the agent to start: claude, codex, gemini, opencode (what follows -- is added to its arguments), or exec: the command after --")
	term.Choices(c, "agent", strings.Split(settings.PresetNames(), ", ")...)
}

// presetOf is the preset of --agent, else that of an entry of picket.yaml.
func presetOf(cmd *cobra.Command, e settings.Agent) (agents.Preset, error) {
	name, _ := cmd.Flags().GetString("agent")
	if !cmd.Flags().Changed("agent") {
		name = e.Launch.Preset
	}
	if p := agents.Preset(name); p != "" {
		if err := p.Check(); err != nil {
			return "", picket.Refuse(exit.CodeUsage, "Choose one of: "+settings.PresetNames(),
				"--agent: there is no agent called %s", term.ShellQuote(name))
		}
		return p, nil
	}
	return "", nil
}

// codingAgentLaunch is a coding agent with the arguments that follow --.
func codingAgentLaunch(cmd *cobra.Command, p agents.Preset, given []string, e settings.Agent) launch {
	l := launch{preset: p, command: e.Launch.Command}
	if agents.Preset(e.Launch.Preset) != p {
		l.command = nil
	}
	if dash := cmd.ArgsLenAtDash(); dash >= 0 && dash < len(given) {
		if len(l.command) == 0 {
			l.command = []string{string(p)}
		}
		l.command = slices.Concat(l.command, given[dash:])
	}
	return l
}

// checkStartable refuses what cannot be started here, before there is a task for it.
func (l launch) checkStartable() error {
	if l.foreign != nil {
		return nil
	}
	if !l.preset.CodingAgent() {
		return checkStartable(l.command)
	}
	if len(l.command) > 0 && l.command[0] != string(l.preset) {
		return checkStartable(l.command)
	}
	if ready := l.preset.Readiness(); ready.Program == "" {
		return picket.Refuse(exit.CodeUsage, ready.Remedy, "%s is not on PATH", ready.Title)
	}
	return nil
}

// applyTo puts it into an adapter's configuration.
func (l launch) applyTo(conf *adapter.Config) {
	conf.Preset, conf.Command = l.preset, l.command
	if l.preset.CodingAgent() {
		conf.PicketPath, _ = os.Executable()
	}
}

// commandFlags are the arguments of `picket adapter` that say the same.
func (l launch) commandFlags() []string {
	if l.preset == "" {
		return nil
	}
	return []string{"--agent", string(l.preset)}
}

// commandArgs follow the -- of `picket adapter`: not the program of a coding agent,
// which it knows.
func (l launch) commandArgs() []string {
	if l.preset.CodingAgent() && len(l.command) > 0 {
		return l.command[1:]
	}
	return l.command
}

// promptOf is what a coding agent is asked, the words before --.
func promptOf(cmd *cobra.Command, given []string) (string, error) {
	before := given
	if dash := cmd.ArgsLenAtDash(); dash >= 0 {
		before = given[:dash]
	}
	prompt := strings.TrimSpace(strings.Join(before, " "))
	if prompt == "" {
		return "", picket.Refuse(exit.CodeUsage,
			"Say what to do: "+cmd.CommandPath()+" --agent claude \"fix the flaky test\"",
			"there is nothing to do: the prompt is missing")
	}
	return prompt, nil
}

// agentMissingError refuses a prompt that nobody is named for.
func agentMissingError(cmd *cobra.Command, prompt string) error {
	var here []string
	for _, p := range agents.Presets {
		if p.CodingAgent() && p.Readiness().Program != "" {
			here = append(here, string(p))
		}
	}
	e := exit.Usagef("%s is a prompt, and no agent is named for it", term.ShellQuote(term.Clip(prompt, 40)))
	e.Remedy = "Name one: --agent claude, codex, gemini or opencode; none of them is on PATH here. Or give a command: " + cmd.CommandPath() + " -- make test"
	if len(here) > 0 {
		e.Remedy = "Name one: --agent " + strings.Join(here, ", or --agent ")
	}
	return e
}

// insideRepository reports whether a directory, or one above it, is a git
// working tree.
func insideRepository(dir string) bool {
	if _, err := exec.LookPath("git"); err != nil {
		return false
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return false
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		above := filepath.Dir(dir)
		if above == dir {
			return false
		}
		dir = above
	}
}

// promptInput is the input of a task whose title is the beginning of its prompt:
// the prompt where the title does not say all of it, beside what --input gives.
func promptInput(prompt, title string, given picket.RawJSON) (picket.RawJSON, error) {
	switch {
	case prompt == "" || prompt == title:
		return given, nil
	case len(given) == 0:
		return json.Marshal(prompt)
	}
	return json.Marshal(struct {
		Prompt string         `json:"prompt"`
		Input  picket.RawJSON `json:"input"`
	}{prompt, given})
}
