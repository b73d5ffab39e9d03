package orchestrator

import (
	"context"
	"slices"
	"strings"

	"github.com/picket-dev/picket"
)

// MaxBulk is how many tasks one request can approve.
const MaxBulk = 500

// ApproveAll approves the tasks in review that a filter means, when they are as
// many as the person saw (CodeVersion otherwise, with the fact count, or limit
// where they are more than MaxBulk). Each is a decision of its own, so some can
// be lost to somebody else. by.Once is needed: a request repeated with it
// decides the tasks of the first one and no others, also when that broke off
// half way.
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
	got, err := e.run(ctx, "bulk", append([]any{by.Idempotency.Key, by.Idempotency.Body, req.Count}, ids...)...)
	if no, ok := picket.RefusalOf(err); ok && no.Code == picket.CodeVersion && len(ids) > MaxBulk {
		return out, picket.Refuse(picket.CodeVersion,
			"Narrow the filter, look at what it means, then send the number that you see.",
			"more than %d tasks are meant now, and one request approves no more than that", MaxBulk).
			With("limit", MaxBulk).With("presented", req.Count)
	}
	if err != nil {
		return out, err
	}
	r := &reply{script: "bulk"}
	for id := range strings.FieldsSeq(r.text(got)) {
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
	return out, r.err
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
	case f.Role == "" && f.Parent == "" && len(f.Labels) == 0 && len(f.TaskIDs) == 0:
		return picket.Invalid("/filter", "Name a role, a parent, labels or taskIds.",
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
		if err := picket.CheckID("/digests", "task", id); err != nil {
			return err
		}
		if err := picket.CheckDigest("/digests/"+id, digest); err != nil {
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
	sets, err := filterSets(f)
	if err != nil {
		return nil, picket.PrefixField("/filter/", err)
	}
	asked := slices.Compact(slices.Sorted(slices.Values(f.TaskIDs)))
	for cursor := ""; ; {
		args := []any{cursor, len(asked)}
		for _, id := range asked {
			args = append(args, id)
		}
		got, err := e.run(ctx, "review_ids", append(args, sets...)...)
		if err != nil {
			return nil, err
		}
		r := &reply{script: "review_ids"}
		l := r.list(got)
		cursor = r.text(r.at(l, 0))
		for _, id := range l[min(1, len(l)):] {
			ids = append(ids, r.text(id))
		}
		if r.err != nil || cursor == "" || len(ids) > MaxBulk {
			return ids[:min(len(ids), MaxBulk+1)], r.err
		}
	}
}

// lostDecisionCodes are the refusals of one decision that do not stop the other decisions.
var lostDecisionCodes = []picket.Code{picket.CodeTaskClosed, picket.CodeStateConflict, picket.CodeNotFound,
	picket.CodeVersion,
	picket.CodePreconditionRequired}

// lostDecision tells whether a refusal means that somebody else was first, or that
// the task has changed since it was looked at.
func lostDecision(id string, err error) (picket.LostRace, bool) {
	no, ok := picket.RefusalOf(err)
	if !ok || !slices.Contains(lostDecisionCodes, no.Code) {
		return picket.LostRace{}, false
	}
	by, _ := no.Facts["by"].(string)
	digest, _ := no.Facts["current"].(string)
	return picket.LostRace{TaskID: id, Code: no.Code, By: by, Digest: digest}, true
}
