package a2a

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/internal/text"
)

// work is the work of one run: it passes a task on to a foreign agent, follows the foreign task, and hands in its
// result. Everything that the agent says is untrusted text.
type work struct {
	*foreignRun
	agent *agent

	mu    sync.Mutex
	saved checkpoint // as the last report has it, or is about to have it

	used picket.UsageReport // the last one that was booked
	// answered names the question that this run has answered, and when.
	answered   string
	answeredAt time.Time
}

// toolError is the error of a tool of Picket, unlike that of the foreign agent.
type toolError struct{ error }

func (e toolError) Unwrap() error { return e.error }

// errSilent says that the foreign agent has not answered for too long. The next run goes on with the task.
var errSilent = errors.New("the foreign agent does not answer")

// do does the work, and gives the task up if the foreign agent cannot be worked with.
func (w *work) do(ctx context.Context) error {
	err := w.passOn(ctx)
	if _, own := errors.AsType[toolError](err); own || err == nil || ctx.Err() != nil {
		return err
	}
	reason := err.Error()
	if refusal, ok := picket.RefusalOf(err); ok && refusal.Remedy != "" {
		reason += ". " + refusal.Remedy
	}
	return w.fail(ctx, failedTask{Reason: w.said(reason), Retryable: errors.Is(err, errSilent)})
}

// said begins a text with the foreign agent.
func (w *work) said(what string) string { return "foreign agent " + w.remote.Host() + ": " + what }

// passOn passes the task on, or goes on with the foreign task of an earlier run, until it ends or asks something.
func (w *work) passOn(ctx context.Context) error {
	if err := w.insist(ctx, w.connect); err != nil {
		return err
	}
	t, err := w.resume(ctx)
	if err == nil && t == nil {
		t, err = w.begin(ctx)
	}
	for err == nil && t != nil {
		w.book(t)
		switch s := t.Status.State; {
		case s.Terminal():
			return w.finish(ctx, t)
		case s == protocol.TaskStateInputRequired:
			t, err = w.question(ctx, t)
		case s == protocol.TaskStateAuthRequired:
			t, err = w.approval(ctx, t)
		default:
			t, err = w.follow(ctx, t)
		}
	}
	return err
}

func (w *work) connect(ctx context.Context) (err error) {
	w.agent, err = w.remote.open(ctx)
	return err
}

