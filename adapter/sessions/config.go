package sessions

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
)

// Server is what a keeper asks of the orchestrator, as one agent. Its methods return when their
// context has ended. An error with [picket.CodeAgentGone] ends the keeper. A result that is refused
// with [picket.CodeNotFound], [picket.CodeStateConflict], [picket.CodeValidation] or
// [picket.CodeForbidden] is not sent again, and its prompt ends. After every other error the same
// call is made again, later.
type Server interface {
	// Report sends the whole list of sessions.
	Report(ctx context.Context, r picket.SessionsReport) error
	// Pending returns the commands that have no result yet. If there are none, it waits so long for one.
	Pending(ctx context.Context, wait time.Duration) (picket.PendingCommands, error)
	// Result sends what has become of a command so far. The answer says whether the session has to take a task.
	Result(ctx context.Context, commandID string, r picket.CommandResult) (picket.ResultTaken, error)
}

// Turn is the turn of a session to take a task.
type Turn struct {
	SessionID string
	// Conversation is that of a coding agent, which its run goes on with. The zero value stands for none.
	Conversation agents.Conversation
	// Started takes the id of the task before its run begins. From then on the session works on it.
	Started func(taskID string)
}

// Config says whose sessions are kept and how their processes are started.
type Config struct {
	// Server gets reports and results, and has the commands. Required.
	Server Server
	// Incarnation is the one of the agent, as its registration has answered it. Required.
	Incarnation int64
	// StateDir holds the sessions, their conversations and the commands of the last day. One keeper at
	// a time uses it. What it holds of other presets, and of more than Max sessions, is deleted. Required.
	StateDir string
	// ProxyURL is the tool proxy for prompts that come without one. Defaults to none: the agent gets no
	// session capability for such a prompt.
	ProxyURL string
	// Preset is the coding agent. Required.
	Preset agents.Preset
	// Command is the program, and arguments that are passed on to it. Required for
	// [agents.PresetExec]. Defaults to the preset's program on PATH.
	Command []string
	// Env names variables of the adapter's environment that the processes get beside the usual ones
	// and the preset's. None may begin with PICKET_. Defaults to none.
	Env []string
	// Kind is how the sessions are kept, one of [agents.Preset.SessionKinds]. Defaults to the first of them.
	Kind picket.SessionKind
	// IdleStop ends the process of a resident session that got no prompt for this time. The next prompt starts it
	// again. Defaults to never.
	IdleStop time.Duration
	// Dir is the directory in which the processes work. Defaults to a directory of the session's own
	// below StateDir, which is deleted with the session.
	Dir string
	// Max is how many sessions are kept, 1 to [picket.MaxAgentSessions]. Defaults to 1.
	Max int
	// Interval is the time between two reports if nothing changes. Defaults to 30 s.
	Interval time.Duration
	// StallAfter is how long a prompt may show no output before its session is reported as silent.
	// Defaults to 15 minutes.
	StallAfter time.Duration
	// Containment, Shim and Limits are as in [process.CommandLauncher]. They default to its defaults.
	Containment string
	Shim        []string
	Limits      process.Limits
	// Output returns what takes the output of the processes of a session, except the answers of
	// resident ones. Writing must not block for long, and may be done by two goroutines at once.
	// Defaults to none: output is discarded.
	Output func(sessionID string) io.Writer
	// Work takes a task for a session, if one waits, and returns when its run has ended. If ctx ends, it ends
	// the run. Meanwhile prompts of the session wait, and none of its other processes runs. Defaults to none:
	// the sessions take no tasks.
	Work func(ctx context.Context, t Turn) error
	// AgentCommands takes the commands that heartbeats carry as well, as often as the server sends
	// them. It must not block. Defaults to none: they are left to the heartbeats.
	AgentCommands func([]picket.PendingCommand)
	// Log takes what people should know. Defaults to none.
	Log *slog.Logger

	launcher func(command []string) process.Launcher // of tests; nil: a CommandLauncher
	clock    func() time.Duration                    // of tests; nil: process.BootClock
}

