package console

import (
	"slices"

	"github.com/picket-dev/picket"
)

func cancelTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.Cancel(v.ctx(), by, v.Param("id"), reason)
	return withFlash(taskPath(t.TaskID), "cancelled", ""), err
}

// retryTask goes on with the task that runs: the same, or a new one.
func retryTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.Retry(v.ctx(), by, v.Param("id"), reason)
	if err != nil {
		return "", err
	}
	code, id := v.whoTakes(t)
	return withFlash(taskPath(t.TaskID), code, id), nil
}

// whoTakes returns the code of the message that says which worker will take a task that was
// queued again.
func (v *request) whoTakes(t picket.Task) (code, id string) {
	why, err := v.backend.Tasks.Explain(v.ctx(), t.TaskID)
	has := func(code picket.ReasonCode) bool {
		return slices.ContainsFunc(why.Reasons, func(r picket.Reason) bool { return r.Code == code })
	}
	switch {
	case err == nil && has(picket.ReasonAgentWaiting):
		return "retried_soon", ""
	case err == nil && has(picket.ReasonNobodyWaiting) && t.Agent != "":
		return "retried_pinned", t.Agent
	case err == nil && has(picket.ReasonNobodyWaiting):
		return "retried_idle", ""
	}
	return "retried", "" // the page of the task shows what it waits for
}

func expireTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.ExpireRun(v.ctx(), by, v.Param("id"), v.formValue("run"), reason)
	return withFlash(taskPath(t.TaskID), "expired", ""), err
}

func topUpTask(v *request, by picket.Caller, reason string) (string, error) {
	did, err := v.topUp(by, v.Param("id"), "", reason)
	return withFlash(taskPath(v.Param("id")), did, ""), err
}

// topUp adds to an envelope, and returns the code of the message about the hand-off of its task.
// seen is the hand-off that the person saw, or empty.
func (v *request) topUp(by picket.Caller, id, seen, reason string) (did string, err error) {
	more, err := parseAmount(v.formWord("usd"), v.formWord("tokens"))
	if err != nil {
		return "", err
	}
	result, err := v.backend.Budgets.TopUp(v.ctx(), by, id, picket.TopUp{USD: more.USD, Tokens: more.Tokens,
		Reason: reason, KeepParked: v.isChecked("keep"), HandoffID: seen})
	if err != nil || result.Handoff == nil {
		return "toppedup", err
	}
	return "toppedup_" + string(result.Handoff.Outcome), nil
}
