package console

import (
	"errors"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

const reviewsPath = "/console/reviews"

func reviewPath(task string) string { return reviewsPath + "/" + task }

func reviewRoutes() []route {
	one := reviewsPath + "/:task"
	reads := []string{"GET /api/v1/tasks/:id", "GET /api/v1/tasks/:id/evidence", "GET /api/v1/tasks/:id/reports",
		"GET /api/v1/tasks/:id/logs", "GET /api/v1/ledger"}
	approve, reject := []string{"POST /api/v1/reviews/:task/approve"}, []string{"POST /api/v1/reviews/:task/reject"}
	return []route{
		show("reviews", reviewsPath, personScopes, listReviews, "GET /api/v1/reviews").inNav("Reviews"),
		show("reviews.choose", reviewsPath+"/approve", personScopes, showApprovalForm, "GET /api/v1/reviews"),
		act("reviews.approve", reviewsPath+"/approve", personScopes, approveReviews, "POST /api/v1/reviews/approve"),
		show("review", one, personScopes, showReview, reads...),
		show("review.full", one+"/full/:part", personScopes, showReviewText, reads...),
		act("review.approve", one+"/approve", personScopes, approveReview, approve...),
		act("review.reject", one+"/reject", personScopes, rejectReview, reject...),
		act("review.fix", one+"/fix", personScopes, showFixForm, reject...),
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

// link is that of a page with the filter.
func (f reviewFilter) link(path string) string {
	return queryPath(path, "role", f.Role, "label", f.Label, "parent", f.Parent, "cursor", f.Cursor)
}

// Narrow reports whether anything is filtered.
func (f reviewFilter) Narrow() bool { return f.Role+f.Label+f.Parent != "" }

// labelFilter reads a label as people type it, name=value. It is nil for "".
func labelFilter(typed string) (map[string]string, error) {
	if typed == "" {
		return nil, nil
	}
	name, value, ok := strings.Cut(typed, "=")
	if !ok {
		return nil, picket.Invalid("label", "Write it name=value.", "%q is not a label and its value", clip(64, typed))
	}
	return map[string]string{name: value}, nil
}

func (v *request) readReviewFilter() reviewFilter {
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
	Path       string
	ResultText string // what it says of its result
	Labels     []pair
	Files      int
}

func reviewRows(all []picket.PendingReview) []reviewRow {
	rows := make([]reviewRow, len(all))
	for i, r := range all {
		says := r.Summary
		if says == "" {
			says = indentJSON(r.Output)
		}
		labels := sortedLabels(r.Labels)
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

func listReviews(v *request) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	list := reviewList{Filter: v.readReviewFilter()}
	f := list.Filter
	labels, err := labelFilter(f.Label)
	var found picket.ReviewPage
	if err == nil {
		found, err = v.backend.Reviews.Reviews(v.ctx(),
			picket.ReviewQuery{Role: f.Role, Parent: f.Parent, Labels: labels, Limit: pageRows, Cursor: f.Cursor})
	}
	if err != nil && picket.CodeOf(err).Status() >= 500 {
		return err
	}
	list.Rows, list.Total = reviewRows(found.Reviews), found.Total
	f.Cursor = ""
	list.All = f.link(reviewsPath + "/approve")
	if found.NextCursor != nil {
		f.Cursor = *found.NextCursor
		list.Next = f.link(reviewsPath)
	}
	return v.render(page{
		name:    "reviews",
		title:   "Reviews",
		topics:  []string{"task.review", "task.approved", "task.rejected", "task.cancelled"},
		body:    list,
		problem: err,
	})
}

// maxBulkApprovals is how many tasks the console approves at once.
const maxBulkApprovals = 200

// approvalForm is what the confirmation shows: what would be approved, and how many.
type approvalForm struct {
	Filter reviewFilter
	Rows   []reviewRow
	Count  int
	All    bool // there is no filter
	More   bool // too many for one confirmation
	Typed  string
	Note   string
	Done   *picket.BulkApproved
}

func showApprovalForm(v *request) error {
	f := v.readReviewFilter()
	f.Cursor, f.Tasks = "", v.QueryParams()["task"]
	return v.approvalPage(approvalForm{Filter: f}, nil)
}

// approvalPage shows what the filter matches now.
func (v *request) approvalPage(c approvalForm, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	var waiting []picket.PendingReview
	var err error
	if len(c.Filter.Tasks) > 0 {
		waiting, err = v.pendingAmong(c.Filter.Tasks)
	} else {
		waiting, c.More, err = v.pendingMatching(c.Filter)
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
	return v.render(page{
		name:    "approve",
		title:   "Approve " + strconv.Itoa(c.Count),
		nav:     "reviews",
		body:    c,
		problem: problem,
	})
}

// pendingAmong are those of the tasks that wait for a decision, wherever in the
// queue they are.
func (v *request) pendingAmong(ids []string) (waiting []picket.PendingReview, err error) {
	for _, id := range ids[:min(len(ids), maxBulkApprovals)] {
		t, err := v.backend.Tasks.Task(v.ctx(), id)
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

// maxQueuePages is how many pages of the queue a confirmation looks through. A page
// can be short: outputs are long, or a filter leaves most out.
const maxQueuePages = 20

// pendingMatching are the tasks that the filter means, and whether there are more of
// them than the console approves at once.
func (v *request) pendingMatching(f reviewFilter) (waiting []picket.PendingReview, more bool, err error) {
	q := picket.ReviewQuery{Role: f.Role, Parent: f.Parent}
	if q.Labels, err = labelFilter(f.Label); err != nil {
		return nil, false, err
	}
	for range maxQueuePages {
		q.Limit = maxBulkApprovals - len(waiting)
		found, err := v.backend.Reviews.Reviews(v.ctx(), q)
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
		if len(waiting) == maxBulkApprovals {
			break
		}
		q.Cursor = *found.NextCursor
	}
	return waiting, true, nil
}

func approveReviews(v *request) error {
	f := reviewFilter{
		Role:   v.formValue("role"),
		Label:  v.formValue("label"),
		Parent: v.formValue("parent"),
		Tasks:  v.Request().PostForm["task"],
	}
	c := approvalForm{Filter: f, Typed: strings.TrimSpace(v.formValue("count")), Note: v.formText("note")}
	done, err := v.approveAll(c)
	if err != nil {
		return v.approvalPage(c, err)
	}
	if len(done.Lost) > 0 {
		c.Done = &done
		return v.render(page{name: "approve", title: "Approved", nav: "reviews", body: c})
	}
	return v.redirectWithFlash(reviewsPath, "approvedall", strconv.Itoa(len(done.Approved)))
}

func (v *request) approveAll(c approvalForm) (picket.BulkApproved, error) {
	var none picket.BulkApproved
	by, err := v.caller()
	if err != nil {
		return none, err
	}
	count, err := strconv.Atoi(c.Typed)
	if err != nil {
		return none, picket.Invalid("/count", "Type how many tasks you want to approve.", "the count is missing")
	}
	labels, err := labelFilter(c.Filter.Label)
	if err != nil {
		return none, err
	}
	if len(c.Note) > maxReason {
		return none, tooLong("/note", len(c.Note))
	}
	filter := picket.ReviewFilter{Role: c.Filter.Role, Parent: c.Filter.Parent, Labels: labels, TaskIDs: c.Filter.Tasks}
	return v.backend.Reviews.ApproveAll(v.ctx(), by,
		picket.BulkApproval{Filter: filter, Count: count, Note: c.Note, Digests: v.formDigests()})
}

// formDigests are those of the tasks on the page that was sent, by task.
func (v *request) formDigests() map[string]string {
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
