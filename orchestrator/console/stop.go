package console

import (
	"github.com/picket-dev/picket"
)

const stopPath = "/console/stop"

func stopRoutes() []route {
	return []route{
		show("stop", stopPath, operatorScopes, showStop, "POST /api/v1/pause"),
		act("pause", "/console/pause", operatorScopes, pause, "POST /api/v1/pause"),
		act("resume", "/console/resume", operatorScopes, resume, "POST /api/v1/resume"),
	}
}

// stopForm is what the page shows and what a person has typed.
type stopForm struct {
	Running int64
	Queued  int64
	Agents  int64

	Hard   bool
	Reason string
}

// Reasons are what was typed into the form for a pause and into that for a stop.
func (f stopForm) Reasons() [2]string {
	if f.Hard {
		return [2]string{"", f.Reason}
	}
	return [2]string{f.Reason, ""}
}

func showStop(v *request) error { return v.stopPage(stopForm{}, nil) }

func (v *request) stopPage(f stopForm, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	f.Running, f.Queued, f.Agents = v.stats.Tasks[picket.TaskLeased], v.stats.Tasks[picket.TaskQueued],
		v.stats.Agents[picket.AgentActive]
	return v.render(page{
		name:    "stop",
		title:   "Stop",
		nav:     "-",
		topics:  []string{"namespace.", "task.", "lease.", "agent."},
		body:    f,
		problem: problem,
	})
}

// formSeenPause is when the pause that the person has seen was made, 0 without a pause. A person
// cannot undo a later decision that they have not seen.
func (v *request) formSeenPause() picket.Instant {
	return picket.Instant(parseNumber(v.formValue("seen")))
}

func pause(v *request) error {
	f := stopForm{Hard: v.formValue("hard") == "yes", Reason: v.formValue("reason")}
	if err := v.decide(func(by picket.Caller, reason string) error {
		_, err := v.backend.Pause.PauseUnlessChanged(v.ctx(), by, f.Hard, reason, v.formSeenPause())
		return err
	}); err != nil {
		return v.stopPage(f, err)
	}
	did := "paused"
	if f.Hard {
		did = "stopped"
	}
	return v.redirectWithFlash(stopPath, did, "")
}

func resume(v *request) error {
	f := stopForm{Reason: v.formValue("reason")}
	if err := v.decide(func(by picket.Caller, reason string) error {
		_, err := v.backend.Pause.ResumeUnlessChanged(v.ctx(), by, reason, v.formSeenPause())
		return err
	}); err != nil {
		return v.stopPage(f, err)
	}
	return v.redirectWithFlash(stopPath, "resumed", "")
}
