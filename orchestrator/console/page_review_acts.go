package console

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

func (v *visit) reviewTyped(form string) reviewTyped {
	return reviewTyped{
		Form:    form,
		Note:    v.typed("note"),
		Digest:  v.form("digest"),
		Title:   v.typed("title"),
		Input:   v.typed("input"),
		InputAs: v.form("inputAs"),
		Role:    v.form("role"),
		USD:     v.form("usd"),
		Tokens:  v.form("tokens"),
	}
}

func (t reviewTyped) decision() picket.Decision {
	return picket.Decision{Note: t.Note, Digest: t.Digest}
}

func approveReview(v *visit) error {
	typed := v.reviewTyped("approve")
	by, err := v.caller()
	if err == nil && len(typed.Note) > maxReason {
		err = tooLong("/note", len(typed.Note))
	}
	if err == nil {
		_, err = v.desk.Approve(v.ctx(), by, v.Param("task"), typed.decision())
	}
	if err != nil {
		return v.reviewPage(typed, err)
	}
	return v.done(reviewPath(v.Param("task")), "approved", "")
}

// rejectReview rejects; with fix it makes, in the same step, the task that
// repairs what was wrong.
func rejectReview(v *visit) error {
	typed, withFix := v.reviewTyped("reject"), v.form("fix") != ""
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
		return v.done(reviewPath(v.Param("task")), "fixing", fixTask)
	}
	return v.done(reviewPath(v.Param("task")), "rejected", "")
}

func (v *visit) reject(by picket.Caller, typed reviewTyped, withFix bool) (fixTask string, err error) {
	var fix *picket.TaskSpec
	if withFix {
		if fix, err = v.fixOf(typed); err != nil {
			return "", err
		}
	}
	_, fixTask, err = v.desk.Reject(v.ctx(), by, v.Param("task"), typed.decision(), fix)
	return fixTask, err
}

// fixOf is the task that repairs: as the rejected one was wanted, with what the
// person has typed. It starts from the branch of the rejected one.
func (v *visit) fixOf(typed reviewTyped) (*picket.TaskSpec, error) {
	t, err := v.desk.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return nil, err
	}
	fix := t.FixSpec(strings.TrimSpace(typed.Title))
	fix.Role = strings.TrimSpace(typed.Role)
	if fix.Input, err = typedJSON("/input", typed.Input, typed.InputAs); err != nil {
		return nil, err
	}
	if typed.USD+typed.Tokens != "" {
		envelope, err := amount(strings.TrimSpace(typed.USD), strings.TrimSpace(typed.Tokens))
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
	Typed reviewTyped
}

// fixReview shows that form, filled in: nothing is decided yet.
func fixReview(v *visit) error {
	return v.fixPage(reviewTyped{Note: v.typed("note"), Digest: v.form("digest")}, nil)
}

func (v *visit) fixPage(typed reviewTyped, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	t, err := v.desk.Task(v.ctx(), v.Param("task"))
	if err != nil {
		return err
	}
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	} else {
		typed.Title = clip(190, "Fix: "+strings.TrimPrefix(plain(t.Title), "Fix: "))
		typed.Role, typed.Input, typed.InputAs = t.Role, fixInput(t, typed.Note), asText
		typed.USD, typed.Tokens = t.BudgetEnvelope.USD.String(), strconv.FormatInt(t.BudgetEnvelope.Tokens, 10)
	}
	if t.Review != nil {
		typed.Digest = shownDigest(t.Review.Digest, typed.Digest, problem)
	}
	return v.show(status, page{
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
	if text := pretty(t.CurrentInput()); text != "" {
		b.WriteString("\nWhat was asked for:\n" + clip(20_000, text) + "\n")
	}
	return b.String()
}
