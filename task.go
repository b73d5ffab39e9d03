package picket

import (
	stdjson "encoding/json"
	"slices"

	"github.com/picket-dev/picket/budget"
)

// TaskSpec is what an operator submits: the body of POST /api/v1/tasks. Only
// Title is required. The zero value of every other field means its default,
// which [TaskSpec.Normalize] fills in.
type TaskSpec struct {
	Title    string             `json:"title"`
	Input    stdjson.RawMessage `json:"input,omitempty"`    // any JSON, at most 256 KiB, kept digit for digit
	Role     string             `json:"role,omitempty"`     // empty: any agent may take it
	Needs    []string           `json:"needs,omitempty"`    // capabilities an agent must have
	Agent    string             `json:"agent,omitempty"`    // pins the task to one agent id
	Priority *int               `json:"priority,omitempty"` // 0 to 9, 9 comes first; default 5
	// NotBefore delays the first run until this instant.
	NotBefore          Instant `json:"notBefore,omitempty"`
	LeaseWindowSeconds *int    `json:"leaseWindowSeconds,omitempty"` // 2 to 86,400; default 300
	// wall clock of one run, 1 to 604,800; default none
	TimeoutSeconds *int `json:"timeoutSeconds,omitempty"`
	// StallAfterSeconds is how long a run may show no sign of life (a report,
	// output, a tool call), 2 to 86,400; default none. Then it is nudged, and
	// after as long again ended with class stalled.
	StallAfterSeconds *int              `json:"stallAfterSeconds,omitempty"`
	BudgetEnvelope    *budget.Envelope  `json:"budgetEnvelope,omitempty"`
	Retry             *Retry            `json:"retry,omitempty"`
	Escalate          Escalate          `json:"escalate,omitempty"`
	Review            ReviewBy          `json:"review,omitempty"`
	OnExit            OnExit            `json:"onExit,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"` // at most 32; see CheckLabel
	Fixes             string            `json:"fixes,omitempty"`  // the task this one repairs
	// Assignee names the person who should take the hand-offs and reviews of the task, in up
	// to 64 bytes. It is a hint: anybody who may decide still decides. Subtasks inherit it.
	Assignee string `json:"assignee,omitempty"`
	// Client is set for a task that a client submitted at an endpoint. It is not in the body.
	Client *ClientTask `json:"-"`
	// Trace comes by the headers traceparent and tracestate, not in the body.
	Trace *Trace `json:"-"`
}

// Bounds of a request that submits several tasks.
const (
	MaxBatchTasks = 500
	MaxBatchBytes = 8 << 20 // of the body of the request
)

// TaskSubmission is one task of the body of POST /api/v1/tasks/batch.
type TaskSubmission struct {
	TaskSpec
	// IdempotencyKey makes a repetition harmless, as the header Idempotency-Key of POST /api/v1/tasks
	// does: 1 to 255 printable ASCII characters. Nil means none.
	IdempotencyKey *string `json:"idempotencyKey,omitempty"`
}

// TaskBatch is the body of POST /api/v1/tasks/batch, with 1 to [MaxBatchTasks] tasks. They are
// queued in this order. Each of them succeeds or is refused alone.
type TaskBatch struct {
	Tasks []TaskSubmission `json:"tasks"`
}

// Retry says which ends of a run are tried again automatically.
type Retry struct {
	// failures after which the task escalates, 1 to 100; default 3
	MaxAttempts *int        `json:"maxAttempts,omitempty"`
	On          []ExitClass `json:"on"` // crash, timeout, stalled, no_result; default none
	// 0 to 3,600; default 10. First retry at once, then doubling
	BackoffSeconds *int `json:"backoffSeconds,omitempty"`
}

// Escalate says where a task goes that is not retried (any more).
type Escalate string

const (
	EscalateHuman Escalate = "human" // the hand-off queue; the default
	EscalateFail  Escalate = "fail"  // the task ends failed
)

// ReviewBy says who decides a completed task.
type ReviewBy string

const (
	ReviewByHuman ReviewBy = "human" // the review queue; the default
	ReviewByNone  ReviewBy = "none"  // mark_complete completes at once
	// ReviewByParent is the run of the task that delegated this one, or a person;
	// the default of subtasks, and for them only.
	ReviewByParent ReviewBy = "parent"
)

// OnExit says what exit code 0 without mark_complete means.
type OnExit string

