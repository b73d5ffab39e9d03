package foreign

import (
	"context"
	"fmt"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
	"github.com/picket-dev/picket/internal/text"
)

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
	t, err := w.read(agentclient.KeepAnswer(ctx, &raw))
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
		return picket.Refuse(picket.CodeTooLarge, "Read it there: "+w.remote.readCommand(w.saved.Remote),
			"the result has %d bytes, and the output of a task has at most %d", len(output), picket.MaxPayload)
	}
	err = w.tool(ctx, func(ctx context.Context) error {
		_, err := w.proxy.Complete(ctx, output, summary)
		return err
	})
	if code := picket.CodeOf(err); code == picket.CodeValidation || code == picket.CodeTooLarge {
		return fmt.Errorf("its result cannot be handed in: %s", agentclient.Excerpt(err.Error()))
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