// fill sets the defaults and refuses what cannot work, as a *[picket.Error] with CodeValidation.
func (c *Config) fill() error {
	switch {
	case c.Server == nil:
		return picket.Invalid("Server", "Name the server.", "Server is required")
	case c.Incarnation <= 0:
		return picket.Invalid("Incarnation", "Use what the registration has answered.", "Incarnation is required")
	case c.StateDir == "":
		return picket.Invalid("StateDir", "Name a directory for the sessions.", "StateDir is required")
	case c.Max < 0 || c.Max > picket.MaxAgentSessions:
		return picket.Invalid("Max", "Use 1 to 64.", "%d sessions cannot be kept", c.Max)
	case c.Interval < 0 || c.StallAfter < 0 || c.IdleStop < 0:
		return picket.Invalid("Interval", "Use durations from 0.", "a duration is negative")
	case c.Preset == agents.PresetExec && len(c.Command) == 0:
		return picket.Invalid("Command", "Name the program.", "Command is required for exec")
	}
	for _, name := range c.Env {
		if strings.HasPrefix(name, "PICKET_") {
			return picket.Invalid("Env", "Leave it out.", "%s belongs to a lease, and a session has none", name)
		}
	}
	if err := c.Preset.Check(); err != nil {
		return err
	}
	if err := c.fillKind(); err != nil {
		return err
	}
	if err := process.CheckContainment(c.Containment); err != nil {
		return err
	}
	if err := c.Limits.Fill(); err != nil {
		return err
	}
	c.Max = cmp.Or(c.Max, 1)
	c.Interval = cmp.Or(c.Interval, 30*time.Second)
	c.StallAfter = cmp.Or(c.StallAfter, 15*time.Minute)
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	if c.Output == nil {
		c.Output = func(string) io.Writer { return io.Discard }
	}
	if c.launcher == nil {
		c.launcher = c.commandLauncher
	}
	if c.clock == nil {
		c.clock = process.BootClock
	}
	return c.fillDirs()
}

// PassesMessages reports whether the sessions pass messages on to an agent while it works on a prompt. They do so when
// Pending of the server names a newest message.
func (c *Config) PassesMessages() bool {
	return c.Kind == picket.SessionResident && c.Preset.CodingAgent()
}

// fillKind sets the kind of the sessions. It refuses one that the coding agent cannot have.
func (c *Config) fillKind() error {
	kinds := c.Preset.SessionKinds()
	c.Kind = cmp.Or(c.Kind, kinds[0])
	switch {
	case !slices.Contains(kinds, c.Kind):
		return picket.Invalid("Kind", fmt.Sprintf("Leave it out, or use %s.", kinds[0]),
			"sessions cannot be %s, because %s", c.Kind, c.Preset.SessionKindRefusal())
	case c.IdleStop > 0 && c.Kind == picket.SessionResumable:
		return picket.Invalid("IdleStop", "Leave it out, or use resident sessions.",
			"a resumable session has no process between prompts")
	}
	return nil
}

func (c *Config) fillDirs() (err error) {
	if c.StateDir, err = filepath.Abs(c.StateDir); err != nil {
		return fmt.Errorf("find directory: %w", err)
	}
	if c.Dir != "" {
		if c.Dir, err = filepath.Abs(c.Dir); err != nil {
			return fmt.Errorf("find directory: %w", err)
		}
	}
	return nil
}

// commandLauncher starts a command as those of runs are started.
func (c *Config) commandLauncher(command []string) process.Launcher {
	return process.CommandLauncher{
		Command:     command,
		Env:         slices.Concat(c.Preset.Env(), c.Env),
		Containment: c.Containment,
		Shim:        c.Shim,
		Limits:      c.Limits,
	}
}
