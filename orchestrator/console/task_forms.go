package console

import (
	"strings"

	"github.com/picket-dev/picket"
)

// maxReason bounds a reason in bytes, as the API does: it goes into events.
const maxReason = 4096

func (v *request) formReason() (string, error) {
	text := v.formValue("reason")
	if len(text) > maxReason {
		return text, picket.Invalid("/reason", "Write less; details belong into the task.",
			"the reason has %d bytes, at most %d are allowed", len(text), maxReason)
	}
	return text, nil
}

// decide calls do with the person who decides and the reason that they gave.
func (v *request) decide(do func(by picket.Caller, reason string) error) error {
	reason, err := v.formReason()
	if err != nil {
		return err
	}
	by, err := v.caller()
	if err != nil {
		return err
	}
	return do(by, reason)
}

// handleTaskForm runs verb with the reason of a form. If it is refused, the task is shown again
// with what was typed. did is the message that is shown afterwards, on the page of the task that
// verb returns.
func (v *request) handleTaskForm(form, did string, verb func(by picket.Caller, reason string) (string, error)) error {
	typed := formInput{
		Open:   form,
		Reason: v.formValue("reason"),
		USD:    v.formValue("usd"),
		Tokens: v.formValue("tokens"),
	}
	var to string
	if err := v.decide(func(by picket.Caller, reason string) (err error) {
		to, err = verb(by, reason)
		return err
	}); err != nil {
		return v.taskPage(typed, err)
	}
	return v.redirectWithFlash(to, did, "")
}

func cancelTask(v *request) error {
	return v.handleTaskForm("cancel", "cancelled", func(by picket.Caller, reason string) (string, error) {
		t, err := v.backend.Changes.Cancel(v.ctx(), by, v.Param("id"), reason)
		return taskPath(t.TaskID), err
	})
}

// retryTask goes on with the task that runs: the same, or a new one.
func retryTask(v *request) error {
	return v.handleTaskForm("retry", "retried", func(by picket.Caller, reason string) (string, error) {
		t, err := v.backend.Changes.Retry(v.ctx(), by, v.Param("id"), reason)
		return taskPath(t.TaskID), err
	})
}

func expireTask(v *request) error {
	return v.handleTaskForm("expire", "expired", func(by picket.Caller, reason string) (string, error) {
		t, err := v.backend.Changes.ExpireRun(v.ctx(), by, v.Param("id"), v.formValue("run"), reason)
		return taskPath(t.TaskID), err
	})
}

func topUpTask(v *request) error {
	return v.handleTaskForm("topup", "toppedup", func(by picket.Caller, reason string) (string, error) {
		_, err := v.topUp(by, v.Param("id"), reason)
		return taskPath(v.Param("id")), err
	})
}

func (v *request) topUp(by picket.Caller, id, reason string) (picket.EnvelopeState, error) {
	more, err := parseAmount(strings.TrimSpace(v.formValue("usd")), strings.TrimSpace(v.formValue("tokens")))
	if err != nil {
		return picket.EnvelopeState{}, err
	}
	return v.backend.Budgets.TopUp(v.ctx(), by, id, picket.TopUp{USD: more.USD, Tokens: more.Tokens, Reason: reason})
}
