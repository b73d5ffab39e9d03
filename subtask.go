package picket

import "github.com/picket-dev/picket/budget"

// Bounds of a tree of tasks.
const (
	MaxDepth  = 8  // levels below the root
	MaxFanOut = 20 // children of one task
)

// Subtask is the body of delegate_subtask. The child's envelope is carved from
// the caller's; without one it is zero, good for free tools only.
type Subtask struct {
	Title          string           `json:"title"`
	Input          RawJSON          `json:"input,omitempty"`
	Role           string           `json:"role,omitempty"`
	Needs          []string         `json:"needs,omitempty"`
	BudgetEnvelope *budget.Envelope `json:"budgetEnvelope,omitempty"`
	Priority       *int             `json:"priority,omitempty"`
	TimeoutSeconds *int             `json:"timeoutSeconds,omitempty"`
	Review         ReviewBy         `json:"review,omitempty"` // parent (default), human or none
}

// Delegated answers it; the same Idempotency-Key again answers the same child.
type Delegated struct {
	TaskID    string          `json:"taskId"`
	State     TaskState       `json:"state"`
	Available budget.Envelope `json:"available"` // of the caller's envelope, after the carving
}

// SubtaskAwait is the body of await_subtask.
type SubtaskAwait struct {
	TaskID      string `json:"taskId"`
	WaitSeconds *int   `json:"waitSeconds,omitempty"` // 0 to 50; default 50
}

// SubtaskState is what a parent sees of a child: the answer of await_subtask.
// Settled is true when the parent can go on: the child is terminal, waits for
// its review, or waits for a person.
type SubtaskState struct {
	TaskID     string          `json:"taskId"`
	State      TaskState       `json:"state"`
	Settled    bool            `json:"settled"`
	Title      string          `json:"title"`
	Output     RawJSON         `json:"output"`
	Summary    string          `json:"summary"`
	Reason     string          `json:"reason,omitempty"`
	LastReport *Report         `json:"lastReport"`
	Review     *Review         `json:"review"`
	Spent      budget.Envelope `json:"spent"`
	Because    []string        `json:"because,omitempty"` // why a queued child does not run
}

// SubtaskReview is the body of review_subtask.
type SubtaskReview struct {
	TaskID   string `json:"taskId"`
	Decision string `json:"decision"` // approve or reject
	Note     string `json:"note,omitempty"`
}

// Completion is the body of mark_complete.
type Completion struct {
	Output  RawJSON `json:"output"`
	Summary string  `json:"summary,omitempty"`
	// Children says what becomes of subtasks that are still open: detach (a
	// person reviews them) or cancel. Empty: children_open is refused.
	Children Children `json:"children,omitempty"`
}

// Children is what becomes of the open subtasks of a task that ends.
type Children string

const (
	ChildrenDetach Children = "detach"
	ChildrenCancel Children = "cancel"
)
