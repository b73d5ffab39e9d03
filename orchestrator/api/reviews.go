package api

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

func listReviews(r request) error {
	q := r.query("role", "parent", "label", "limit", "cursor")
	want := picket.ReviewQuery{Role: q.name("role"), Parent: q.id("parent", "task"), Labels: q.labels("label")}
	want.Limit, want.Cursor = q.page()
	if q.err != nil {
		return q.err
	}
	page, err := r.engine.Reviews(r.ctx(), want)
	return r.respond(page, asParameter(err))
}

func approveReview(r request) error {
	id, body, by, err := decodeMutation[picket.Decision](r, "task", "task")
	if err != nil {
		return err
	}
	if err := checkNote("/note", body.Note); err != nil {
		return err
	}
	task, err := r.engine.Approve(r.ctx(), by, id, body)
	return r.respond(task, err)
}

// approveReviews approves many, when they are as many as the person saw.
func approveReviews(r request) error {
	_, body, by, err := decodeMutation[picket.BulkApproval](r, "", "")
	if err != nil {
		return err
	}
	if err := checkNote("/note", body.Note); err != nil {
		return err
	}
	done, err := r.engine.ApproveAll(r.ctx(), by, body)
	return r.respond(done, err)
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

func rejectReview(r request) error {
	id, body, by, err := decodeMutation[rejectBody](r, "task", "task")
	if err != nil {
		return err
	}
	if err := body.check(); err != nil {
		return err
	}
	task, fix, err := r.engine.Reject(r.ctx(), by, id, body.Decision, body.Fix)
	answer := rejectResult{Task: task}
	if fix != "" {
		answer.FixTaskID = &fix
	}
	return r.respond(answer, err)
}

// check refuses a bad fix task here already, so that its fields are named by
// where they stand in this body.
func (b rejectBody) check() error {
	if err := checkNote("/note", b.Note); err != nil || b.Fix == nil {
		return err
	}
	checked := *b.Fix // what it leaves out is the engine's to fill in
	return picket.PrefixField("/fix", checked.Normalize())
}
