package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// saying remembers what was said, so that nothing is said twice.
type saying struct {
	fence   int64
	run     string // that the fence was said of
	report  int64
	handoff string
	runs    int
	away    bool
	waits   string
}

// narrate says in lines what has happened to the task since the last look.
func (a *attachment) narrate() {
	t := a.task
	for _, r := range t.Runs[min(a.said.runs, len(t.Runs)):] {
		a.leased(r.RunID, r.Attempt, r.FencingToken)
		if r.EndedAt.IsZero() {
			break
		}
		a.said.runs++
		// A released run was parked with a question or given back: what comes
		// next tells more than its end.
		if r.State != picket.RunCompleted && r.State != picket.RunReleased {
			a.say("run %d ended: %s", r.Attempt, endText(r))
		}
	}
	if t.State == picket.TaskLeased && t.CurrentRun != nil {
		a.leased(t.CurrentRun.RunID, t.Attempts, t.FencingToken)
	}
	if r := t.LastReport; r != nil && r.Seq > a.said.report {
		a.said.report = r.Seq
		if !a.line.on {
			a.say("report %d: %s", r.Seq, oneLine(r.Summary))
		}
	}
	a.question()
}

// leased says that an attempt has begun, also of one that was over before it was
// looked at. The fence of a run rises when a store that was restarted is adopted.
func (a *attachment) leased(run string, attempt int, fence int64) {
	switch {
	case fence <= a.said.fence:
		return
	case run == a.said.run:
		a.say("the store was restarted; attempt %d goes on under fence %d", attempt, fence)
	default:
		a.say("leased, attempt %d, fence %d", attempt, fence)
	}
	a.said.fence, a.said.run = fence, run
}

// question shows what an agent asks, once, and takes it back when somebody
// else has answered.
func (a *attachment) question() {
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
	if a.said.handoff == h.HandoffID {
		return
	}
	a.said.handoff = h.HandoffID
	w := a.cmd.ErrOrStderr()
	a.say("the agent asks: %s", painter(w).bold(oneLine(h.Question)))
	for i, o := range h.Options {
		fmt.Fprintf(w, "  %d) %s\n", i+1, oneLine(o))
	}
	if a.prompt.possible {
		a.prompt.ask()
		return
	}
	next(a.cmd, answerCommand(*h))
}

// reply sends what was typed. An empty line asks again.
func (a *attachment) reply(text string) {
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
	body := picket.AnswerRequest{Option: chosen(h.Options, text)}
	if body.Option == nil {
		body.Answer, _ = json.Marshal(text)
	}
	if _, _, err := a.s.answer(a.cmd, h.HandoffID, body); err != nil {
		a.say("not answered: %s", oneLine(explain(err)))
		if a.stillAsked(h.HandoffID) {
			a.said.handoff = ""
			a.question()
		}
		return
	}
	a.say("answered; the task is queued again")
}

// stillAsked is false when somebody else has decided, as the refusal of an
// answer has said. What the task was looked at last does not know of it yet.
func (a *attachment) stillAsked(handoff string) bool {
	var h picket.Handoff
	err := a.s.get(a.cmd.Context(), "/api/v1/handoffs/"+segment(handoff), &h, nil)
	return err == nil && h.State == picket.HandoffOpen || err != nil && !errors.Is(err, picket.CodeNotFound)
}

// patientFor is how long a task may be queued before a person is told why.
const patientFor = 2 * time.Second

// countedDown is what passes by itself in the reason of a wait.
var countedDown = regexp.MustCompile(`([0-9]+(ms|[hms])?)+`)

// explainWait says why a task is not started, whenever the reason is a new one:
// less of the same wait is none.
func (a *attachment) explainWait(ctx context.Context) {
	var e picket.Explanation
	if a.task.State != picket.TaskQueued || time.Since(a.task.UpdatedAt.Time()) < patientFor ||
		a.s.get(ctx, "/api/v1/tasks/"+segment(a.task.TaskID)+"/explain", &e, nil) != nil ||
		e.State != picket.TaskQueued || len(e.Because) == 0 {
		return
	}
	reason := countedDown.ReplaceAllString(e.Because[0], "")
	if reason == a.said.waits {
		return
	}
	a.said.waits = reason
	a.say("it waits: %s", oneLine(strings.TrimPrefix(e.Because[0], "it waits ")))
	for _, n := range e.Next {
		next(a.cmd, n)
	}
}

