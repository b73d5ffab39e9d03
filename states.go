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
