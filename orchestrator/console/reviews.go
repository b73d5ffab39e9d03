package console

import (
	"cmp"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/picket-dev/picket"
)

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

// resultText is what a task in review says of its result.
func resultText(r picket.PendingReview) string {
	return clip(200, cmp.Or(r.Summary, indentJSON(r.Output)))
}

// reviewList is what the list shows.
type reviewList struct {
	Filter filter
	Rows   []picket.PendingReview
	Total  int64 // all that wait, whatever the filter
	Next   string
	All    string // the page that approves all of the filter
}

func listReviews(v *request) (page, error) {
	f := v.filter("role", "label", "assignee", "parent", "cursor")
	list := reviewList{Filter: f, All: f.with("cursor", "").link(reviewsPath + "/approve")}
	labels, err := labelFilter(f["label"])
	var found picket.ReviewPage
	if err == nil {
		found, err = v.backend.Reviews.Reviews(v.ctx(), picket.ReviewQuery{
			Role:     f["role"],
			Parent:   f["parent"],
			Assignee: f["assignee"],
			Labels:   labels,
			Limit:    pageRows,
			Cursor:   f["cursor"],
		})
	}
	if err != nil && picket.CodeOf(err).Status() >= 500 {
		return page{}, err
	}
	list.Rows, list.Total = found.Reviews, found.Total
	if found.NextCursor != nil {
		list.Next = f.with("cursor", *found.NextCursor).link(reviewsPath)
	}
	return page{
		name:    "reviews",
		title:   "Reviews",
		topics:  []string{"task.review", "task.approved", "task.rejected", "task.cancelled"},
		body:    list,
		problem: err,
	}, nil
}

// maxBulkApprovals is how many tasks the console approves at once.
const maxBulkApprovals = 200

// approvalForm is what the confirmation shows: what would be approved.
type approvalForm struct {
	Filter filter
	Tasks  []string // that were ticked
	Rows   []picket.PendingReview
	All    bool // there is no filter
	More   bool // too many for one confirmation
	Done   *picket.BulkApproved
}

// newApprovalForm has the filter and the tasks in the address, or in the form that was sent.
func (v *request) newApprovalForm() approvalForm {
	f := v.filter("role", "label", "assignee", "parent")
	if v.Request().Method != post {
		return approvalForm{Filter: f, Tasks: v.QueryParams()["task"]}
	}
	for name := range f {
		f[name] = v.formValue(name)
	}
	return approvalForm{Filter: f, Tasks: v.Request().PostForm["task"]}
}

// showApprovalForm shows what the filter matches now.
func showApprovalForm(v *request) (page, error) {
	c := v.newApprovalForm()
	var err error
	if len(c.Tasks) > 0 {
		c.Rows, err = v.pendingAmong(c.Tasks)
	} else {
		c.Rows, c.More, err = v.pendingMatching(c.Filter)
		c.All = !c.Filter.Narrow()
	}
	if err != nil {
		return page{}, err
	}
	if len(c.Tasks) > 0 || c.All { // exactly these are meant, and none that comes later
		c.Tasks = nil
		for _, r := range c.Rows {
			c.Tasks = append(c.Tasks, r.TaskID)
		}
	}
	return page{name: "approve", title: "Approve " + strconv.Itoa(len(c.Rows)), body: c}, nil
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
func (v *request) pendingMatching(f filter) (waiting []picket.PendingReview, more bool, err error) {
	q := picket.ReviewQuery{Role: f["role"], Parent: f["parent"], Assignee: f["assignee"]}
	if q.Labels, err = labelFilter(f["label"]); err != nil {
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
	done, err := v.approveAll()
	if err != nil {
		v.problem = err
		return v.show(showApprovalForm)
	}
	if len(done.Lost) > 0 {
		return v.render(page{name: "approve", title: "Approved", body: approvalForm{Done: &done}})
	}
	return v.Redirect(http.StatusSeeOther, withFlash(reviewsPath, "approvedall", strconv.Itoa(len(done.Approved))))
}

func (v *request) approveAll() (none picket.BulkApproved, err error) {
	by, err := v.caller()
	if err != nil {
		return none, err
	}
	count, err := strconv.Atoi(v.formWord("count"))
	if err != nil {
		return none, picket.Invalid("/count", "Type how many tasks you want to approve.", "the count is missing")
	}
	c := v.newApprovalForm()
	labels, err := labelFilter(c.Filter["label"])
	if err != nil {
		return none, err
	}
	note, err := v.shortText("note")
	if err != nil {
		return none, err
	}
	filter := picket.ReviewFilter{
		Role:     c.Filter["role"],
		Parent:   c.Filter["parent"],
		Assignee: c.Filter["assignee"],
		Labels:   labels,
		TaskIDs:  c.Tasks,
	}
	return v.backend.Reviews.ApproveAll(v.ctx(), by,
		picket.BulkApproval{Filter: filter, Count: count, Note: note, Digests: v.formDigests()})
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