// unanswered is the end of the input, such as Ctrl-D: nobody answers here any
// more.
func (a *attachment) unanswered() {
	a.prompt.lines, a.prompt.possible = nil, false
	if a.prompt.open && a.task.Handoff != nil {
		a.prompt.close()
		a.say("no answer from here; the question stands")
		next(a.cmd, answerCommand(*a.task.Handoff))
	}
}

// chosen is the option that was typed, by its number or its words.
func chosen(options []string, typed string) *string {
	o := optionByNumber(options, typed)
	for _, offered := range options {
		if strings.EqualFold(offered, *o) {
			return &offered
		}
	}
	return nil
}

// verdict says how the task stands and answers the exit code.
func (a *attachment) verdict() int {
	t, p := a.task, painter(a.cmd.ErrOrStderr())
	switch {
	case t.State == picket.TaskReview:
		a.say("%s is in %s; its run took %s", t.TaskID, p.state("review"), took(lastRun(t)))
		next(a.cmd, "picket review show "+t.TaskID, "picket review approve "+t.TaskID)
		return exitOK
	case t.State == picket.TaskCompleted:
		a.say("%s is %s", t.TaskID, p.state("completed"))
		return exitOK
	case escalated(t):
		a.say("%s waits for a person: %s", t.TaskID, oneLine(t.Handoff.Question))
	default:
		a.say("%s is %s: %s", t.TaskID, p.state(string(t.State)), oneLine(t.Reason))
	}
	short := a.s.shortageOf(a.cmd.Context(), t)
	if short.how != "" {
		a.say("%s", short.how)
	}
	next(a.cmd, a.waysOn(short.lacked)...)
	switch e := lastRun(t).Exit; {
	case e != nil && e.Class == picket.ExitTimeout:
		return exitTimeout
	case short.dry:
		return exitBudget
	}
	return exitError
}

// waysOn are the commands that help a task which did not get to its result.
func (a *attachment) waysOn(lacked budget.Envelope) []string {
	t := a.task
	logs := "picket task logs --stream stderr " + t.TaskID
	again := "picket task retry " + t.TaskID + " && " + a.w.again(t.TaskID)
	switch {
	case escalated(t) && !lacked.IsZero():
		return []string{picket.TopUpCommand(t.TaskID, lacked) + " && " + again, logs, "picket task cancel " + t.TaskID}
	case escalated(t):
		return []string{logs, again, "picket task cancel " + t.TaskID}
	}
	return []string{logs, "picket task runs " + t.TaskID}
}

func lastRun(t picket.Task) picket.Run {
	if len(t.Runs) == 0 {
		return picket.Run{}
	}
	return t.Runs[len(t.Runs)-1]
}

// liveLine is the one line at the bottom of a terminal that is always true.
type liveLine struct {
	w     io.Writer
	on    bool // the stream is a terminal
	shown bool
	mid   bool // the agent's output stopped inside a line
	began time.Time
}

func newLiveLine(w io.Writer) *liveLine { return &liveLine{w: w, on: isTerminal(w), began: time.Now()} }

func (l *liveLine) clear() {
	if l.shown {
		fmt.Fprint(l.w, "\r\x1b[2K")
		l.shown = false
	}
}

// output notes where the cursor was left by the agent.
func (l *liveLine) output(b []byte) { l.mid = len(b) > 0 && b[len(b)-1] != '\n' }

// draw shows how long the agent has run, where that is known, else for how long
// the task is watched and its state; then the money.
func (l *liveLine) draw(t picket.Task, running, money string, left time.Duration) {
	if !l.on || l.mid {
		return
	}
	p := painter(l.w)
	parts := []string{clock(time.Since(l.began)), string(t.State)}
	if running != "" {
		parts = []string{oneLine(running)}
	}
	if t.FencingToken > 0 {
		parts = append(parts, fmt.Sprintf("fence %d", t.FencingToken))
	}
	if left > 0 {
		parts = append(parts, "lease "+clock(left))
	}
	if money != "" {
		parts = append(parts, money)
	}
	if t.LastReport != nil {
		parts = append(parts, oneLine(t.LastReport.Summary))
	}
	fmt.Fprint(l.w, "\r\x1b[2K"+p.dim(clip(strings.Join(parts, " · "), columns(l.w)-1)))
	l.shown = true
}
