package attach

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
	"github.com/picket-dev/picket/cmd/picket/settings"
)

// workspaceOptions is where an agent works, what of it stays, and what it sees.
type workspaceOptions struct {
	source workspace.Kind
	resume workspace.Resume
	keep   time.Duration
	remote string
	env    []string
}

// workspaceFlags are the flags of a workplace.
func workspaceFlags(c *cobra.Command, def workspace.Kind) {
	f := c.Flags()
	f.String("workspace", string(def),
		"where the agent works: here, worktree (of the git repository here), copy (of this directory) or empty")
	f.String("resume", string(workspace.ResumeReuse),
		"what the next run of a task begins with: reuse its workspace, a copy of it, or fresh")
	f.Duration("keep", 0, "keep workspaces at least this long after their run; the server may keep them longer")
	f.Lookup("keep").DefValue = ""
	f.String("workspace-remote", "",
		"the git repository to which the branch of a worktree is pushed, so that another machine can continue it")
	f.StringSlice("env", nil, "a further variable NAME that the agent gets")
	f.String("containment", "",
		"how the agent's processes are held together: cgroup, subreaper or group (default: the best that works here)")
	term.Choices(c, "workspace", settings.WorkspaceSources...)
	term.Choices(c, "resume", settings.WorkspaceResumes...)
	term.Choices(c, "containment", picket.Containments...)
}

// workspaceOptionsOf reads the flags of workspaceFlags and the settings behind them. Where
// nothing is said, a coding agent in a repository gets a worktree of it.
func workspaceOptionsOf(cmd *cobra.Command, cfg settings.Settings, p agents.Preset) (at workspaceOptions, err error) {
	source := cfg.Workspace.Source
	if source == "" && p.CodingAgent() && insideRepository(".") {
		source = string(workspace.Worktree)
	}
	if source == "" {
		source = cmd.Flags().Lookup("workspace").DefValue
	}
	at = workspaceOptions{
		source: workspace.Kind(source),
		resume: workspace.Resume(cfg.Workspace.Resume),
		keep:   cfg.Workspace.Keep,
	}
	if at.source == workspace.Worktree {
		at.remote = cfg.Workspace.Remote
	} else if cmd.Flags().Changed("workspace-remote") {
		return at, exit.Usagef("--workspace-remote needs --workspace worktree: a workspace of kind %s has no branch",
			at.source)
	}
	at.env, _ = cmd.Flags().GetStringSlice("env")
	for _, e := range at.env {
		if name, _, given := strings.Cut(e, "="); given {
			return at, exit.Usagef("--env %s: write only the name, --env %s; its value is taken from your environment",
				term.ShellQuote(e), term.ShellQuote(name))
		}
	}
	return at, nil
}

func (at workspaceOptions) applyTo(conf *adapter.Config) {
	conf.Workspace, conf.Resume, conf.KeepWorkspaces, conf.Env = at.source, at.resume, at.keep, at.env
	conf.WorkspaceRemote = at.remote
}

// commandFlags are the flags that say the same to another process.
func (at workspaceOptions) commandFlags() []string {
	args := []string{"--workspace", string(at.source)}
	if at.resume != workspace.ResumeReuse {
		args = append(args, "--resume", string(at.resume))
	}
	if at.keep > 0 {
		args = append(args, "--keep", at.keep.String())
	}
	if at.remote != "" {
		args = append(args, "--workspace-remote", at.remote)
	}
	for _, n := range at.env {
		args = append(args, "--env", n)
	}
	return args
}