// insist repeats a request to the foreign agent until the agent has answered it. It gives up after some time.
func (w *work) insist(ctx context.Context, request func(context.Context) error) error {
	started := time.Now()
	for pause := w.limits.first; ; pause = min(2*pause, w.limits.longest) {
		err := request(ctx)
		if err == nil || ctx.Err() != nil || !passes(err) {
			return err
		}
		if refusal, ok := picket.RefusalOf(err); ok {
			pause = max(pause, refusal.RetryAfter)
		}
		if time.Since(started)+pause > w.limits.silence {
			return fmt.Errorf("%w for %s: %w", errSilent, w.limits.silence, err)
		}
		w.say(w.job.Stderr, "%v; trying again", err)
		if err := cli.Sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// passes reports whether the same request may succeed later.
func passes(err error) bool {
	code := picket.CodeOf(err)
	return code == picket.CodeUnavailable || code.Retryable() || code == picket.CodeQuota
}

// read reads the foreign task.
func (w *work) read(ctx context.Context) (t *protocol.Task, err error) {
	err = w.insist(ctx, func(ctx context.Context) (err error) {
		t, err = w.agent.task(ctx, w.saved.Remote)
		return err
	})
	if err == nil {
		err = w.checkTask(t)
	}
	return t, err
}

// checkTask refuses another task than the one that is followed.
func (w *work) checkTask(t *protocol.Task) error {
	if t.ID != w.saved.Remote {
		return notA2A("the agent answered with the task %s instead of %s", excerpt(string(t.ID)),
			excerpt(string(w.saved.Remote)))
	}
	return nil
}

// resume finds the foreign task of an earlier run. There is none if no message was sent, or if the next message
// begins another one: after a failure, and after a run whose time was over.
func (w *work) resume(ctx context.Context) (*protocol.Task, error) {
	if w.saved.Remote == "" {
		return nil, nil
	}
	class := picket.ExitClass("")
	if exit := w.job.Lease.PreviousExit; exit != nil {
		class = exit.Class
	}
	failed := class == picket.ExitAgentFailed
	t, err := w.read(ctx)
	switch unknown := errors.Is(err, picket.CodeNotFound); {
	case err != nil && !(unknown && (failed || outOfTime(class))):
		return nil, err
	case err == nil && t.Status.State == protocol.TaskStateCompleted,
		err == nil && !outOfTime(class) && !(failed && t.Status.State.Terminal()):
		w.say(w.job.Stdout, "going on with the foreign task %s", w.saved.Remote)
		return t, w.note()
	case err == nil && !t.Status.State.Terminal():
		if _, err := w.task(ctx); err != nil {
			return nil, err
		}
		if err := w.insist(ctx, func(ctx context.Context) error {
			return w.agent.cancelOpen(ctx, w.saved.Remote)
		}); err != nil {
			return nil, err
		}
	}
	w.open.forget(w.job.Lease.TaskID, w.saved.Remote)
	return nil, w.save(ctx, "begins another foreign task", func(c *checkpoint) {
		c.Round, c.Remote, c.ContextID, c.Asked, c.Advice = c.Round+1, "", "", "", ""
		if n := len(w.job.Lease.Answers); n > 0 && w.job.Lease.Answers[n-1].HandoffID != c.Answered {
			c.Advice = w.job.Lease.Answers[n-1].HandoffID
		}
	})
}

// begin sends the task, and notes the foreign task before anything else.
func (w *work) begin(ctx context.Context) (*protocol.Task, error) {
	if asked, err := w.askForMoney(ctx); err != nil || asked {
		return nil, err
	}
	parts := taskParts(w.job.Lease.Task)
	for _, a := range w.job.Lease.Answers {
		if a.HandoffID == w.saved.Advice {
			a.InputEdited = false // the task has the edited input by now
			parts = append(parts, protocol.NewTextPart("A person answers, after an earlier attempt has failed:"))
			parts = append(parts, answerParts(a)...)
		}
	}
	raw, err := stdjson.Marshal(parts)
	if err != nil {
		return nil, err
	}
	m := protocol.NewMessage(protocol.MessageRoleUser, parts...)
	m.ID = w.saved.messageID(hashOf(string(raw))) // another one if a person has edited the input
	var answer []byte
	result, err := w.send(keepAnswer(ctx, &answer), m)
	if err != nil {
		return nil, err
	}
	t, isTask := result.(*protocol.Task)
	if !isTask {
		return nil, w.complete(ctx, answer, "")
	}
	if t.ID == "" || len(t.ID) > maxForeignID || len(t.ContextID) > maxForeignID ||
		text.OneLine(string(t.ID)) != string(t.ID) {
		return nil, notA2A("the agent answered with a task whose id has %d bytes", len(t.ID))
	}
	w.say(w.job.Stdout, "the foreign task is %s", t.ID)
	w.set(func(c *checkpoint) { c.Remote, c.ContextID = t.ID, t.ContextID })
	if err := w.note(); err != nil {
		return nil, err
	}
	return t, w.save(ctx, "passed the task on", nil)
}

// task reads the task. It fails if the lease has ended, so it comes before what the foreign agent is sent.
func (w *work) task(ctx context.Context) (t picket.Task, err error) {
	err = w.tool(ctx, func(ctx context.Context) (err error) {
		t, err = w.proxy.Task(ctx)
		return err
	})
	return t, err
}

// askForMoney asks for a top-up if what was granted to the task is used up. That ends the run.
func (w *work) askForMoney(ctx context.Context) (asked bool, err error) {
	t, err := w.task(ctx)
	granted, left := t.BudgetEnvelope, t.Available
	if err != nil || !(granted.USD > 0 && left.USD <= 0 || granted.Tokens > 0 && left.Tokens <= 0) {
		return false, err
	}
	return true, w.ask(ctx, "", picket.HelpRequest{Kind: picket.HandoffBudget,
		Question: "The budget of the task is used up, so it is not passed on to the foreign agent. Top up: " +
			picket.TopUpCommand(t.TaskID, adapter.NeededToStart(left))})
}

// maxForeignID is how many bytes the ids of a foreign agent may have.
const maxForeignID = 255

// note writes down, outside of the task, that the foreign task is open.
func (w *work) note() error {
	if err := w.open.note(w.job.Lease.TaskID, w.job.Lease.RunID, w.saved.Remote); err != nil {
		return toolError{fmt.Errorf("note the foreign task: %w", err)}
	}
	return nil
}

// send sends a message until the foreign agent has answered. It can be sent again, because its id stays the same.
func (w *work) send(ctx context.Context, m *protocol.Message) (result protocol.SendMessageResult, err error) {
	err = w.insist(ctx, func(ctx context.Context) (err error) {
		result, err = w.agent.sendOnce(ctx, m)
		return err
	})
	return result, err
}

// sendOnce sends a message, and does not wait for the work on it.
func (a *agent) sendOnce(ctx context.Context, m *protocol.Message) (protocol.SendMessageResult, error) {
	ctx, stop := context.WithTimeout(ctx, callTimeout)
	defer stop()
	result, err := a.client.SendMessage(ctx, &protocol.SendMessageRequest{Message: m,
		Config: &protocol.SendMessageConfig{ReturnImmediately: true}})
	return result, a.explainAny(err)
}

// set changes the checkpoint.
func (w *work) set(change func(*checkpoint)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change(&w.saved)
}

// save changes the checkpoint and writes it into a report, from which the next run goes on.
func (w *work) save(ctx context.Context, summary string, change func(*checkpoint)) error {
	if change != nil {
		w.set(change)
	}
	w.mu.Lock()
	line := w.saved.line()
	w.mu.Unlock()
	return w.tool(ctx, func(ctx context.Context) error {
		_, err := w.proxy.Report(ctx, picket.Progress{Summary: w.said(summary), Beliefs: []string{line}})
		return err
	})
}

// tool calls a tool of Picket until it has answered or the run is ended. The error is a [toolError].
func (w *work) tool(ctx context.Context, call func(context.Context) error) error {
	for pause := w.limits.first; ; pause = min(2*pause, w.limits.longest) {
		err := call(ctx)
		code := picket.CodeOf(err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil || !code.Retryable() && !errors.Is(err, picket.ErrUnknown):
			return toolError{err}
		}
		if cli.Sleep(ctx, pause) != nil {
			return toolError{err}
		}
	}
}

// failedTask is the body of mark_failed.
type failedTask struct {
	Reason    string           `json:"reason"`
	Retryable bool             `json:"retryable"`
	Class     picket.ExitClass `json:"class,omitempty"`
}

// maxReason is how many bytes of what a foreign agent says go into the reason of a failure.
const maxReason = 4 << 10

func (w *work) fail(ctx context.Context, f failedTask) error {
	f.Reason = text.Excerpt(text.Printable(f.Reason), maxReason)
	w.say(w.job.Stderr, "%s", f.Reason)
	return w.tool(ctx, func(ctx context.Context) error { return w.proxy.Tool(ctx, "mark_failed", f, nil) })
}

// finish hands in how the foreign task has ended.
func (w *work) finish(ctx context.Context, t *protocol.Task) error {
	why := statusText(t.Status, maxReason)
	if why != "" {
		why = ": " + why
	}
	var err error
	switch t.Status.State {
	case protocol.TaskStateCompleted:
		err = w.completeTask(ctx)
	case protocol.TaskStateRejected:
		err = w.fail(ctx, failedTask{Reason: w.said("it rejects the task" + why), Class: picket.ExitRejected})
	case protocol.TaskStateCanceled:
		err = w.fail(ctx, failedTask{Reason: w.said("the task was cancelled there" + why)})
	default:
		err = w.fail(ctx, failedTask{Reason: w.said("the task has failed there" + why)})
	}
	if err == nil {
		w.open.forget(w.job.Lease.TaskID, w.saved.Remote)
	}
	return err
}

// completeTask hands in the artifacts of a foreign task, or what the agent says at its end if it has none. The task is
// read for that, because what was streamed can have gaps.
func (w *work) completeTask(ctx context.Context) error {
	var raw []byte
	t, err := w.read(keepAnswer(ctx, &raw))
	if err != nil {
		return err
	}
	w.book(t)
	return w.complete(ctx, raw, statusText(t.Status, maxReason))
}

// complete hands in the result of the task, which is in an answer of the foreign agent.
func (w *work) complete(ctx context.Context, raw []byte, summary string) error {
	parts, err := exactResult(raw)
	if err != nil {
		return err
	}
	output, err := outputOf(parts)
	if err != nil {
		return err
	}
	if len(output) > picket.MaxPayload {
		return picket.Refuse(picket.CodeTooLarge, "Read it there: "+w.agent.command("get", string(w.saved.Remote)),
			"the result has %d bytes, and the output of a task has at most %d", len(output), picket.MaxPayload)
	}
	err = w.tool(ctx, func(ctx context.Context) error {
		_, err := w.proxy.Complete(ctx, output, summary)
		return err
	})
	if code := picket.CodeOf(err); code == picket.CodeValidation || code == picket.CodeTooLarge {
		return fmt.Errorf("its result cannot be handed in: %s", excerpt(err.Error()))
	}
	return err
}

// book reports what the foreign agent says that the task has cost, if it is another Picket.
func (w *work) book(t *protocol.Task) {
	spent, ok := spentOf(t)
	if !ok || w.job.Used == nil {
		return
	}
	report := picket.UsageReport{Source: "a2a", Session: w.saved.messageID(), Scope: "session", Tokens: spent.Tokens,
		USD: spent.USD}
	if report == w.used || report.Check() != nil || strings.TrimSpace(string(t.ID)) == "" {
		return
	}
	w.used = report
	w.job.Used(report)
}
