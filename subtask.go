package picket

import (
	"cmp"
	"strings"
	"time"

	"github.com/picket-dev/picket/budget"
)

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
	Priority       *int             `json:"priority,omitempty"`       // 0 to 9; default: the parent's
	TimeoutSeconds *int             `json:"timeoutSeconds,omitempty"` // 1 to 604,800; default: the parent's
	Review         ReviewBy         `json:"review,omitempty"`         // parent (default), human or none
	// Client is set for a subtask that an agent submitted at an endpoint. It is not in the body.
	Client *ClientTask `json:"-"`
}

// Delegated answers it; the same Idempotency-Key again answers the same child.
type Delegated struct {
	TaskID    string          `json:"taskId"`
	State     TaskState       `json:"state"`
	Available budget.Envelope `json:"available"`       // of the caller's envelope, after the carving
	Nudge     *Nudge          `json:"nudge,omitempty"` // set when the agent seems to be stuck
	Unread    int             `json:"unread,omitzero"` // how many messages wait for the agent
}

// Check refuses what can be seen to be wrong without knowing the parent.
func (s Subtask) Check() error {
	if strings.TrimSpace(s.Title) == "" {
		return Invalid("/title", "Say in a few words what the task is.", "title is required")
	}
	if len(s.Input) > MaxPayload {
		return TooLarge("/input", len(s.Input))
	}
	if s.BudgetEnvelope == nil {
		return nil
	}
	if err := s.BudgetEnvelope.Check(); err != nil {
		return Invalid("/budgetEnvelope", `Send for example {"tokens":20000,"usd":0.1}.`, "budgetEnvelope: %v", err)
	}
	return nil
}

// SpecUnder specifies the subtask of a parent. What it does not say is as the
// operator wanted it for the parent: window, priority, times, retries, labels.
// Its review is the parent's.
func (s Subtask) SpecUnder(parent Task) (TaskSpec, error) {
	if err := s.Check(); err != nil {
		return TaskSpec{}, err
	}
	spec := parent.Spec()
	spec.Title, spec.Input, spec.Role, spec.Needs = s.Title, s.Input, s.Role, s.Needs
	spec.Review, spec.Agent, spec.Fixes, spec.Client = s.Review, "", "", s.Client
	spec.BudgetEnvelope = &budget.Envelope{}
	if s.BudgetEnvelope != nil {
		own := *s.BudgetEnvelope
		spec.BudgetEnvelope = &own
	}
	spec.Priority = cmp.Or(s.Priority, spec.Priority)
	spec.TimeoutSeconds = cmp.Or(s.TimeoutSeconds, spec.TimeoutSeconds)
	byParent := spec.Review == "" || spec.Review == ReviewByParent
	if byParent {
		spec.Review = ""
	}
	if err := spec.Normalize(); err != nil {
		return TaskSpec{}, err
	}
	if byParent {
		spec.Review = ReviewByParent
	}
	return spec, nil
}

// Spec specifies the same task once more, to start at once.
func (t Task) Spec() TaskSpec {
	s := TaskSpec{
		Title:             t.Title,
		Input:             t.Input,
		Role:              t.Role,
		Needs:             t.Needs,
		Agent:             t.Agent,
		TimeoutSeconds:    t.TimeoutSeconds,
		StallAfterSeconds: t.StallAfterSeconds,
		Escalate:          t.Escalate,
		Review:            t.ReviewBy,
		OnExit:            t.OnExit,
		Labels:            t.Labels,
		Trace:             t.Trace,
	}
	if t.TaskID == "" {
		return s
	}
	retry, envelope := t.Retry, t.BudgetEnvelope
	s.Priority, s.LeaseWindowSeconds, s.Retry, s.BudgetEnvelope = &t.Priority, &t.LeaseWindowSeconds, &retry, &envelope
	return s
}

// MaxAwait is the longest wait of one call for a subtask.
const MaxAwait = 50 * time.Second

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
	Nudge      *Nudge          `json:"nudge,omitempty"`   // set when the run that asks seems to be stuck
	Unread     int             `json:"unread,omitzero"`   // how many messages wait for the run that asks
}

// SubtaskReview is the body of review_subtask.
type SubtaskReview struct {
	TaskID   string `json:"taskId"`
	Decision string `json:"decision"` // approve or reject
	Note     string `json:"note,omitempty"`
	Digest   string `json:"digest,omitempty"` // of the review that await_subtask showed, as in Decision
}

// MaxNote bounds the note of a review in bytes.
const MaxNote = 16 << 10

// Check refuses a review that decides nothing or names no task.
func (r SubtaskReview) Check() error {
	if err := cmp.Or(CheckID("/taskId", "task", r.TaskID),
		oneOf("/decision", r.Decision, "approve", "reject")); err != nil {
		return err
	}
	if len(r.Note) > MaxNote {
		return TooLarge("/note", len(r.Note))
	}
	return CheckDigest("/digest", r.Digest)
}

// Completion is the body of mark_complete.
type Completion struct {
	Output  RawJSON `json:"output"`
	Summary string  `json:"summary,omitempty"`
	// Children says what happens to subtasks that are still open: detach (they run on; a person
	// reviews those that the parent was to review) or cancel. Empty: children_open is refused.
	Children Children `json:"children,omitempty"`
}

// Children says what happens to the open subtasks of a task that ends.
type Children string

const (
	ChildrenDetach Children = "detach"
	ChildrenCancel Children = "cancel"
)

// Check refuses what is neither of them nor nothing.
func (c Children) Check() error {
	if c == "" {
		return nil
	}
	return oneOf("/children", c, ChildrenDetach, ChildrenCancel)
}
