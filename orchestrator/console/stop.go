package console

import (
	"github.com/picket-dev/picket"
)

func showStop(v *request) (page, error) {
	return page{
		name:   "stop",
		title:  "Stop",
		topics: []string{"namespace.", "task.", "lease.", "agent."},
		body: []figure{
			{Name: "running now", Count: v.stats.Tasks[picket.TaskLeased]},
			{Name: "queued", Count: v.stats.Tasks[picket.TaskQueued]},
			{Name: "agents active", Count: v.stats.Agents[picket.AgentActive]},
		},
	}, nil
}

// formSeenPause is when the pause that the person has seen was made, 0 without a pause. A person
// cannot undo a later decision that they have not seen.
func (v *request) formSeenPause() picket.Instant {
	return picket.Instant(parseNumber(v.formValue("seen")))
}

func pause(v *request, by picket.Caller, reason string) (string, error) {
	hard, did := v.formValue("hard") == "yes", "paused"
	if hard {
		did = "stopped"
	}
	_, err := v.backend.Pause.PauseUnlessChanged(v.ctx(), by, hard, reason, v.formSeenPause())
	return withFlash(stopPath, did, ""), err
}

func resume(v *request, by picket.Caller, reason string) (string, error) {
	_, err := v.backend.Pause.ResumeUnlessChanged(v.ctx(), by, reason, v.formSeenPause())
	return withFlash(stopPath, "resumed", ""), err
}
