package orchestrator_test

import (
	"cmp"
	"maps"
	"slices"

	"github.com/picket-dev/picket"
)

// What is asked of the model.

// live lists the runs whose lease has not ended, the first to expire first.
func (m *rules) live() []*mrun {
	var out []*mrun
	for _, rid := range m.rids {
		if m.runs[rid].state == picket.RunRunning {
			out = append(out, m.runs[rid])
		}
	}
	slices.SortStableFunc(out, func(a, b *mrun) int {
		return cmp.Or(cmp.Compare(m.tasks[a.task].deadline, m.tasks[b.task].deadline), cmp.Compare(a.task, b.task))
	})
	return out
}

// told is what the model says about its tasks, in the terms of the replay.
func (m *rules) told() map[string]told {
	out := map[string]told{}
	for id, t := range m.tasks {
		out[id] = told{State: t.state, Token: t.token, Attempt: t.attempt, Failures: t.failures, Run: t.run}
	}
	return out
}

// lanes lists the tasks of every lane, the best first.
func (m *rules) lanes() map[string][]*mtask {
	out := map[string][]*mtask{}
	for t := range maps.Values(m.tasks) {
		if t.state == picket.TaskQueued && t.where != "" {
			out[t.where] = append(out[t.where], t)
		}
	}
	for _, lane := range out {
		slices.SortFunc(lane, better)
	}
	return out
}
