// Package moves holds the legal moves of tasks and agents, and the types of audited
// events. The scripts, the documents and the proof suites are tested against it.
package moves

import (
	"slices"

	"github.com/picket-dev/picket"
)

// taskTransitions is the legal-move table: from -> verb -> the states it may lead to.
var taskTransitions = map[picket.TaskState]map[string][]picket.TaskState{
	"": {
		"submit": {picket.TaskQueued},
		"review": {picket.TaskQueued}, // the fix task of a rejection
		"retry":  {picket.TaskQueued}, // the new task of a closed one
	},
	picket.TaskQueued: {
		"grant":  {picket.TaskLeased},
		"cancel": {picket.TaskCancelled},
	},
	picket.TaskLeased: {
		"complete":     {picket.TaskReview, picket.TaskCompleted},
		"request_help": {picket.TaskHandoff},
		"release":      {picket.TaskQueued, picket.TaskHandoff, picket.TaskFailed},
		"fail":         {picket.TaskQueued, picket.TaskHandoff, picket.TaskFailed},
		"expire":       {picket.TaskQueued, picket.TaskHandoff, picket.TaskFailed},
		// the last run of the quota is followed by a person's decision
		"pause": {picket.TaskQueued, picket.TaskHandoff},
		// the tool call that the agent has made too often
		"loop":   {picket.TaskHandoff, picket.TaskFailed},
		"cancel": {picket.TaskCancelled},
	},
	picket.TaskReview: {
		"review": {picket.TaskCompleted, picket.TaskRejected},
		"cancel": {picket.TaskCancelled},
	},
	picket.TaskHandoff: {
		"answer":  {picket.TaskQueued},
		"overdue": {picket.TaskQueued}, // the deadline policy deny answers automatically
		"retry":   {picket.TaskQueued},
		"top_up":  {picket.TaskQueued}, // of a task that asks for money
		"finish":  {picket.TaskCompleted},
		"cancel":  {picket.TaskCancelled},
	},
}

// CanTransition reports whether verb may take a task from one state to another; the
// empty from is a task being created.
func CanTransition(from picket.TaskState, verb string, to picket.TaskState) bool {
	return slices.Contains(taskTransitions[from][verb], to)
}

// TaskTransitions calls yield for every legal move.
func TaskTransitions(yield func(from picket.TaskState, verb string, to picket.TaskState)) {
	for from, verbs := range taskTransitions {
		for verb, tos := range verbs {
			for _, to := range tos {
				yield(from, verb, to)
			}
		}
	}
}

// RunStates are all states; every one but running is final.
var RunStates = []picket.RunState{picket.RunRunning, picket.RunCompleted, picket.RunReleased,
	picket.RunFailed, picket.RunExpired, picket.RunCancelled}

// agentTransitions is the legal-move table of RFC-0016 section 2.2: from -> reason ->
// to.
var agentTransitions = map[picket.AgentStatus]map[picket.LifecycleReason]picket.AgentStatus{
	picket.AgentRegistering: {picket.ReasonRegistered: picket.AgentActive},
	picket.AgentActive: {
		picket.ReasonDrainInitiated:   picket.AgentDraining,
		picket.ReasonHeartbeatTimeout: picket.AgentUnhealthy,
		picket.ReasonDeregistered:     picket.AgentDeregistered,
	},
	picket.AgentUnhealthy: {
		picket.ReasonHeartbeatResumed: picket.AgentActive,
		picket.ReasonHeartbeatTimeout: picket.AgentDead,
		picket.ReasonDrainInitiated:   picket.AgentDraining,
		picket.ReasonDeregistered:     picket.AgentDeregistered,
	},
	picket.AgentDraining: {
		picket.ReasonDrainCompleted:   picket.AgentDeregistered,
		picket.ReasonDrainTimeout:     picket.AgentDead,
		picket.ReasonHeartbeatTimeout: picket.AgentDead,
		picket.ReasonDeregistered:     picket.AgentDeregistered,
	},
	picket.AgentDead:         {picket.ReasonReRegistered: picket.AgentActive},
	picket.AgentDeregistered: {picket.ReasonReRegistered: picket.AgentActive},
}

// NextAgentStatus is where a reason takes an agent from a status; "" when the pair is
// not legal.
func NextAgentStatus(from picket.AgentStatus, reason picket.LifecycleReason) picket.AgentStatus {
	return agentTransitions[from][reason]
}

// AgentTransitions calls yield for every legal transition.
func AgentTransitions(yield func(from picket.AgentStatus, reason picket.LifecycleReason, to picket.AgentStatus)) {
	for from, reasons := range agentTransitions {
		for reason, to := range reasons {
			yield(from, reason, to)
		}
	}
}
