package orchestrator

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// Approve completes a task in review. It fails with CodeVersion if the current
// digest of the review is not d.Digest, and with CodePreconditionRequired if the
// task has evidence and d.Digest is empty.
func (e *Engine) Approve(ctx context.Context, by picket.Caller, taskID string, d picket.Decision) (picket.Task, error) {
	t, _, err := e.review(ctx, by, taskID, "approve", d, nil)
	return t, err
}

// Reject closes a task in review as rejected. With fix it creates, in the same
// step, the task that repairs it and returns that task's id. The digest is
// checked as by Approve.
func (e *Engine) Reject(ctx context.Context, by picket.Caller, taskID string, d picket.Decision,
	fix *picket.TaskSpec) (picket.Task, string, error) {
	return e.review(ctx, by, taskID, "reject", d, fix)
}

func (e *Engine) review(ctx context.Context, by picket.Caller, taskID, decision string, d picket.Decision,
	fix *picket.TaskSpec) (picket.Task, string, error) {
	if err := cmp.Or(picket.CheckID("taskId", "task", taskID), d.Check()); err != nil {
		return picket.Task{}, "", err
	}
	args := []any{taskID, decision, by.Actor, by.Idempotency.Key, by.Idempotency.Body, d.Note, d.Digest, "0"}
	if fix != nil {
		spec := *fix
		if spec.Fixes != "" && spec.Fixes != taskID {
			return picket.Task{}, "",
				picket.Invalid("/fix/fixes", "Leave fixes out: it is the rejected task.", "fixes names another task")
		}
		spec.Fixes = taskID
		if err := e.normalize(&spec); err != nil {
			return picket.Task{}, "", picket.PrefixField("/fix", err)
		}
		fields, err := e.specArgs("task_"+ulid.Make().String(), by.Actor, spec)
		if err != nil {
			return picket.Task{}, "", err
		}
		args[7] = "1"
		args = append(args, fields...)
	}
	r := e.run(ctx, "review", args...)
	var decided struct {
		Fix  string   `reply:"fix"` // the id of the fix task
		Task taskView `reply:"task"`
	}
	r.Decode(&decided)
	return r.taskOf(decided.Task), decided.Fix, r.Err
}

// The two queues of people, in pages.

// Reviews lists a page of the tasks that wait for a decision, oldest first. A
// page looks at 2,000 tasks at most, so one with filters can have few rows, or
// none, and say where to go on.
func (e *Engine) Reviews(ctx context.Context, q picket.ReviewQuery) (page picket.ReviewPage, err error) {
	if q.Limit, err = pageLimit(q.Limit, 50, 200); err != nil {
		return page, err
	}
	if err := checkNumericCursor(q.Cursor); err != nil {
		return page, err
	}
	sets, err := filterSets(q.Role, q.Parent, q.Assignee, q.Labels)
	if err != nil {
		return page, err
	}
	r := e.run(ctx, "reviews", append([]any{q.Limit, q.Cursor}, sets...)...)
	var p struct {
		Total int64       `reply:"total"`
		Next  string      `reply:"next"`
		Rows  []reviewRow `reply:"rows"`
	}
	r.Decode(&p)
	page = picket.ReviewPage{
		Reviews:    []picket.PendingReview{},
		Total:      p.Total,
		NextCursor: optionalString(p.Next),
	}
	for _, row := range p.Rows {
		page.Reviews = append(page.Reviews, r.pendingReview(row))
	}
	return page, r.Err
}

// reviewRow is a task that waits for a decision, as it stands in a list.
type reviewRow struct {
	ID        string            `reply:"id"`
	Record    map[string]string `reply:"record"`
	Spec      specRecord        `reply:"spec,json"`
	Output    outputRecord      `reply:"output,json"`
	Ended     int64             `reply:"ended"` // its run, ms
	Workspace string            `reply:"workspace"`
	Work      string            `reply:"work"`
	Envelope  map[string]string `reply:"envelope"`
	Digest    string            `reply:"digest"`
}

func (r *reply) pendingReview(row reviewRow) picket.PendingReview {
	t := taskRecord(row.ID, row.Record, row.Spec)
	taskMoney(&t, row.Envelope)
	return picket.PendingReview{
		TaskID:       row.ID,
		RunID:        row.Record["run"],
		Title:        t.Title,
		Role:         t.Role,
		Labels:       t.Labels,
		Assignee:     t.Assignee,
		Parent:       t.Parent,
		Output:       row.Output.Output,
		Summary:      row.Output.Summary,
		SubmittedAt:  picket.Instant(row.Ended),
		FencingToken: t.FencingToken,
		Attempts:     t.Attempts,
		Spent:        t.Spent,
		Work:         r.work(row.Workspace, row.Work),
		Digest:       row.Digest,
	}
}

// What lists show of the work of a run; Evidence has the whole.
const (
	maxWorkFiles    = 50
	maxWorkDiffstat = 4 << 10 // bytes
)

// summarizeEvidence is what lists show of evidence.
func summarizeEvidence(ev picket.Evidence) picket.WorkSummary {
	w := picket.WorkSummary{Branch: ev.Branch, Diffstat: text.ValidHead(ev.Diffstat, maxWorkDiffstat)}
	for _, f := range ev.Files[:min(len(ev.Files), maxWorkFiles)] {
		w.Files = append(w.Files, strings.ToValidUTF8(f.Path, "\uFFFD"))
	}
	return w
}

// work decodes what summarizeEvidence made.
func (r *reply) work(workspace, v any) (w picket.WorkSummary) {
	r.JSON(v, &w)
	w.WorkspacePath = r.Text(workspace)
	return w
}

// MaxBulk is how many tasks one request can approve.
const MaxBulk = 500

