package adapter

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
)

// PresetLauncher starts a coding agent with Picket's tools at hand, reads its
// output for what it has used, and has it go on with its own session when it ran
// on the same task here before. It ends an agent that has no access to the tools.
type PresetLauncher struct {
	// Its Command is the program, and arguments that are passed on to it. Defaults
	// to the preset's program on PATH. The variables in Env are passed on beside the
	// usual ones and the preset's.
	process.CommandLauncher
	// Preset is the agent. Required; not PresetExec.
	Preset agents.Preset
	// Sessions is a directory in which the agent's own sessions are noted, so
	// that a later run can continue them. Defaults to none: each run starts a new session.
	Sessions string
	// Conversation is that of an agent session that takes tasks; then Sessions does not count. Defaults to none.
	Conversation agents.Conversation
	// PicketPath is the picket program: agents that can are told to call it for the
	// last report after they have shortened their memory. Defaults to none.
	PicketPath string
	// HTTP asks the tool proxy whether its tools can be reached. Defaults to
	// [client.DefaultHTTP].
	HTTP *http.Client
}

// Launch starts the agent.
func (l PresetLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	if !l.Preset.CodingAgent() {
		return nil, picket.Invalid("Preset", "Use CommandLauncher for it.", "%q is not a coding agent",
			string(l.Preset))
	}
	if job.StateDir == "" {
		return nil, picket.Invalid("StateDir", "Give the run a directory of its own.",
			"%s needs a directory for its configuration", l.Preset.Title())
	}
	setup := l.newSetup(job)
	if err := setup.WaitForTools(ctx); err != nil {
		return nil, err
	}
	left, err := l.checkBudget(ctx, job.Lease, setup.ProxyURL())
	if err != nil {
		return nil, err
	}
	setup.Remaining = left.USD
	setup.ProbeModels(ctx)
	arguments, err := setup.Arguments()
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", l.Preset.Title(), err)
	}
	command := l.Command
	if len(command) == 0 {
		command = []string{l.Preset.Program()}
	}
	inner := l.CommandLauncher
	inner.Command = slices.Concat(command[:1], arguments, command[1:])
	inner.Env = slices.Concat(l.Preset.Env(), l.Env)
	output := setup.NewOutputReader()
	job.Env = slices.Concat(job.Env, setup.Env())
	job.Stdout, job.Stderr = output.Wrap(job.Stdout), output.Wrap(job.Stderr)
	ended := job.Ended
	job.Ended = func(exit process.Exited) {
		output.Finish(exit.Code, exit.Signal != "")
		if ended != nil {
			ended(exit)
		}
	}
	p, err := inner.Launch(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("%w (%s)", err, l.Preset.InstallHint())
	}
	return p, nil
}

// newSetup collects what the agent is told.
func (l PresetLauncher) newSetup(job process.Job) *agents.Setup {
	run := agents.Run{
		Lease:      job.Lease,
		Dir:        job.Dir,
		StateDir:   job.StateDir,
		Env:        job.Env,
		Sessions:   l.Sessions,
		PicketPath: l.PicketPath,
		HTTP:       cmp.Or(l.HTTP, client.DefaultHTTP),
		Stderr:     job.Stderr,
		Used:       job.Used,
		Session:    job.Session,
		Fail:       job.Fail,

		Conversation: l.Conversation,
	}
	for _, name := range slices.Concat(process.DefaultEnv, l.Preset.Env(), l.Env) {
		if value, set := os.LookupEnv(name); set && value != "" {
			run.InheritedEnv = append(run.InheritedEnv, name+"="+value)
		}
	}
	return agents.NewSetup(l.Preset, run)
}

// checkBudget asks what the task has left; if nobody answers, it is what the lease
// granted. An agent is not started without budget: what it costs is known only when
// it is spent.
func (l PresetLauncher) checkBudget(ctx context.Context, lease picket.Lease,
	proxyURL string) (left budget.Envelope, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	left = lease.BudgetEnvelope
	if task, err := NewProxy(lease, proxyURL, l.HTTP).Task(ctx); err == nil {
		left = task.Available
	}
	if left.USD > 0 && left.Tokens > 0 {
		return left, nil
	}
	return left, budgetRefusal(lease.TaskID, left)
}
