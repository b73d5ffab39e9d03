package console

import (
	"github.com/picket-dev/picket"
)

func cancelTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.Cancel(v.ctx(), by, v.Param("id"), reason)
	return withFlash(taskPath(t.TaskID), "cancelled", ""), err
}

// retryTask goes on with the task that runs: the same, or a new one.
func retryTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.Retry(v.ctx(), by, v.Param("id"), reason)
	return withFlash(taskPath(t.TaskID), "retried", ""), err
}

func expireTask(v *request, by picket.Caller, reason string) (string, error) {
	t, err := v.backend.Changes.ExpireRun(v.ctx(), by, v.Param("id"), v.formValue("run"), reason)
	return withFlash(taskPath(t.TaskID), "expired", ""), err
}

func topUpTask(v *request, by picket.Caller, reason string) (string, error) {
	return withFlash(taskPath(v.Param("id")), "toppedup", ""), v.topUp(by, v.Param("id"), reason)
}

func (v *request) topUp(by picket.Caller, id, reason string) error {
	more, err := parseAmount(v.formWord("usd"), v.formWord("tokens"))
	if err != nil {
		return err
	}
	_, err = v.backend.Budgets.TopUp(v.ctx(), by, id, picket.TopUp{USD: more.USD, Tokens: more.Tokens, Reason: reason})
	return err
}
