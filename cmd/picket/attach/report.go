package attach

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// announced remembers what was printed, so that nothing is printed twice.
type announced struct {
	fence      int64
	run        string // whose fencing token was printed
	report     int64
	handoff    string
	runs       int
	serverAway bool
	waitReason picket.ReasonCode
}

// narrate says in lines what has happened to the task since the last look.
func (a *attachment) narrate() {
	t := a.task
	for _, r := range t.Runs[min(a.told.runs, len(t.Runs)):] {
		a.announceLease(r.RunID, r.Attempt, r.FencingToken)
		if r.EndedAt.IsZero() {
			break
		}
		a.told.runs++
		// A released run was parked with a question or given back: what comes
		// next tells more than its end.
		if r.State != picket.RunCompleted && r.State != picket.RunReleased {
			a.say("run %d ended: %s", r.Attempt, cli.EndText(r))
		}
	}
	if t.State == picket.TaskLeased && t.CurrentRun != nil {
		a.announceLease(t.CurrentRun.RunID, t.Attempts, t.FencingToken)
	}
	if r := t.LastReport; r != nil && r.Seq > a.told.report {
		a.told.report = r.Seq
		if !a.status.terminal {
			a.say("report %d: %s", r.Seq, term.OneLine(r.Summary))
		}
	}
	a.askQuestion()
}

// announceLease says that an attempt has begun, also of one that was over before it was
// looked at. The fence of a run rises when a store that was restarted is adopted.
func (a *attachment) announceLease(run string, attempt int, fence int64) {
	switch {
	case fence <= a.told.fence:
		return
	case run == a.told.run:
		a.say("the store was restarted; attempt %d goes on under fence %d", attempt, fence)
	default:
		a.say("leased, attempt %d, fence %d", attempt, fence)
	}
	a.told.fence, a.told.run = fence, run
}

// askQuestion shows what an agent asks, once, and takes it back when somebody
// else has answered.
func (a *attachment) askQuestion() {
	h := a.task.Handoff
	asked := a.task.State == picket.TaskHandoff && h != nil && h.State == picket.HandoffOpen &&
		h.Kind != picket.HandoffEscalation
	if !asked {
		if a.prompt.open {
			a.prompt.close()
			a.say("the question was answered elsewhere")
		}
		return
	}
	if a.told.handoff == h.HandoffID {
		return
	}
	a.told.handoff = h.HandoffID
	w := a.cmd.ErrOrStderr()
	a.say("the agent asks: %s", term.Painter(w).Bold(term.OneLine(h.Question)))
	for i, o := range h.Options {
		fmt.Fprintf(w, "  %d) %s\n", i+1, term.OneLine(o))
	}
	if a.prompt.interactive {
		a.prompt.ask()
		return
	}
	cli.PrintNext(a.cmd, cli.AnswerCommand(*h))
}

// sendAnswer sends what was typed. An empty line asks again.
func (a *attachment) sendAnswer(text string) {
	h := a.task.Handoff
	if !a.prompt.open || h == nil {
		return
	}
	text = strings.TrimSpace(text)
	if text == "" {
		a.prompt.ask()
		return
	}
	a.prompt.close()
	body := picket.AnswerRequest{Option: matchOption(h.Options, text)}
	if body.Option == nil {
		body.Answer, _ = json.Marshal(text)
	}
	if _, _, err := a.s.Answer(a.cmd, h.HandoffID, body); err != nil {
		a.say("not answered: %s", term.OneLine(exit.Text(err)))
		if a.handoffOpen(h.HandoffID) {
			a.told.handoff = ""
			a.askQuestion()
		}
		return
	}
	a.say("answered; the task is queued again")
}

// handoffOpen is false when somebody else has decided, which the refusal of an answer reports. What
// the task was looked at last does not know of it yet.
func (a *attachment) handoffOpen(handoff string) bool {
	h, err := a.s.Handoffs.Get(a.cmd.Context(), handoff)
	return err == nil && h.State == picket.HandoffOpen || err != nil && !errors.Is(err, picket.CodeNotFound)
}

// explainAfter is how long a task may be queued before a person is told why.
const explainAfter = 2 * time.Second

// explainWait says why a task is not started. It says each kind of reason once in
// a row, not how much of the same wait is left.
func (a *attachment) explainWait(ctx context.Context) {
	if a.task.State != picket.TaskQueued || time.Since(a.task.UpdatedAt.Time()) < explainAfter {
		return
	}
	e, err := a.s.Tasks.Explain(ctx, a.task.TaskID)
	if err != nil || e.State != picket.TaskQueued || len(e.Reasons) == 0 {
		return
	}
	reason := e.Reasons[0]
	if reason.Code == a.told.waitReason {
		return
	}
	a.told.waitReason = reason.Code
	a.say("it waits: %s", term.OneLine(strings.TrimPrefix(reason.Text, "it waits ")))
	for _, n := range e.Next {
		cli.PrintNext(a.cmd, n)
	}
}

