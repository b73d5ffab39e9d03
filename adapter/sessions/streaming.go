package sessions

import (
	"cmp"
	"context"
	"path/filepath"
	"slices"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
)

// streaming is one process of a coding agent that stays between prompts. It reads what it is told as lines, also while
// it works, and stores its conversation, so that the next process goes on with it.
type streaming struct {
	keptProcess

	own       access // of the process
	setup     *agents.Setup
	reader    *agents.OutputReader
	printed   *redactor
	complaint *lastLine

	news chan struct{} // messages may wait; room for one

	turns sync.Mutex  // guards what follows
	open  *openPrompt // nil: none
	// waiting are the lines that the agent has not begun to work on, with the messages that each of them passes on.
	waiting map[string][]picket.Message
}

// openPrompt is a prompt that the process works on.
type openPrompt struct {
	answer func(words string)
	ended  chan string // takes why it has given up, or "", when it has worked on every line; room for one
}

// access keeps the capability of a process that runs. A process cannot learn another one.
func (r *streaming) access(from picket.SessionCommand) access {
	drain(r.news) // what has come before this prompt does not come during it
	wanted := r.k.cfg.wantedAccess(from)
	if r.runs() && r.own.proxyURL == wanted.proxyURL && r.own.namespace == wanted.namespace {
		return r.own
	}
	return r.k.cfg.newAccess(from, r.id)
}

func (r *streaming) prompt(ctx context.Context, p prompt) outcome {
	for again := false; ; again = true {
		if err := r.start(ctx, p); err != nil {
			return cannotStart(err)
		}
		out, untouched := r.ask(ctx, p)
		if !untouched || again || ctx.Err() != nil {
			return out
		}
	}
}

// start starts the process if none runs that has the access of this prompt.
func (r *streaming) start(ctx context.Context, p prompt) error {
	if r.runs() && r.own == p.access {
		return nil
	}
	r.close()
	cfg := &r.k.cfg
	r.own = p.access
	r.setup = agents.NewPromptSetup(cfg.Preset, agents.Prompt{
		ProxyURL:     p.access.proxyURL,
		Capability:   p.access.capability,
		Dir:          r.workDir(),
		StateDir:     filepath.Join(r.dir, conversationDir),
		InheritedEnv: inheritedEnv(slices.Concat(process.DefaultEnv, cfg.Preset.Env(), cfg.Env)),
		Stderr:       r.redacted(),
		Answer:       r.say,
		Resident:     &agents.Resident{Taken: r.take, TurnEnded: r.endTurn},
	})
	r.setup.ProbeModels(ctx)
	r.k.setMetered(r.setup.Metered())
	arguments, err := r.setup.Arguments()
	if err != nil {
		return err
	}
	r.printed, r.complained = r.redacted(), r.redacted()
	r.reader, r.complaint = r.setup.NewOutputReader(), &lastLine{}
	job := r.job(p.killAt)
	job.Env = slices.Concat(job.Env, r.setup.Env(), p.access.env())
	job.Stdout = r.reader.Wrap(r.watch(r.printed))
	job.Stderr = r.complaint.wrap(r.reader.Wrap(r.watch(r.complained)))
	return r.launch(ctx, r.command(arguments), job)
}

// ask gives a prompt to the process. If the process ends before it has read anything of the prompt,
// untouched is true: another one may be asked.
func (r *streaming) ask(ctx context.Context, p prompt) (out outcome, untouched bool) {
	r.killAt(p.killAt)
	r.reader.BeginAnswer()
	line := agents.NewLineID()
	o := r.begin(p, line)
	stop := context.AfterFunc(ctx, r.process.Kill)
	defer stop()
	text := agents.UserLine(line, agents.WithInstructions(p.instructions, p.text))
	n, _ := r.stdin.Write(text) // fails only if the process ends
	end := r.passOnMessages(p)
	select {
	case why := <-o.ended:
		end()
		return r.finishTurn(why, stop), false
	case <-r.process.Done():
		end()
	}
	exit := r.process.Exit()
	r.reader.Finish(exit.Code, exit.Signal != "")
	r.printed.Flush()
	select {
	case why := <-o.ended: // its last words
		return r.finishTurn(why, stop), false
	default:
	}
	r.endPrompt()
	if out = resumableOutcome(exit, r.reader, r.setup.Resumes(), r.complaint.text()); out.failed == "" {
		out = agentEnded(exit, r.complaint.text())
	}
	return out, r.countUnread() == n
}

// finishTurn lets the process stay, unless it has given up or does not reach its tools any more. Then the next prompt
// starts another one.
func (r *streaming) finishTurn(why string, stop func() bool) outcome {
	r.stay(stop)
	r.printed.Flush()
	if why != "" || r.own != (access{}) && r.reader.LostTools() {
		r.close()
	}
	lost := r.setup.Resumes() && r.reader.Conversation() == ""
	switch {
	case why != "" && lost:
		more := cmp.Or(r.complaint.text(), why)
		return outcome{failed: reason(picket.ConversationLost, more), detached: picket.ConversationLost}
	case why != "":
		return outcome{failed: reason("agent_ended", why)}
	}
	return outcome{}
}

// begin notes a prompt that the process is given as a line.
func (r *streaming) begin(p prompt, line string) *openPrompt {
	r.turns.Lock()
	defer r.turns.Unlock()
	r.open = &openPrompt{answer: p.answer, ended: make(chan string, 1)}
	r.waiting = map[string][]picket.Message{line: nil}
	return r.open
}

// endPrompt takes note that the process works on no prompt.
func (r *streaming) endPrompt() {
	r.turns.Lock()
	defer r.turns.Unlock()
	r.open = nil
}

// say takes words of the agent. Those between prompts do not belong to an answer.
func (r *streaming) say(words string) {
	r.turns.Lock()
	defer r.turns.Unlock()
	if r.open != nil {
		r.open.answer(words)
	}
}

// take takes note that the agent works on a line. It knows the messages in it from now on.
func (r *streaming) take(line string) {
	r.turns.Lock()
	defer r.turns.Unlock()
	if seen := r.waiting[line]; len(seen) > 0 {
		r.forgetMessages(seen)
	}
	delete(r.waiting, line)
}

// endTurn takes note that the agent has stopped working. A line that it has not taken begins the next turn. If there is
// none, the prompt has ended.
func (r *streaming) endTurn(why string) {
	r.turns.Lock()
	defer r.turns.Unlock()
	if r.open == nil || len(r.waiting) > 0 && why == "" {
		return
	}
	r.open.ended <- why
	r.open = nil
}

// drain takes a signal that nobody has waited for.
func drain(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