const (
	OnExitFail     OnExit = "fail"     // class no_result; the default
	OnExitComplete OnExit = "complete" // completed with the tail of stdout as output
)

// Task is the whole of a task as the API shows it.
type Task struct {
	TaskID    string             `json:"taskId"`
	State     TaskState          `json:"state"`
	Title     string             `json:"title"`
	Input     stdjson.RawMessage `json:"input"`
	Role      string             `json:"role"`
	Needs     []string           `json:"needs"`
	Agent     string             `json:"agent"`
	Priority  int                `json:"priority"` // 0 to 9; 9 comes first
	NotBefore Instant            `json:"notBefore"`
	Attempts  int                `json:"attempts"` // runs granted so far
	Failures  int                `json:"failures"` // runs that count against maxAttempts

	FencingToken int64    `json:"fencingToken"` // 0 before the first lease
	Parent       *string  `json:"parent"`
	Root         string   `json:"root"`
	Fixes        *string  `json:"fixes"`
	Retries      *string  `json:"retries"`
	RetriedAs    *string  `json:"retriedAs"` // the task that was made again from this one, the latest
	Children     []string `json:"children"`

	BudgetEnvelope budget.Envelope `json:"budgetEnvelope"`
	Spent          budget.Envelope `json:"spent"`
	Held           budget.Envelope `json:"held"`
	Available      budget.Envelope `json:"available"`

	LeaseWindowSeconds int      `json:"leaseWindowSeconds"` // what each renewal gives
	TimeoutSeconds     *int     `json:"timeoutSeconds"`     // of one run; nil: no limit
	StallAfterSeconds  *int     `json:"stallAfterSeconds"`  // without a sign of life; nil: no limit
	Retry              Retry    `json:"retry"`
	Escalate           Escalate `json:"escalate"`
	ReviewBy           ReviewBy `json:"reviewBy"`
	OnExit             OnExit   `json:"onExit"`

	CurrentRun *Run `json:"currentRun"`
	// LeaseExpiresAt is set while the task is leased.
	LeaseExpiresAt Instant  `json:"leaseExpiresAt"`
	Runs           []Run    `json:"runs"` // oldest first
	LastReport     *Report  `json:"lastReport"`
	Answers        []Answer `json:"answers"` // also those to the task that this one repeats; oldest first
	// Emitted is what agents have told the client while they worked, oldest first. It is left out in lists, and in
	// what agents read.
	Emitted  []Emission         `json:"emitted,omitempty"`
	Output   stdjson.RawMessage `json:"output"`
	Reply    bool               `json:"reply,omitzero"` // the output is a message that answered the client
	Summary  string             `json:"summary"`
	Review   *Review            `json:"review"`
	Handoff  *Handoff           `json:"handoff"` // the latest one
	Labels   map[string]string  `json:"labels"`
	Assignee string             `json:"assignee"`        // who should take its hand-offs and reviews; "" is nobody
	Trace    *Trace             `json:"trace"`           // the trace it is a part of
	Reason   string             `json:"reason"`          // why it was cancelled or failed
	Nudge    *Nudge             `json:"nudge,omitempty"` // of get_task only: the agent seems to be stuck
	Unread   int                `json:"unread,omitzero"` // of get_task only: how many messages wait for the agent
	// Messages is of get_task only: the last messages from and to the task, oldest first, also
	// those that were read. They are at most 20, of 64 KiB in all.
	Messages  []Message `json:"messages,omitempty"`
	CreatedAt Instant   `json:"createdAt"`
	UpdatedAt Instant   `json:"updatedAt"`
	CreatedBy string    `json:"createdBy"`
	// Client is of a task that a client submitted at an endpoint.
	Client *ClientTask `json:"client,omitempty"`
	// AsOf is the sequence number of the last event before the task was read: later events tell what has changed
	// since. 0 where it is not known, as in a page of tasks.
	AsOf int64 `json:"-"`
}

// CurrentInput is what the next run is given: the latest input that a person has
// edited, or what was submitted.
func (t Task) CurrentInput() RawJSON {
	for _, a := range slices.Backward(t.Answers) {
		if a.InputEdited {
			return a.Input
		}
	}
	return t.Input
}

