package sessions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/text"
)

// resumable starts the coding agent for each prompt.
type resumable struct{ *session }

// close has nothing to end: no process runs between prompts.
func (r *resumable) close() {}

func (r *resumable) prompt(ctx context.Context, p prompt) outcome {
	printed, complained := r.redacted(), r.redacted()
	defer printed.Flush()
	defer complained.Flush()
	setup := r.setup(p, r.redacted())
	setup.ProbeModels(ctx)
	r.k.setMetered(setup.Metered())
	arguments, err := setup.Arguments()
	if err != nil {
		return cannotStart(err)
	}
	reader, complaint := setup.NewOutputReader(), &lastLine{}
	job := r.job(p.killAt)
	job.Env = slices.Concat(job.Env, setup.Env(), p.access.env())
	job.Stdout, job.Stderr = reader.Wrap(r.watch(printed)), complaint.wrap(reader.Wrap(r.watch(complained)))
	running, err := r.k.cfg.launcher(r.command(arguments)).Launch(ctx, job)
	if err != nil {
		return cannotStart(err)
	}
	stop := context.AfterFunc(ctx, running.Kill)
	<-running.Done()
	stop()
	exit := running.Exit()
	reader.Finish(exit.Code, exit.Signal != "")
	return resumableOutcome(exit, reader, setup.Resumes(), complaint.text())
}

// redacted takes a stream of a process, and passes it on to the output of the session.
func (s *session) redacted() *redactor { return &redactor{to: s.k.cfg.Output(s.id)} }

// setup is what the coding agent is told.
func (r *resumable) setup(p prompt, output io.Writer) *agents.Setup {
	cfg := &r.k.cfg
	return agents.NewPromptSetup(cfg.Preset, agents.Prompt{
		Text:         agents.WithInstructions(p.instructions, p.text),
		ProxyURL:     p.access.proxyURL,
		Capability:   p.access.capability,
		Dir:          r.workDir(),
		StateDir:     filepath.Join(r.dir, conversationDir),
		InheritedEnv: inheritedEnv(slices.Concat(process.DefaultEnv, cfg.Preset.Env(), cfg.Env)),
		Stderr:       output,
		Answer:       p.answer,
	})
}

// command is the program with the arguments of the preset, and those that are passed on.
func (s *session) command(arguments []string) []string {
	command := s.k.cfg.Command
	if len(command) == 0 {
		command = []string{s.k.cfg.Preset.Program()}
	}
	return slices.Concat(command[:1], arguments, command[1:])
}

// resumableOutcome judges the end of a coding agent. An agent that was told to resume and has not begun a
// conversation has lost it.
func resumableOutcome(exit process.Exited, reader *agents.OutputReader, resumed bool, complaint string) outcome {
	switch why := reader.Stopped(); {
	case exit.Code == 0 && why == "":
		return outcome{}
	case resumed && exit.Signal == "" && reader.Conversation() == "":
		return outcome{failed: reason(picket.ConversationLost, complaint), detached: picket.ConversationLost}
	case why != "":
		return outcome{failed: reason("agent_ended", why)}
	default:
		return agentEnded(exit, complaint)
	}
}

// job is what the launcher gets for a process of the session.
func (s *session) job(killAt time.Duration) process.Job {
	return process.Job{
		Lease:    picket.Lease{RunID: s.id}, // names the cgroup
		Dir:      s.workDir(),
		StateDir: filepath.Join(s.dir, processDir),
		KillAt:   killAt,
		Lock:     s.k.lock,
		Env:      []string{"PICKET_SESSION_ID=" + s.id},
	}
}

func cannotStart(err error) outcome {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return outcome{failed: reason(picket.CannotStart, err.Error())}
	}
	return outcome{failed: reason(picket.CannotStart, err.Error()), detached: picket.CannotStart}
}

func agentEnded(exit process.Exited, complaint string) outcome {
	how := fmt.Sprintf("exit code %d", exit.Code)
	if exit.Signal != "" {
		how = "killed by " + exit.Signal
	}
	if complaint != "" {
		how += ": " + complaint
	}
	return outcome{failed: reason("agent_ended", how)}
}

// reason is a reason and what more there is to say, within the bound of reasons.
func reason(code, more string) string {
	if more = strings.TrimSpace(text.OneLine(more)); more == "" {
		return code
	}
	return text.ValidHead(code+": "+more, picket.MaxPromptReason)
}

// inheritedEnv are the variables of the adapter's environment that have a value.
func inheritedEnv(names []string) (env []string) {
	for _, name := range names {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// lastLine remembers the last line that was written, up to a bound.
type lastLine struct {
	mu   sync.Mutex
	line string
}

const maxComplaint = 300 // bytes

func (l *lastLine) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.line
}
