package foreign

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/internal/text"
)

// work is the work of one run: it passes a task on to a foreign agent, follows the foreign task, and hands in its
// result. Everything that the agent says is untrusted text.
type work struct {
	*foreignRun
	agent *agentclient.Agent

	mu    sync.Mutex
	saved checkpoint // as the last report has it, or is about to have it

	used picket.UsageReport // the last one that was booked
	// answered names the question that this run has answered, and when.
	answered   string
	answeredAt time.Time

	events eventPace // of all streams of the run
}

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
	if err := w.retry(ctx, w.connect); err != nil {
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

// retry repeats a request to the foreign agent until the agent has answered it. It gives up after some time.
func (w *work) retry(ctx context.Context, request func(context.Context) error) error {
	started := time.Now()
	for pause := w.limits.first; ; pause = min(2*pause, w.limits.longest) {
		err := request(ctx)
		if err == nil || ctx.Err() != nil || !temporary(err) {
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

// temporary reports whether the same request may succeed later.
func temporary(err error) bool {
	code := picket.CodeOf(err)
	return code == picket.CodeUnavailable || code.Retryable() || code == picket.CodeQuota
}

// read reads the foreign task.
func (w *work) read(ctx context.Context) (t *protocol.Task, err error) {
	err = w.retry(ctx, func(ctx context.Context) (err error) {
		t, err = w.agent.Task(ctx, w.saved.Remote)
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
		return agentclient.NotA2A("the agent answered with the task %s instead of %s", agentclient.Excerpt(string(t.ID)),
			agentclient.Excerpt(string(w.saved.Remote)))
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
		if err := w.retry(ctx, func(ctx context.Context) error {
			return cancelOpen(ctx, w.agent, w.saved.Remote)
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
	result, err := w.send(agentclient.KeepAnswer(ctx, &answer), m)
	if err != nil {
		return nil, err
	}
	t, isTask := result.(*protocol.Task)
	if !isTask {
		return nil, w.complete(ctx, answer, "")
	}
	if t.ID == "" || len(t.ID) > maxForeignID || len(t.ContextID) > maxForeignID ||
		text.OneLine(string(t.ID)) != string(t.ID) {
		return nil, agentclient.NotA2A("the agent answered with a task whose id has %d bytes", len(t.ID))
	}
	w.say(w.job.Stdout, "the foreign task is %s", t.ID)
	w.set(func(c *checkpoint) { c.Remote, c.ContextID = t.ID, t.ContextID })
	if err := w.note(); err != nil {
		return nil, err
	}
	return t, w.save(ctx, "passed the task on", nil)
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
	err = w.retry(ctx, func(ctx context.Context) (err error) {
		ctx, stop := context.WithTimeout(ctx, agentclient.CallTimeout)
		defer stop()
		result, err = w.agent.Send(ctx, m)
		return err
	})
	return result, err
}
