package console

import (
	"context"
	"net/http"

	"github.com/picket-dev/picket"
)

// switches is what the stop button asks of the engine.
type switches interface {
	PauseUnlessChanged(ctx context.Context, by picket.Caller, hard bool, reason string,
		seen picket.Instant) (picket.PauseState, error)
	ResumeUnlessChanged(ctx context.Context, by picket.Caller, reason string,
		seen picket.Instant) (picket.PauseState, error)
}

const stopPath = "/console/stop"

func stopPages() []route {
	return []route{
		{
			name:   "stop",
			method: get,
			path:   stopPath,
			scopes: operators,
			as:     []string{"POST /api/v1/pause"},
			handle: stop,
		},
		{
			name:   "pause",
			method: post,
			path:   "/console/pause",
			scopes: operators,
			as:     []string{"POST /api/v1/pause"},
			handle: pause,
		},
		{
			name:   "resume",
			method: post,
			path:   "/console/resume",
			scopes: operators,
			as:     []string{"POST /api/v1/resume"},
			handle: resume,
		},
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

func stop(v *visit) error { return v.stopPage(stopForm{}, nil) }

func (v *visit) stopPage(f stopForm, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	f.Running, f.Queued, f.Agents = v.stats.Tasks[picket.TaskLeased], v.stats.Tasks[picket.TaskQueued],
		v.stats.Agents[picket.AgentActive]
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:    "stop",
		title:   "Stop",
		nav:     "-",
		topics:  []string{"namespace.", "task.", "lease.", "agent."},
		body:    f,
		problem: problem,
	})
}

// seen is when the pause was made that the person has seen, 0 for none: what
// somebody else has decided since then is not undone by who knows nothing of it.
func (v *visit) seen() picket.Instant { return picket.Instant(wholeNumber(v.form("seen"))) }

func pause(v *visit) error {
	f := stopForm{Hard: v.form("hard") == "yes", Reason: v.form("reason")}
	reason, err := v.reason()
	if err == nil {
		var by picket.Caller
		if by, err = v.caller(); err == nil {
			_, err = v.desk.PauseUnlessChanged(v.ctx(), by, f.Hard, reason, v.seen())
		}
	}
	if err != nil {
		return v.stopPage(f, err)
	}
	did := "paused"
	if f.Hard {
		did = "stopped"
	}
	return v.done(stopPath, did, "")
}

func resume(v *visit) error {
	f := stopForm{Reason: v.form("reason")}
	reason, err := v.reason()
	if err == nil {
		var by picket.Caller
		if by, err = v.caller(); err == nil {
			_, err = v.desk.ResumeUnlessChanged(v.ctx(), by, reason, v.seen())
		}
	}
	if err != nil {
		return v.stopPage(f, err)
	}
	return v.done(stopPath, "resumed", "")
}