// inputClosed is the end of the input, such as Ctrl-D: nobody answers here any
// more.
func (a *attachment) inputClosed() {
	a.prompt.lines, a.prompt.interactive = nil, false
	if a.prompt.open && a.task.Handoff != nil {
		a.prompt.close()
		a.say("no answer from here; the question stands")
		cli.PrintNext(a.cmd, cli.AnswerCommand(*a.task.Handoff))
	}
}

// matchOption is the option that was typed, by its number or its words.
func matchOption(options []string, typed string) *string {
	o := cli.OptionByNumber(options, typed)
	for _, offered := range options {
		if strings.EqualFold(offered, *o) {
			return &offered
		}
	}
	return nil
}

// reportOutcome says how the task stands and answers the exit code.
func (a *attachment) reportOutcome() int {
	t, p := a.task, term.Painter(a.cmd.ErrOrStderr())
	switch {
	case t.State == picket.TaskReview:
		a.say("%s is in %s; its run took %s", t.TaskID, p.State("review"), cli.RunDuration(cli.LastRun(t)))
		cli.PrintNext(a.cmd, "picket review show "+t.TaskID, "picket review approve "+t.TaskID)
		return exit.OK
	case t.State == picket.TaskCompleted:
		a.say("%s is %s", t.TaskID, p.State("completed"))
		return exit.OK
	case escalated(t):
		a.say("%s waits for a person: %s", t.TaskID, term.OneLine(t.Handoff.Question))
	default:
		a.say("%s is %s: %s", t.TaskID, p.State(string(t.State)), term.OneLine(t.Reason))
	}
	short := shortageOf(a.cmd.Context(), a.s, t)
	if short.reason != "" {
		a.say("%s", short.reason)
	}
	cli.PrintNext(a.cmd, a.nextCommands(short.lacked)...)
	switch e := cli.LastRun(t).Exit; {
	case e != nil && e.Class == picket.ExitTimeout:
		return exit.Timeout
	case short.outOfBudget:
		return exit.Budget
	}
	return exit.Error
}

// nextCommands are the commands that help a task which did not get to its result.
func (a *attachment) nextCommands(lacked budget.Envelope) []string {
	t := a.task
	logs := "picket task logs --stream stderr " + t.TaskID
	again := "picket task retry " + t.TaskID + " && " + a.adapter.restartCommand(t.TaskID)
	switch {
	case escalated(t) && !lacked.IsZero():
		return []string{picket.TopUpCommand(t.TaskID, lacked) + " && " + again, logs, "picket task cancel " + t.TaskID}
	case escalated(t):
		return []string{logs, again, "picket task cancel " + t.TaskID}
	}
	return []string{logs, "picket task runs " + t.TaskID}
}

// statusLine is the one line at the bottom of a terminal that is always true.
type statusLine struct {
	w        io.Writer
	terminal bool // the stream is a terminal
	visible  bool
	midLine  bool // the agent's output stopped inside a line
	began    time.Time
}

func newStatusLine(w io.Writer) *statusLine {
	return &statusLine{w: w, terminal: term.IsTerminal(w), began: time.Now()}
}

func (l *statusLine) clear() {
	if l.visible {
		fmt.Fprint(l.w, "\r\x1b[2K")
		l.visible = false
	}
}

// noteOutput notes where the cursor was left by the agent.
func (l *statusLine) noteOutput(b []byte) { l.midLine = len(b) > 0 && b[len(b)-1] != '\n' }

// draw shows how long the agent has run, where that is known, else for how long
// the task is watched and its state; then the money.
func (l *statusLine) draw(t picket.Task, running, money string, left time.Duration) {
	if !l.terminal || l.midLine {
		return
	}
	p := term.Painter(l.w)
	parts := []string{term.ClockText(time.Since(l.began)), string(t.State)}
	if running != "" {
		parts = []string{term.OneLine(running)}
	}
	if t.FencingToken > 0 {
		parts = append(parts, fmt.Sprintf("fence %d", t.FencingToken))
	}
	if left > 0 {
		parts = append(parts, "lease "+term.ClockText(left))
	}
	if money != "" {
		parts = append(parts, money)
	}
	if t.LastReport != nil {
		parts = append(parts, term.OneLine(t.LastReport.Summary))
	}
	fmt.Fprint(l.w, "\r\x1b[2K"+p.Dim(term.Clip(strings.Join(parts, " · "), term.TerminalWidth(l.w)-1)))
	l.visible = true
}
