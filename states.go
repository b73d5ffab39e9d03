package picket

import "slices"

// TaskState is the one state a task is in.
type TaskState string

const (
	TaskQueued    TaskState = "queued"
	TaskLeased    TaskState = "leased"
	TaskReview    TaskState = "review"
	TaskHandoff   TaskState = "handoff"
	TaskCompleted TaskState = "completed"
	TaskRejected  TaskState = "rejected"
	TaskFailed    TaskState = "failed"
	TaskCancelled TaskState = "cancelled"
)

// TaskStates are all states in the order a task usually meets them.
var TaskStates = []TaskState{TaskQueued, TaskLeased, TaskReview, TaskHandoff, TaskCompleted, TaskRejected, TaskFailed,
	TaskCancelled}

// taskTransitions is the legal-move table: from -> verb -> the states it may lead to.
// The scripts are tested against it, so Lua and Go cannot disagree.
var taskTransitions = map[TaskState]map[string][]TaskState{
	"": {
		"submit": {TaskQueued},
		"review": {TaskQueued}, // the fix task of a rejection
		"retry":  {TaskQueued}, // the new task of a closed one
	},
	TaskQueued: {
		"grant":  {TaskLeased},
		"cancel": {TaskCancelled},
	},
	TaskLeased: {
		"complete":     {TaskReview, TaskCompleted},
		"request_help": {TaskHandoff},
		"release":      {TaskQueued, TaskHandoff, TaskFailed},
		"fail":         {TaskQueued, TaskHandoff, TaskFailed},
		"expire":       {TaskQueued, TaskHandoff, TaskFailed},
		"pause":        {TaskQueued, TaskHandoff}, // the last run of the quota is followed by a person's decision
		"loop":         {TaskHandoff, TaskFailed}, // the tool call that the agent has made too often
		"cancel":       {TaskCancelled},
	},
	TaskReview: {
		"review": {TaskCompleted, TaskRejected},
		"cancel": {TaskCancelled},
	},
	TaskHandoff: {
		"answer":  {TaskQueued},
		"overdue": {TaskQueued}, // the deadline policy deny answers automatically
		"retry":   {TaskQueued},
		"finish":  {TaskCompleted},
		"cancel":  {TaskCancelled},
	},
}

// Terminal reports whether a task in this state is frozen for ever.
func (s TaskState) Terminal() bool {
	switch s {
	case TaskCompleted, TaskRejected, TaskFailed, TaskCancelled:
		return true
	}
	return false
}

// Valid reports whether s is a state at all.
func (s TaskState) Valid() bool { return slices.Contains(TaskStates, s) }

// CanTransition reports whether verb may take a task from one state to another; the
// empty from is a task being created.
func CanTransition(from TaskState, verb string, to TaskState) bool {
	return slices.Contains(taskTransitions[from][verb], to)
}

// TaskTransitions calls yield for every legal move.
func TaskTransitions(yield func(from TaskState, verb string, to TaskState)) {
	for from, verbs := range taskTransitions {
		for verb, tos := range verbs {
			for _, to := range tos {
				yield(from, verb, to)
			}
		}
	}
}

// RunState is the state of one attempt.
type RunState string

const (
	RunRunning   RunState = "running"
	RunCompleted RunState = "completed" // mark_complete
	RunReleased  RunState = "released"  // given back, or parked with request_human_help
	RunFailed    RunState = "failed"    // crash, timeout, stalled, no_result or mark_failed
	RunExpired   RunState = "expired"   // the lease ran out or was taken
	RunCancelled RunState = "cancelled"
)

// RunStates are all states; every one but running is final.
var RunStates = []RunState{RunRunning, RunCompleted, RunReleased, RunFailed, RunExpired, RunCancelled}

// HandoffState is the state of a hand-off; every one but open is final.
type HandoffState string

const (
	HandoffOpen      HandoffState = "open"
	HandoffAnswered  HandoffState = "answered"
	HandoffFinished  HandoffState = "finished"
	HandoffCancelled HandoffState = "cancelled"
)

// HandoffStates are all states of a hand-off.
var HandoffStates = []HandoffState{HandoffOpen, HandoffAnswered, HandoffFinished, HandoffCancelled}

// Valid reports whether s is a state at all.
func (s HandoffState) Valid() bool { return slices.Contains(HandoffStates, s) }
