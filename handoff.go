package picket

// Handoff is a task parked until a person acts. A run ends in at most one, so
// its id is the run's ULID under the prefix handoff_.
type Handoff struct {
	HandoffID  string      `json:"handoffId"`
	TaskID     string      `json:"taskId"`
	RunID      string      `json:"runId"`
	Title      string      `json:"title"` // of the task
	Kind       HandoffKind `json:"kind"`
	Question   string      `json:"question"`
	Options    []string    `json:"options"`
	Tried      []Attempted `json:"tried"` // from the last report
	LastReport *Report     `json:"lastReport"`
	Deadline   Instant     `json:"deadline"` // null: none was set
	OnDeadline OnDeadline  `json:"onDeadline"`
	ClaimedBy  string      `json:"claimedBy"` // the person who looks after it; anybody may still decide
	ClaimedAt  Instant     `json:"claimedAt"` // null: nobody has claimed it
	// Assignee is the person who should take it: of the task, or named with a claim. It is a
	// hint, and "" is nobody.
	Assignee  string       `json:"assignee"`
	Work      WorkSummary  `json:"work"`
	Answer    *Answer      `json:"answer"`
	State     HandoffState `json:"state"`
	CreatedAt Instant      `json:"createdAt"`
}

// WorkSummary is what a run left behind, as far as its adapter has handed it in, cut to
// what a list shows: 4 KiB of Diffstat, 50 Files. Its evidence has the whole.
type WorkSummary struct {
	Branch        string   `json:"branch"`   // git branch of the run's commits
	Diffstat      string   `json:"diffstat"` // one line a file
	Files         []string `json:"files"`    // paths changed, relative to the workspace
	WorkspacePath string   `json:"workspacePath"`
}

// HandoffKind says why a person is needed.
type HandoffKind string

const (
	HandoffQuestion   HandoffKind = "question"
	HandoffApproval   HandoffKind = "approval"
	HandoffBudget     HandoffKind = "budget"     // asks for a top-up; a person adds it, then answers
	HandoffEscalation HandoffKind = "escalation" // made by the retry policy, not by an agent
)

// HandoffKinds are all kinds.
var HandoffKinds = []HandoffKind{HandoffQuestion, HandoffApproval, HandoffBudget, HandoffEscalation}

// OnDeadline says what happens when nobody answers in time.
type OnDeadline string

const (
	OnDeadlineWait     OnDeadline = "wait"     // nothing; the default
	OnDeadlineDeny     OnDeadline = "deny"     // answered "denied by deadline"
	OnDeadlineEscalate OnDeadline = "escalate" // priority up, and a second notice
)

// HelpRequest is the body of request_human_help.
type HelpRequest struct {
	Question        string      `json:"question"`
	Options         []string    `json:"options,omitempty"`
	Kind            HandoffKind `json:"kind,omitempty"`            // question (default), approval or budget
	DeadlineSeconds *int        `json:"deadlineSeconds,omitempty"` // 1 to 2,592,000; default none
	OnDeadline      OnDeadline  `json:"onDeadline,omitempty"`
}

// HelpRequested answers request_human_help.
type HelpRequested struct {
	HandoffID string    `json:"handoffId"`
	State     TaskState `json:"state"`
}

// Answer is a person's decision on a hand-off; every answer stays in the
// task's context for all later runs.
type Answer struct {
	HandoffID string  `json:"handoffId"`
	Question  string  `json:"question"`
	Answer    RawJSON `json:"answer"`
	Option    *string `json:"option"`
	// Input, when a person edited it, takes the place of the task's input in all
	// later runs; the task itself keeps what was submitted. Null otherwise, and
	// where InputEdited is true, null is the edited value.
	Input       RawJSON `json:"input"`
	InputEdited bool    `json:"inputEdited"`
	By          string  `json:"by"`
	At          Instant `json:"at"`
}

// AnswerRequest is the body of POST /api/v1/handoffs/{id}/answer: free text or any JSON, or one of
// the options offered, or both. Input is the input that later runs get instead of the submitted
// one, at most 256 KiB. A member that is null is one that was not sent, so ClearInput stands for
// the input null.
type AnswerRequest struct {
	Answer     RawJSON `json:"answer,omitempty"`
	Option     *string `json:"option,omitempty"`
	Input      RawJSON `json:"input,omitempty"`
	ClearInput bool    `json:"clearInput,omitzero"`
}

// ClaimRequest is the body of POST /api/v1/handoffs/{id}/claim. Without
// TakeOver, what somebody else has claimed stays theirs (state_conflict).
type ClaimRequest struct {
	TakeOver bool `json:"takeOver,omitzero"`
	// Assignee claims the hand-off for another person, who should take it from now on. The
	// claim is the caller's, and the log names both.
	Assignee string `json:"assignee,omitzero"`
}

// HandoffQuery selects a page of hand-offs of one state, oldest first.
type HandoffQuery struct {
	State HandoffState // open by default
	// Assignee is who should take them. Such a page looks at 500 hand-offs at most, so it can
	// have few rows, or none, and say where to go on.
	Assignee string
	Limit    int    // 1 to 200, default 50
	Cursor   string // from the previous page
}

// HandoffPage is a page of hand-offs; Total counts all of the state.
type HandoffPage struct {
	Handoffs   []Handoff `json:"handoffs"`
	Total      int64     `json:"total"`
	NextCursor *string   `json:"nextCursor"`
}
