package console

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// reviewDecision is what the person says of the result, of the page that they saw.
func (v *request) reviewDecision() (picket.Decision, error) {
	note, err := v.shortText("note")
	return picket.Decision{Note: note, Digest: v.formValue("digest")}, err
}

func approveReview(v *request, by picket.Caller, _ string) (string, error) {
	d, err := v.reviewDecision()
	if err != nil {
		return "", err
	}
	_, err = v.backend.Reviews.Approve(v.ctx(), by, v.Param("task"), d)
	return withFlash(reviewPath(v.Param("task")), "approved", ""), err
}

// rejectReview rejects; with fix it makes, in the same step, the task that
// repairs what was wrong.
func rejectReview(v *request, by picket.Caller, _ string) (string, error) {
	d, err := v.reviewDecision()
	if err != nil {
		return "", err
	}
	var fix *picket.TaskSpec
	if v.isChecked("fix") {
		if fix, err = v.fixSpec(); err != nil {
			return "", err
		}
	}
	_, fixTask, err := v.backend.Reviews.Reject(v.ctx(), by, v.Param("task"), d, fix)
	did := "rejected"
	if fixTask != "" {
		did = "fixing"
	}
	return withFlash(reviewPath(v.Param("task")), did, fixTask), err
}

// fixSpec is the task that repairs: as the rejected one was wanted, with what the
// person has typed. It starts from the branch of the rejected one.
func (v *request) fixSpec() (*picket.TaskSpec, error) {
	t, err := v.backend.Tasks.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return nil, err
	}
	fix := t.FixSpec(v.formWord("title"))
	fix.Role = v.formWord("role")
	if fix.Input, err = parsePayload("/input", v.formValue("input"), v.formValue("inputAs")); err != nil {
		return nil, err
	}
	if v.formValue("usd")+v.formValue("tokens") != "" {
		envelope, err := parseAmount(v.formWord("usd"), v.formWord("tokens"))
		if err != nil {
			return nil, err
		}
		fix.BudgetEnvelope = &envelope
	}
	return &fix, nil
}

// showRefusedReject shows the form again from which the person has rejected.
func showRefusedReject(v *request) (page, error) {
	if v.isChecked("fix") {
		return showFixForm(v)
	}
	return showReview(v)
}

// showFixForm shows the form of the task that repairs. At first it is filled in:
// nothing is decided yet.
func showFixForm(v *request) (page, error) {
	t, err := v.backend.Tasks.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return page{}, err
	}
	form := v.Request().PostForm
	if v.problem == nil {
		form.Set("title", clip(190, "Fix: "+strings.TrimPrefix(text.Printable(t.Title), "Fix: ")))
		form.Set("role", t.Role)
		form.Set("input", fixInput(t, v.formValue("note")))
		form.Set("usd", t.BudgetEnvelope.USD.String())
		form.Set("tokens", strconv.FormatInt(t.BudgetEnvelope.Tokens, 10))
	}
	form.Set("digest", v.formDigest(t.Review))
	return page{name: "fix", title: "Repair " + t.Title, body: t}, nil
}

// fixInput is what the next agent is told, for the person to correct.
func fixInput(t picket.Task, note string) string {
	var b strings.Builder
	b.WriteString("A reviewer has rejected the result of " + t.TaskID + " (" + clip(200, t.Title) + ").\n")
	if note != "" {
		b.WriteString("\nWhat is wrong:\n" + note + "\n")
	}
	b.WriteString("\nStart from the branch of that task: its changes are in your workspace.\n")
	if text := indentJSON(t.CurrentInput()); text != "" {
		b.WriteString("\nWhat was asked for:\n" + clip(20_000, text) + "\n")
	}
	return b.String()
}
