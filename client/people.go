package client

import (
	"context"
	"iter"

	"github.com/picket-dev/picket"
)

// Handoffs are the questions that agents ask people.
type Handoffs struct{ c *Client }

// Get reads a hand-off.
func (h Handoffs) Get(ctx context.Context, id string, opts ...Option) (picket.Handoff, error) {
	return get[picket.Handoff](ctx, h.c, route("handoffs", id), opts)
}

// List reads a page of hand-offs of one state, oldest first.
func (h Handoffs) List(ctx context.Context, q picket.HandoffQuery, opts ...Option) (picket.HandoffPage, error) {
	v := parameters("state", string(q.State), "assignee", q.Assignee, "limit", q.Limit, "cursor", q.Cursor)
	return query[picket.HandoffPage](ctx, h.c, route("handoffs"), v, opts)
}

// All reads the hand-offs of all pages from the one that the query begins with.
func (h Handoffs) All(ctx context.Context, q picket.HandoffQuery, opts ...Option) iter.Seq2[picket.Handoff, error] {
	return all(q.Cursor, func(cursor string) ([]picket.Handoff, *string, error) {
		q.Cursor = cursor
		page, err := h.List(ctx, q, opts...)
		return page.Handoffs, page.NextCursor, err
	})
}

// Claim tells others that a person answers this hand-off.
func (h Handoffs) Claim(ctx context.Context, id string, claim picket.ClaimRequest,
	opts ...Option) (picket.Handoff, error) {
	return post[picket.Handoff](ctx, h.c, route("handoffs", id, "claim"), claim, opts)
}

// Answer answers a hand-off. The task is queued again.
func (h Handoffs) Answer(ctx context.Context, id string, answer picket.AnswerRequest,
	opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, h.c, route("handoffs", id, "answer"), answer, opts)
}

// Finish ends the task of a hand-off with an output that a person gives.
func (h Handoffs) Finish(ctx context.Context, id string, output picket.RawJSON,
	opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, h.c, route("handoffs", id, "finish"), struct {
		Output picket.RawJSON `json:"output"`
	}{output}, opts)
}

// Cancel ends the task of a hand-off.
func (h Handoffs) Cancel(ctx context.Context, id, reason string, opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, h.c, route("handoffs", id, "cancel"), reasonBody{reason}, opts)
}

// Reviews are decisions about results.
type Reviews struct{ c *Client }

// List reads a page of the review queue, oldest first.
func (r Reviews) List(ctx context.Context, q picket.ReviewQuery, opts ...Option) (picket.ReviewPage, error) {
	v := parameters("role", q.Role, "parent", q.Parent, "assignee", q.Assignee,
		"label", q.Labels, "limit", q.Limit, "cursor", q.Cursor)
	return query[picket.ReviewPage](ctx, r.c, route("reviews"), v, opts)
}

// All reads the review queue of all pages from the one that the query begins with.
func (r Reviews) All(ctx context.Context, q picket.ReviewQuery,
	opts ...Option) iter.Seq2[picket.PendingReview, error] {
	return all(q.Cursor, func(cursor string) ([]picket.PendingReview, *string, error) {
		q.Cursor = cursor
		page, err := r.List(ctx, q, opts...)
		return page.Reviews, page.NextCursor, err
	})
}

// Approve completes a task.
func (r Reviews) Approve(ctx context.Context, taskID string, d picket.Decision, opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, r.c, route("reviews", taskID, "approve"), d, opts)
}

// ApproveAll completes the tasks that a filter matches. Each is a decision of its own.
func (r Reviews) ApproveAll(ctx context.Context, all picket.BulkApproval,
	opts ...Option) (picket.BulkApproved, error) {
	return post[picket.BulkApproved](ctx, r.c, route("reviews", "approve"), all, opts)
}

// Rejected is a task that was rejected, with the task that repairs it.
type Rejected struct {
	picket.Task
	FixTaskID *string `json:"fixTaskId"` // nil without a fix
}

// Reject refuses the result of a task. In the same step it submits fix, which repairs it;
// nil submits nothing.
func (r Reviews) Reject(ctx context.Context, taskID string, d picket.Decision, fix *picket.TaskSpec,
	opts ...Option) (Rejected, error) {
	return post[Rejected](ctx, r.c, route("reviews", taskID, "reject"), struct {
		picket.Decision
		Fix *picket.TaskSpec `json:"fix,omitempty"`
	}{d, fix}, opts)
}

// Budgets are envelopes and the ledger.
type Budgets struct{ c *Client }

// Get reads an envelope with those below it: of a task, of a day ("house:2026-04-11"), or
// of today ("house").
func (b Budgets) Get(ctx context.Context, id string, opts ...Option) (picket.EnvelopeState, error) {
	return get[picket.EnvelopeState](ctx, b.c, route("envelopes", id), opts)
}

// TopUp gives an envelope more dollars or tokens. If its task is parked for money, its
// hand-off is answered in the same step, unless more.KeepParked is set.
func (b Budgets) TopUp(ctx context.Context, id string, more picket.TopUp,
	opts ...Option) (picket.TopUpResult, error) {
	return post[picket.TopUpResult](ctx, b.c, route("envelopes", id, "top-up"), more, opts)
}

// Spending reports what was spent, by UTC day, role, model or label.
func (b Budgets) Spending(ctx context.Context, q picket.SpendingQuery,
	opts ...Option) (picket.SpendingReport, error) {
	v := parameters("by", joined(q.By), "since", q.Since, "until", q.Until)
	return query[picket.SpendingReport](ctx, b.c, route("spending"), v, opts)
}

// Ledger reads a page of what was charged and added, oldest first. NewestFirst is not
// sent.
func (b Budgets) Ledger(ctx context.Context, q picket.LedgerQuery, opts ...Option) (picket.LedgerPage, error) {
	v := parameters("task", q.TaskID, "after", q.After, "limit", q.Limit)
	return query[picket.LedgerPage](ctx, b.c, route("ledger"), v, opts)
}
