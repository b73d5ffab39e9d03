package console

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

// reviewReads is what the pages of reviews ask of the engine.
type reviewReads interface {
	Reviews(ctx context.Context, q picket.ReviewQuery) (picket.ReviewPage, error)
	Evidence(ctx context.Context, taskID, runID string) ([]picket.Evidence, error)
	Reports(ctx context.Context, taskID string) ([]picket.Report, error)
	Ledger(ctx context.Context, q picket.LedgerQuery) (picket.LedgerPage, error)
}

const reviewsPath = "/console/reviews"

func reviewPath(task string) string { return reviewsPath + "/" + task }

func reviewPages() []route {
	one := reviewsPath + "/:task"
	reads := []string{"GET /api/v1/tasks/:id", "GET /api/v1/tasks/:id/evidence", "GET /api/v1/tasks/:id/reports",
		"GET /api/v1/tasks/:id/logs", "GET /api/v1/ledger"}
	approve, reject := []string{"POST /api/v1/reviews/:task/approve"}, []string{"POST /api/v1/reviews/:task/reject"}
	return []route{
		{
			name:   "reviews",
			method: get,
			path:   reviewsPath,
			scopes: people,
			as:     []string{"GET /api/v1/reviews"},
			handle: reviews,
			nav:    "Reviews",
		},
		{
			name:   "reviews.choose",
			method: get,
			path:   reviewsPath + "/approve",
			scopes: people,
			as:     []string{"GET /api/v1/reviews"},
			handle: chooseReviews,
		},
		{
			name:   "reviews.approve",
			method: post,
			path:   reviewsPath + "/approve",
			scopes: people,
			as:     []string{"POST /api/v1/reviews/approve"},
			handle: approveReviews,
		},
		{name: "review", method: get, path: one, scopes: people, as: reads, handle: review},
		{name: "review.full", method: get, path: one + "/full/:part", scopes: people, as: reads, handle: reviewFull},
		{
			name:   "review.approve",
			method: post,
			path:   one + "/approve",
			scopes: people,
			as:     approve,
			handle: approveReview,
		},
		{name: "review.reject", method: post, path: one + "/reject", scopes: people, as: reject, handle: rejectReview},
		{name: "review.fix", method: post, path: one + "/fix", scopes: people, as: reject, handle: fixReview},
	}
}

// reviewFilter is what the address of the list says, as it was typed.
type reviewFilter struct {
	Role   string
	Label  string
	Parent string
	Cursor string
	Tasks  []string // of the confirmation: those that were ticked
}

// address is that of a page with the filter.
func (f reviewFilter) address(path string) string {
	return address(path, "role", f.Role, "label", f.Label, "parent", f.Parent, "cursor", f.Cursor)
}

// Narrow reports whether anything is filtered.
func (f reviewFilter) Narrow() bool { return f.Role+f.Label+f.Parent != "" }

func (f reviewFilter) labels() (map[string]string, error) {
	if f.Label == "" {
		return nil, nil
	}
	name, value, ok := strings.Cut(f.Label, "=")
	if !ok {
		return nil, picket.Invalid("label", "Write it name=value.", "%q is not a label and its value",
			clip(64, f.Label))
	}
	return map[string]string{name: value}, nil
}

func (v *visit) reviewFilter() reviewFilter {
	return reviewFilter{
		Role:   v.parameter("role"),
		Label:  v.parameter("label"),
		Parent: v.parameter("parent"),
		Cursor: v.parameter("cursor"),
	}
}

// reviewRow is a task in review, in a list.
type reviewRow struct {
	picket.PendingReview
	Path   string
	Says   string // what it says of its result
	Labels []pair
	Files  int
}

func reviewRows(all []picket.PendingReview) []reviewRow {
	rows := make([]reviewRow, len(all))
	for i, r := range all {
		says := r.Summary
		if says == "" {
			says = pretty(r.Output)
		}
		labels := labelsOf(r.Labels)
		rows[i] = reviewRow{r, reviewPath(r.TaskID), clip(200, says), labels[:min(len(labels), 3)], len(r.Work.Files)}
	}
	return rows
}

// reviewList is what the list shows.
type reviewList struct {
	Filter reviewFilter
	Rows   []reviewRow
	Total  int64 // all that wait, whatever the filter
	Next   string
	All    string // the page that approves all of the filter
}

func reviews(v *visit) error {
	if err := v.look(); err != nil {
		return err
	}
	list := reviewList{Filter: v.reviewFilter()}
	f := list.Filter
	labels, err := f.labels()
	var found picket.ReviewPage
	if err == nil {
		found, err = v.desk.Reviews(v.ctx(),
			picket.ReviewQuery{Role: f.Role, Parent: f.Parent, Labels: labels, Limit: pageRows, Cursor: f.Cursor})
	}
	status := http.StatusOK
	if err != nil {
		if status = picket.CodeOf(err).Status(); status >= 500 {
			return err
		}
	}
	list.Rows, list.Total = reviewRows(found.Reviews), found.Total
	f.Cursor = ""
	list.All = f.address(reviewsPath + "/approve")
	if found.NextCursor != nil {
		f.Cursor = *found.NextCursor
		list.Next = f.address(reviewsPath)
	}
	return v.show(status, page{
		name:    "reviews",
		title:   "Reviews",
		topics:  []string{"task.review", "task.approved", "task.rejected", "task.cancelled"},
		body:    list,
		problem: err,
	})
}

