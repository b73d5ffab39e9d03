package model

import (
	"cmp"
	"maps"
	"slices"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// What is asked of the model.

// live lists the runs whose lease has not ended, the first to expire first.
func (m *model) live() []*modelRun {
	var out []*modelRun
	for _, rid := range m.rids {
		if m.runs[rid].state == picket.RunRunning {
			out = append(out, m.runs[rid])
		}
	}
	slices.SortStableFunc(out, func(a, b *modelRun) int {
		return cmp.Or(cmp.Compare(m.tasks[a.task].deadline, m.tasks[b.task].deadline), cmp.Compare(a.task, b.task))
	})
	return out
}

// replayTasks is what the model says about its tasks, in the terms of the replay.
func (m *model) replayTasks() map[string]kit.ReplayedTask {
	out := map[string]kit.ReplayedTask{}
	for id, t := range m.tasks {
		out[id] = kit.ReplayedTask{State: t.state, Token: t.token, Attempt: t.attempt, Failures: t.failures, Run: t.run}
	}
	return out
}

// lanes lists the tasks of every lane, the best first.
func (m *model) lanes() map[string][]*modelTask {
	out := map[string][]*modelTask{}
	for t := range maps.Values(m.tasks) {
		if t.state == picket.TaskQueued && t.where != "" {
			out[t.where] = append(out[t.where], t)
		}
	}
	for _, lane := range out {
		slices.SortFunc(lane, higherPriority)
	}
	return out
}
