package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

func reviewQuery(r request) (want picket.ReviewQuery, err error) {
	q := r.query("role", "parent", "assignee", "label", "limit", "cursor")
	want = picket.ReviewQuery{Role: q.name("role"), Parent: q.id("parent", "task"), Labels: q.labels("label"),
		Assignee: q.person("assignee")}
	want.Limit, want.Cursor = q.page()
	return want, q.err
}

func approveReview(c change[picket.Decision]) (picket.Task, error) {
	if err := checkNote(c.body.Note); err != nil {
		return picket.Task{}, err
	}
	return c.engine.Approve(c.ctx(), c.by, c.id, c.body)
}

// approveReviews approves many, when they are as many as the person saw.
func approveReviews(c change[picket.BulkApproval]) (picket.BulkApproved, error) {
	if err := checkNote(c.body.Note); err != nil {
		return picket.BulkApproved{}, err
	}
	return c.engine.ApproveAll(c.ctx(), c.by, c.body)
}

type rejectBody struct {
	picket.Decision
	Fix *picket.TaskSpec `json:"fix"`
}

// OptionalIDs implements the check of empty ids.
func (rejectBody) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/fix/role", "/fix/agent", "/fix/fixes"}
}

// rejectResult is the frozen task and the one that repairs it, if one was asked for.
type rejectResult struct {
	picket.Task
	FixTaskID *string `json:"fixTaskId"`
}

func rejectReview(c change[rejectBody]) (answer rejectResult, err error) {
	var fix string
	if answer.Task, fix, err = c.engine.Reject(c.ctx(), c.by, c.id, c.body.Decision, c.body.Fix); fix != "" {
		answer.FixTaskID = &fix
	}
	return answer, err
}

// check refuses a bad fix task here already, so that its fields are named by
// where they stand in this body.
func (b rejectBody) check() error {
	if err := checkNote(b.Note); err != nil || b.Fix == nil {
		return err
	}
	checked := *b.Fix // what it leaves out is the engine's to fill in
	return picket.PrefixField("/fix", checked.Normalize())
}
