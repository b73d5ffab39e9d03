package picket

import "github.com/picket-dev/picket/budget"

// Review is the decision on a completed task. A zero Decision is pending.
type Review struct {
	TaskID    string  `json:"taskId"`
	RunID     string  `json:"runId"`
	Decision  *string `json:"decision"` // approve, reject or null while pending
	Note      string  `json:"note"`
	By        string  `json:"by"`
	At        Instant `json:"at"`
	FixTaskID *string `json:"fixTaskId"`
}

// PendingReview is a row of the review queue, oldest first.
type PendingReview struct {
	TaskID       string            `json:"taskId"`
	RunID        string            `json:"runId"`
	Title        string            `json:"title"`
	Role         string            `json:"role"`
	Labels       map[string]string `json:"labels"`
	Parent       *string           `json:"parent"` // the task that delegated this one
	Output       RawJSON           `json:"output"`
	Summary      string            `json:"summary"`
	SubmittedAt  Instant           `json:"submittedAt"`
	FencingToken int64             `json:"fencingToken"`
	Attempts     int               `json:"attempts"`
	Spent        budget.Envelope   `json:"spent"`
	Work         Work              `json:"work"`
}

// ReviewQuery selects a page of the review queue. Filters are AND-ed.
type ReviewQuery struct {
	Role   string
	Parent string // the subtasks of this task
	Labels map[string]string
	Limit  int    // 1 to 200, default 50
	Cursor string // from the previous page
}

// ReviewPage is a page of the review queue; Total counts all that wait,
// whatever the filter.
type ReviewPage struct {
	Reviews    []PendingReview `json:"reviews"`
	Total      int64           `json:"total"`
	NextCursor *string         `json:"nextCursor"`
}

// ReviewFilter says which tasks in review are meant; members are AND-ed, and
// at least one is needed.
type ReviewFilter struct {
	Role    string            `json:"role,omitempty"`
	Parent  string            `json:"parent,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
	TaskIDs []string          `json:"taskIds,omitempty"`
}

// BulkApproval is the body of POST /api/v1/reviews/approve. Count is how many
// tasks the person saw: when the filter matches another number, nothing is
// decided (version_conflict with the fact count, or limit beyond 500).
type BulkApproval struct {
	Filter ReviewFilter `json:"filter"`
	Count  int          `json:"count"` // 1 to 500
	Note   string       `json:"note"`
}

// BulkApproved answers it: each decision is one of its own, so some can be lost
// to somebody who decided at the same time.
type BulkApproved struct {
	Approved []string   `json:"approved"`
	Lost     []LostRace `json:"lost"`
}

// LostRace is a task that somebody else decided first, or that is in review no
// more.
type LostRace struct {
	TaskID string `json:"taskId"`
	Code   Code   `json:"code"`
	By     string `json:"by"`
}
