package console

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

func (v *request) readReviewInput(form string) reviewInput {
	return reviewInput{
		Form:    form,
		Note:    v.formText("note"),
		Digest:  v.formValue("digest"),
		Title:   v.formText("title"),
		Input:   v.formText("input"),
		InputAs: v.formValue("inputAs"),
		Role:    v.formValue("role"),
		USD:     v.formValue("usd"),
		Tokens:  v.formValue("tokens"),
	}
}

func (t reviewInput) decision() picket.Decision {
	return picket.Decision{Note: t.Note, Digest: t.Digest}
}

func approveReview(v *request) error {
	typed := v.readReviewInput("approve")
	by, err := v.caller()
	if err == nil && len(typed.Note) > maxReason {
		err = tooLong("/note", len(typed.Note))
	}
	if err == nil {
		_, err = v.backend.Reviews.Approve(v.ctx(), by, v.Param("task"), typed.decision())
	}
	if err != nil {
		return v.reviewPage(typed, err)
	}
	return v.redirectWithFlash(reviewPath(v.Param("task")), "approved", "")
}

// rejectReview rejects; with fix it makes, in the same step, the task that
// repairs what was wrong.
func rejectReview(v *request) error {
	typed, withFix := v.readReviewInput("reject"), v.isChecked("fix")
	by, err := v.caller()
	if err == nil && len(typed.Note) > maxReason {
		err = tooLong("/note", len(typed.Note))
	}
	var fixTask string
	if err == nil {
		fixTask, err = v.reject(by, typed, withFix)
	}
	switch {
	case err != nil && withFix:
		return v.fixPage(typed, err)
	case err != nil:
		return v.reviewPage(typed, err)
	case fixTask != "":
		return v.redirectWithFlash(reviewPath(v.Param("task")), "fixing", fixTask)
	}
	return v.redirectWithFlash(reviewPath(v.Param("task")), "rejected", "")
}

func (v *request) reject(by picket.Caller, typed reviewInput, withFix bool) (fixTask string, err error) {
	var fix *picket.TaskSpec
	if withFix {
		if fix, err = v.fixSpec(typed); err != nil {
			return "", err
		}
	}
	_, fixTask, err = v.backend.Reviews.Reject(v.ctx(), by, v.Param("task"), typed.decision(), fix)
	return fixTask, err
}

// fixSpec is the task that repairs: as the rejected one was wanted, with what the
// person has typed. It starts from the branch of the rejected one.
func (v *request) fixSpec(typed reviewInput) (*picket.TaskSpec, error) {
	t, err := v.backend.Tasks.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return nil, err
	}
	fix := t.FixSpec(strings.TrimSpace(typed.Title))
	fix.Role = strings.TrimSpace(typed.Role)
	if fix.Input, err = parsePayload("/input", typed.Input, typed.InputAs); err != nil {
		return nil, err
	}
	if typed.USD+typed.Tokens != "" {
		envelope, err := parseAmount(strings.TrimSpace(typed.USD), strings.TrimSpace(typed.Tokens))
		if err != nil {
			return nil, err
		}
		fix.BudgetEnvelope = &envelope
	}
	return &fix, nil
}

// fixForm is what the form of the task that repairs shows.
type fixForm struct {
	picket.Task
	Path  string
	Typed reviewInput
}

// showFixForm shows that form, filled in: nothing is decided yet.
func showFixForm(v *request) error {
	return v.fixPage(reviewInput{Note: v.formText("note"), Digest: v.formValue("digest")}, nil)
}

func (v *request) fixPage(typed reviewInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	t, err := v.backend.Tasks.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return err
	}
	if problem == nil {
		typed.Title = clip(190, "Fix: "+strings.TrimPrefix(text.Printable(t.Title), "Fix: "))
		typed.Role, typed.Input, typed.InputAs = t.Role, fixInput(t, typed.Note), asText
		typed.USD, typed.Tokens = t.BudgetEnvelope.USD.String(), strconv.FormatInt(t.BudgetEnvelope.Tokens, 10)
	}
	if t.Review != nil {
		typed.Digest = formDigest(t.Review.Digest, typed.Digest, problem)
	}
	return v.render(page{
		name:    "fix",
		title:   "Repair " + t.Title,
		nav:     "reviews",
		body:    fixForm{t, reviewPath(t.TaskID), typed},
		problem: problem,
	})
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
