package console

import (
	"context"
	"strings"

	"github.com/picket-dev/picket"
)

// taskActs is what an operator does to a task.
type taskActs interface {
	Cancel(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error)
	Retry(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error)
	ExpireRun(ctx context.Context, by picket.Caller, taskID, runID, reason string) (picket.Task, error)
	TopUp(ctx context.Context, by picket.Caller, id string, t picket.TopUp) (picket.EnvelopeState, error)
}

// maxReason bounds a reason in bytes, as the API does: it goes into events.
const maxReason = 4096

func (v *visit) reason() (string, error) {
	text := v.form("reason")
	if len(text) > maxReason {
		return text, picket.Invalid("/reason", "Write less; details belong into the task.",
			"the reason has %d bytes, at most %d are allowed", len(text), maxReason)
	}
	return text, nil
}

// act does what a form with a reason asks for, and shows the task with what was
// typed when it is refused. did is what is said afterwards, on the page of the
// task that verb returns.
func (v *visit) act(form, did string, verb func(by picket.Caller, reason string) (string, error)) error {
	typed := acting{Open: form, Reason: v.form("reason"), USD: v.form("usd"), Tokens: v.form("tokens")}
	reason, err := v.reason()
	if err != nil {
		return v.taskPage(typed, err)
	}
	by, err := v.caller()
	if err != nil {
		return v.taskPage(typed, err)
	}
	to, err := verb(by, reason)
	if err != nil {
		return v.taskPage(typed, err)
	}
	return v.done(to, did, "")
}

func cancelTask(v *visit) error {
	return v.act("cancel", "cancelled", func(by picket.Caller, reason string) (string, error) {
		t, err := v.desk.Cancel(v.ctx(), by, v.Param("id"), reason)
		return taskPath(t.TaskID), err
	})
}

// retryTask goes on with the task that runs: the same, or a new one.
func retryTask(v *visit) error {
	return v.act("retry", "retried", func(by picket.Caller, reason string) (string, error) {
		t, err := v.desk.Retry(v.ctx(), by, v.Param("id"), reason)
		return taskPath(t.TaskID), err
	})
}

func expireTask(v *visit) error {
	return v.act("expire", "expired", func(by picket.Caller, reason string) (string, error) {
		t, err := v.desk.ExpireRun(v.ctx(), by, v.Param("id"), v.form("run"), reason)
		return taskPath(t.TaskID), err
	})
}

func topUpTask(v *visit) error {
	return v.act("topup", "toppedup", func(by picket.Caller, reason string) (string, error) {
		_, err := v.topUp(by, v.Param("id"), reason)
		return taskPath(v.Param("id")), err
	})
}

func (v *visit) topUp(by picket.Caller, id, reason string) (picket.EnvelopeState, error) {
	more, err := amount(strings.TrimSpace(v.form("usd")), strings.TrimSpace(v.form("tokens")))
	if err != nil {
		return picket.EnvelopeState{}, err
	}
	return v.desk.TopUp(v.ctx(), by, id, picket.TopUp{USD: more.USD, Tokens: more.Tokens, Reason: reason})
}