// TaskQuery selects tasks, newest first. Filters are AND-ed; States OR-ed.
type TaskQuery struct {
	States []TaskState
	Role   string
	Parent string            // the subtasks of this task
	Labels map[string]string // all of them match
	// Assignee is who should take the hand-offs and reviews of the task.
	Assignee string
	Since    Instant // created at or after
	Limit    int     // 1 to 200, default 50
	Cursor   string  // from the previous page
}

// TaskPage is a page of tasks without their runs and payload details.
type TaskPage struct {
	Tasks      []Task  `json:"tasks"`
	NextCursor *string `json:"nextCursor"`
}

// FixSpec is the task that repairs a rejected one: it asks for the same kind of
// agent under the same limits, and ends as that one did. Anyone who rejects decides
// the repair again, also where the parent was to decide the first.
func (t Task) FixSpec(title string) TaskSpec {
	review := t.ReviewBy
	if review == ReviewByParent {
		review = ReviewByHuman
	}
	return TaskSpec{
		Title:              title,
		Role:               t.Role,
		Needs:              t.Needs,
		Labels:             t.Labels,
		Assignee:           t.Assignee,
		Priority:           &t.Priority,
		OnExit:             t.OnExit,
		Review:             review,
		LeaseWindowSeconds: &t.LeaseWindowSeconds,
		TimeoutSeconds:     t.TimeoutSeconds,
		StallAfterSeconds:  t.StallAfterSeconds,
		Retry:              &t.Retry,
		Escalate:           t.Escalate,
		BudgetEnvelope:     &t.BudgetEnvelope,
		Fixes:              t.TaskID,
	}
}

// Explanation answers "why is it not running". Because holds the texts of
// Reasons. Next holds commands that a person can run.
type Explanation struct {
	State   TaskState `json:"state"`
	Because []string  `json:"because"`
	Reasons []Reason  `json:"reasons"`
	Next    []string  `json:"next"`
}

// Reason is one reason why a task is where it is. Programs compare the code; the
// text is for people and can change.
type Reason struct {
	Code ReasonCode `json:"code"`
	Text string     `json:"text"`
	// Until is when the reason ends at the latest, if that is known.
	Until Instant `json:"until,omitzero"`
}

// ReasonCode names a kind of reason.
type ReasonCode string

// The reasons of an explanation.
const (
	ReasonNoReaper        ReasonCode = "no_reaper"         // no reaper runs, so store time stands still
	ReasonRunning         ReasonCode = "running"           // a run holds its lease; until its deadline
	ReasonInReview        ReasonCode = "in_review"         // it waits for a decision
	ReasonInHandoff       ReasonCode = "in_handoff"        // it waits for a person
	ReasonEnded           ReasonCode = "ended"             // it will not run again
	ReasonGiven           ReasonCode = "given"             // the reason that was given for its end
	ReasonCancelledAbove  ReasonCode = "cancelled_above"   // a task above it was cancelled
	ReasonPaused          ReasonCode = "paused"            // the namespace is paused
	ReasonCallUnderWay    ReasonCode = "call_under_way"    // a call of the lease before may still act outside
	ReasonAwaitingExit    ReasonCode = "awaiting_exit"     // the process of the run before has not reported its exit
	ReasonNotBefore       ReasonCode = "not_before"        // its start has not come
	ReasonBackoff         ReasonCode = "backoff"           // it waits after a failure
	ReasonTasksAhead      ReasonCode = "tasks_ahead"       // other tasks of its lane come first
	ReasonKeptForAgent    ReasonCode = "kept_for_agent"    // the agent that asked may take it first
	ReasonPinned          ReasonCode = "pinned"            // only one agent may take it
	ReasonAgentWaiting    ReasonCode = "agent_waiting"     // an agent asks for it: it starts at once
	ReasonNobodyWaiting   ReasonCode = "nobody_waiting"    // no agent asks for work of its lane
	ReasonAgentAboveBusy  ReasonCode = "agent_above_busy"  // the agent of the task above it asks for nothing
	ReasonPinnedAgentGone ReasonCode = "pinned_agent_gone" // it is dead or deregistered
	ReasonPinnedAgentIdle ReasonCode = "pinned_agent_idle" // it is registered and does not ask
	ReasonAgentsIdle      ReasonCode = "agents_idle"       // registered agents could take it, and do not ask
	ReasonNoAgent         ReasonCode = "no_agent"          // no registered agent serves its lane
	ReasonSessionAsleep   ReasonCode = "session_asleep"    // why a session of an agent that serves its lane sleeps
)
