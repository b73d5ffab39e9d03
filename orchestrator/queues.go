package orchestrator

import (
	"cmp"
	"context"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// The two queues of people, in pages.

// Handoffs lists a page of the hand-offs of a state, oldest first. A page has
// fewer rows than asked for where they would be more than 4 MiB.
func (e *Engine) Handoffs(ctx context.Context, q picket.HandoffQuery) (picket.HandoffPage, error) {
	q.State = cmp.Or(q.State, picket.HandoffOpen)
	if !q.State.Valid() {
		return picket.HandoffPage{},
			picket.Invalid("state", "Send open, answered, finished or cancelled.", "%q is not a state of a hand-off",
				q.State)
	}
	score, before, err := handoffCursor(q.Cursor)
	if err == nil {
		q.Limit, err = pageLimit(q.Limit)
	}
	if err != nil {
		return picket.HandoffPage{}, err
	}
	return e.handoffs(ctx, string(q.State), q.Limit, score, before)
}

// Handoff shows one hand-off.
func (e *Engine) Handoff(ctx context.Context, handoffID string) (picket.Handoff, error) {
	if err := picket.CheckID("handoffId", "handoff", handoffID); err != nil {
		return picket.Handoff{}, err
	}
	page, err := e.handoffs(ctx, handoffID, 1, "", "")
	if err != nil {
		return picket.Handoff{}, err
	}
	return page.Handoffs[0], nil
}

func (e *Engine) handoffs(ctx context.Context, which string, limit int,
	score, before string) (page picket.HandoffPage, err error) {
	got, err := e.run(ctx, "handoffs", which, limit, score, before)
	if err != nil {
		return page, err
	}
	r := &reply{script: "handoffs"}
	l := r.list(got)
	raw, now := r.int(r.at(l, 0)), r.int(r.at(l, 1))
	page = picket.HandoffPage{
		Handoffs:   []picket.Handoff{},
		Total:      r.int(r.at(l, 2)),
		NextCursor: optionalString(r.text(r.at(l, 3))),
	}
	for _, v := range l[4:] {
		if h := r.handoffRow(r.list(v), raw, now); h != nil {
			page.Handoffs = append(page.Handoffs, *h)
		}
	}
	return page, r.err
}

// handoffRow decodes {hand-off view, last report, spec}.
func (r *reply) handoffRow(row []any, rawMs, nowMs int64) *picket.Handoff {
	h := r.handoff(r.at(row, 0), rawMs, nowMs, r.report(r.at(row, 1), true))
	if h != nil {
		var s specRecord
		r.json(r.at(row, 2), &s)
		h.Title = s.Title
	}
	return h
}

// pageLimit is how many rows a page may have.
func pageLimit(limit int) (int, error) {
	limit = cmp.Or(limit, 50)
	if limit < 1 || limit > 200 {
		return 0, picket.Invalid("limit", "Send a number from 1 to 200.", "limit is %d, allowed are 1 to 200", limit)
	}
	return limit, nil
}

// handoffCursorSyntax is a cursor of hand-offs: the instant and the id of a row.
var handoffCursorSyntax = regexp.MustCompile(`^([0-9]{1,15})\.(handoff_[0-9A-Z]{26})$`)

func handoffCursor(cursor string) (score, id string, err error) {
	if cursor == "" {
		return "", "", nil
	}
	m := handoffCursorSyntax.FindStringSubmatch(cursor)
	if m == nil {
		return "", "", badCursor()
	}
	return m[1], m[2], nil
}

func badCursor() error {
	return picket.Invalid("cursor", "Send nextCursor of the page before, or leave it out.", "cursor is not one of ours")
}

// Reviews lists a page of the tasks that wait for a decision, oldest first. A
// page looks at 2,000 tasks at most, so one with filters can have few rows, or
// none, and say where to go on.
func (e *Engine) Reviews(ctx context.Context, q picket.ReviewQuery) (page picket.ReviewPage, err error) {
	if q.Limit, err = pageLimit(q.Limit); err != nil {
		return page, err
	}
	if n, err := strconv.ParseInt(cmp.Or(q.Cursor, "0"), 10, 64); err != nil || n < 0 || n > 1<<53 {
		return page, badCursor()
	}
	sets, err := filterSets(picket.ReviewFilter{Role: q.Role, Parent: q.Parent, Labels: q.Labels})
	if err != nil {
		return page, err
	}
	got, err := e.run(ctx, "reviews", append([]any{q.Limit, q.Cursor}, sets...)...)
	if err != nil {
		return page, err
	}
	r := &reply{script: "reviews"}
	l := r.list(got)
	page = picket.ReviewPage{
		Reviews:    []picket.PendingReview{},
		Total:      r.int(r.at(l, 0)),
		NextCursor: optionalString(r.text(r.at(l, 1))),
	}
	for _, v := range l[2:] {
		page.Reviews = append(page.Reviews, r.pendingReview(r.list(v)))
	}
	return page, r.err
}

// filterSets names the sets of tasks that a filter means.
func filterSets(f picket.ReviewFilter) (sets []any, err error) {
	if f.Role != "" {
		if err := picket.CheckName("role", f.Role); err != nil {
			return nil, err
		}
		sets = append(sets, "by-role:"+f.Role)
	}
	if f.Parent != "" {
		if err := picket.CheckID("parent", "task", f.Parent); err != nil {
			return nil, err
		}
		sets = append(sets, "children:"+f.Parent)
	}
	for _, k := range slices.Sorted(maps.Keys(f.Labels)) {
		if err := picket.CheckLabel("label", k, f.Labels[k]); err != nil {
			return nil, err
		}
		sets = append(sets, "by-label:"+k+"="+f.Labels[k])
	}
	return sets, nil
}

func (r *reply) pendingReview(row []any) picket.PendingReview {
	id := r.text(r.at(row, 0))
	t := r.taskRecord(id, r.at(row, 1), r.at(row, 2))
	r.taskMoney(&t, r.at(row, 7))
	var o outputRecord
	r.json(r.at(row, 3), &o)
	return picket.PendingReview{
		TaskID:       id,
		RunID:        r.hash(row[1])["run"],
		Title:        t.Title,
		Role:         t.Role,
		Labels:       t.Labels,
		Parent:       t.Parent,
		Output:       o.Output,
		Summary:      o.Summary,
		SubmittedAt:  picket.Instant(r.int(r.at(row, 4))),
		FencingToken: t.FencingToken,
		Attempts:     t.Attempts,
		Spent:        t.Spent,
		Work:         r.work(r.at(row, 5), r.at(row, 6)),
		Digest:       r.text(r.at(row, 8)),
	}
}

// What lists show of the work of a run; Evidence has the whole.
const (
	maxWorkFiles    = 50
	maxWorkDiffstat = 4 << 10 // bytes
)

// summarizeEvidence is what lists show of evidence.
func summarizeEvidence(ev picket.Evidence) picket.WorkSummary {
	w := picket.WorkSummary{Branch: ev.Branch, Diffstat: headBytes(ev.Diffstat, maxWorkDiffstat)}
	for _, f := range ev.Files[:min(len(ev.Files), maxWorkFiles)] {
		w.Files = append(w.Files, strings.ToValidUTF8(f.Path, "\uFFFD"))
	}
	return w
}

// headBytes cuts text to n bytes.
func headBytes(s string, n int) string { return strings.ToValidUTF8(s[:min(len(s), n)], "") }

// work decodes what summarizeEvidence made.
func (r *reply) work(workspace, v any) (w picket.WorkSummary) {
	r.json(v, &w)
	w.WorkspacePath = r.text(workspace)
	return w
}