// ApproveAll approves the tasks in review that a filter means, when they are as many as the person
// saw (CodeVersion otherwise, with the fact count, or limit where they are more than MaxBulk). Each
// is a decision of its own, so some can lose against another person. by.Once is required. A request
// that is repeated with it decides the tasks of the first one and no others, even if the first one
// broke off.
func (e *Engine) ApproveAll(ctx context.Context, by picket.Caller,
	req picket.BulkApproval) (picket.BulkApproved, error) {
	out := picket.BulkApproved{Approved: []string{}, Lost: []picket.LostRace{}}
	if err := checkBulkApproval(by, req); err != nil {
		return out, err
	}
	ids, err := e.tasksInReview(ctx, req.Filter)
	if err != nil {
		return out, err
	}
	r := e.run(ctx, "bulk", append([]any{by.Idempotency.Key, by.Idempotency.Body, req.Count}, ids...)...)
	if no, ok := picket.RefusalOf(r.Err); ok && no.Code == picket.CodeVersion && len(ids) > MaxBulk {
		return out, picket.Refuse(picket.CodeVersion,
			"Narrow the filter, look at what it means, then send the number that you see.",
			"more than %d tasks are meant now, and one request approves no more than that", MaxBulk).
			With("limit", MaxBulk).With("presented", req.Count)
	}
	for id := range strings.FieldsSeq(r.Text(r.Value)) {
		one := by
		one.Idempotency = picket.Idempotency{Key: by.Idempotency.Key + "." + id, Body: by.Idempotency.Body}
		_, err := e.Approve(ctx, one, id, picket.Decision{Note: req.Note, Digest: req.Digests[id]})
		if err == nil {
			out.Approved = append(out.Approved, id)
			continue
		}
		no, ok := lostDecision(id, err)
		if !ok {
			return out, err
		}
		out.Lost = append(out.Lost, no)
	}
	return out, r.Err
}

func checkBulkApproval(by picket.Caller, req picket.BulkApproval) error {
	f := req.Filter
	switch {
	case by.Idempotency.Key == "":
		return picket.Refuse(picket.CodePreconditionRequired,
			"Send an Idempotency-Key, such as a UUID, and the same one when you repeat the request.",
			"many are approved only under an Idempotency-Key: repeated without one the request would mean other tasks").
			With("field", "Idempotency-Key")
	case req.Count < 1 || req.Count > MaxBulk:
		return picket.Invalid("/count", "Send how many tasks you saw, 1 to 500; narrow the filter where they are more.",
			"count is %d, allowed are 1 to %d", req.Count, MaxBulk)
	case f.Role == "" && f.Parent == "" && f.Assignee == "" && len(f.Labels) == 0 && len(f.TaskIDs) == 0:
		return picket.Invalid("/filter", "Name a role, a parent, an assignee, labels or taskIds.",
			"the filter is empty, which would mean everything")
	case len(f.TaskIDs) > MaxBulk:
		return picket.Invalid("/filter/taskIds", "Send 500 at most.", "taskIds has %d entries, allowed are %d",
			len(f.TaskIDs), MaxBulk)
	case len(req.Note) > picket.MaxNote:
		return picket.TooLarge("/note", len(req.Note))
	case len(req.Digests) > MaxBulk:
		return picket.Invalid("/digests", "Send only the digests of the tasks that you saw.",
			"digests has %d entries, and at most %d are allowed", len(req.Digests), MaxBulk)
	}
	for id, digest := range req.Digests {
		if err := cmp.Or(picket.CheckID("/digests", "task", id),
			picket.CheckDigest("/digests/"+id, digest)); err != nil {
			return err
		}
	}
	for _, id := range f.TaskIDs {
		if err := picket.CheckID("/filter/taskIds", "task", id); err != nil {
			return err
		}
	}
	return nil
}

// tasksInReview finds the tasks in review that a filter means; beyond MaxBulk it
// looks no further.
func (e *Engine) tasksInReview(ctx context.Context, f picket.ReviewFilter) (ids []any, err error) {
	sets, err := filterSets(f.Role, f.Parent, f.Assignee, f.Labels)
	if err != nil {
		return nil, picket.PrefixField("/filter/", err)
	}
	asked := slices.Compact(slices.Sorted(slices.Values(f.TaskIDs)))
	for cursor := ""; ; {
		args := []any{cursor, len(asked)}
		for _, id := range asked {
			args = append(args, id)
		}
		r := e.run(ctx, "review_ids", append(args, sets...)...)
		var v struct {
			Next  string   `reply:"next"`
			Tasks []string `reply:"tasks"`
		}
		r.Decode(&v)
		for _, id := range v.Tasks {
			ids = append(ids, id)
		}
		if cursor = v.Next; r.Err != nil || cursor == "" || len(ids) > MaxBulk {
			return ids[:min(len(ids), MaxBulk+1)], r.Err
		}
	}
}

// lostDecisionCodes are the refusals of one decision that do not stop the other decisions.
var lostDecisionCodes = []picket.Code{picket.CodeTaskClosed, picket.CodeStateConflict, picket.CodeNotFound,
	picket.CodeVersion,
	picket.CodePreconditionRequired}

// lostDecision reports whether a refusal means that somebody else has decided first, or that the
// task has changed since the person saw it.
func lostDecision(id string, err error) (picket.LostRace, bool) {
	no, ok := picket.RefusalOf(err)
	if !ok || !slices.Contains(lostDecisionCodes, no.Code) {
		return picket.LostRace{}, false
	}
	by, _ := no.Facts["by"].(string)
	digest, _ := no.Facts["current"].(string)
	return picket.LostRace{TaskID: id, Code: no.Code, By: by, Digest: digest}, true
}