// maxChosen is how many tasks the console approves at once.
const maxChosen = 200

// chosen is what the confirmation shows: what would be approved, and how many.
type chosen struct {
	Filter reviewFilter
	Rows   []reviewRow
	Count  int
	All    bool // there is no filter
	More   bool // too many for one confirmation
	Typed  string
	Note   string
	Done   *picket.BulkApproved
}

func chooseReviews(v *visit) error {
	f := v.reviewFilter()
	f.Cursor, f.Tasks = "", v.QueryParams()["task"]
	return v.choosePage(chosen{Filter: f}, nil)
}

// choosePage shows what the filter matches now.
func (v *visit) choosePage(c chosen, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	var waiting []picket.PendingReview
	var err error
	if len(c.Filter.Tasks) > 0 {
		waiting, err = v.stillWaiting(c.Filter.Tasks)
	} else {
		waiting, c.More, err = v.allWaiting(c.Filter)
		c.All = !c.Filter.Narrow()
	}
	if err != nil {
		return err
	}
	c.Rows, c.Count = reviewRows(waiting), len(waiting)
	if len(c.Filter.Tasks) > 0 || c.All { // exactly these are meant, and none that comes later
		c.Filter.Tasks = nil
		for _, r := range waiting {
			c.Filter.Tasks = append(c.Filter.Tasks, r.TaskID)
		}
	}
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:    "choose",
		title:   "Approve " + strconv.Itoa(c.Count),
		nav:     "reviews",
		body:    c,
		problem: problem,
	})
}

// stillWaiting are those of the tasks that wait for a decision, wherever in the
// queue they are.
func (v *visit) stillWaiting(ids []string) (waiting []picket.PendingReview, err error) {
	for _, id := range ids[:min(len(ids), maxChosen)] {
		t, err := v.desk.Task(v.ctx(), id)
		if errors.Is(err, picket.CodeNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if t.State == picket.TaskReview {
			waiting = append(waiting,
				picket.PendingReview{
					TaskID:      t.TaskID,
					Title:       t.Title,
					Spent:       t.Spent,
					SubmittedAt: t.UpdatedAt,
					Digest:      t.Review.Digest,
				})
		}
	}
	return waiting, nil
}

// maxLooks is how many pages of the queue a confirmation looks through. A page
// can be short: outputs are long, or a filter leaves most out.
const maxLooks = 20

// allWaiting are the tasks that the filter means, and whether there are more of
// them than the console approves at once.
func (v *visit) allWaiting(f reviewFilter) (waiting []picket.PendingReview, more bool, err error) {
	q := picket.ReviewQuery{Role: f.Role, Parent: f.Parent}
	if q.Labels, err = f.labels(); err != nil {
		return nil, false, err
	}
	for range maxLooks {
		q.Limit = maxChosen - len(waiting)
		found, err := v.desk.Reviews(v.ctx(), q)
		if err != nil {
			return nil, false, err
		}
		for _, r := range found.Reviews {
			r.Output, r.Summary = nil, ""
			waiting = append(waiting, r)
		}
		if found.NextCursor == nil {
			return waiting, false, nil
		}
		if len(waiting) == maxChosen {
			break
		}
		q.Cursor = *found.NextCursor
	}
	return waiting, true, nil
}

func approveReviews(v *visit) error {
	f := reviewFilter{
		Role:   v.form("role"),
		Label:  v.form("label"),
		Parent: v.form("parent"),
		Tasks:  v.Request().PostForm["task"],
	}
	c := chosen{Filter: f, Typed: strings.TrimSpace(v.form("count")), Note: v.typed("note")}
	done, err := v.approveAll(c)
	if err != nil {
		return v.choosePage(c, err)
	}
	if len(done.Lost) > 0 {
		c.Done = &done
		return v.show(http.StatusOK, page{name: "choose", title: "Approved", nav: "reviews", body: c})
	}
	return v.done(reviewsPath, "approvedall", strconv.Itoa(len(done.Approved)))
}

func (v *visit) approveAll(c chosen) (picket.BulkApproved, error) {
	var none picket.BulkApproved
	by, err := v.caller()
	if err != nil {
		return none, err
	}
	count, err := strconv.Atoi(c.Typed)
	if err != nil {
		return none, picket.Invalid("/count", "Type how many tasks you want to approve.", "the count is missing")
	}
	labels, err := c.Filter.labels()
	if err != nil {
		return none, err
	}
	if len(c.Note) > maxReason {
		return none, tooLong("/note", len(c.Note))
	}
	filter := picket.ReviewFilter{Role: c.Filter.Role, Parent: c.Filter.Parent, Labels: labels, TaskIDs: c.Filter.Tasks}
	return v.desk.ApproveAll(v.ctx(), by,
		picket.BulkApproval{Filter: filter, Count: count, Note: c.Note, Digests: v.shownDigests()})
}

// shownDigests are those of the tasks on the page that was sent, by task.
func (v *visit) shownDigests() map[string]string {
	digests := map[string]string{}
	for _, shown := range v.Request().PostForm["shown"] {
		task, digest, _ := strings.Cut(shown, " ")
		digests[task] = digest
	}
	return digests
}

func tooLong(field string, n int) error {
	return picket.Invalid(field, "Write less; details belong into the task.", "it has %d bytes, at most %d are allowed",
		n, maxReason)
}
