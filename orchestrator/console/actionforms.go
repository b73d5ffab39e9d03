package console

import (
	"fmt"
	"html/template"
	"time"

	"github.com/picket-dev/picket"
)

// actionForm is a button that opens the form of a decision.
type actionForm struct {
	Label       string
	What        string
	Path        string
	Nonce       string
	From        string
	Incarnation int64  // of the agent that was seen
	Run         string // whose lease was seen
	Open        bool
	Danger      bool
	Money       bool
	Task        bool
	Reason      bool // the fields it has
	Typed       formInput
}

// subject is what a page can act on: its path, and what was typed into a form
// of it that was refused.
type subject interface {
	subject() (path string, typed formInput)
}

func (t taskView) subject() (string, formInput)  { return t.Path, t.Form }
func (a agentView) subject() (string, formInput) { return a.Path, a.Form }

// actionForms are the forms by name: where they are sent to, below the path of their
// subject, and what they ask for.
var actionForms = map[string]actionForm{
	"cancel":     {Path: "/cancel", Danger: true, Reason: true},
	"retry":      {Path: "/retry", Reason: true},
	"expire":     {Path: "/expire", Danger: true, Reason: true},
	"topup":      {Path: "/top-up", Money: true, Reason: true},
	"drain":      {Path: "/drain"},
	"ping":       {Path: "/ping", Reason: true},
	"stop":       {Path: "/stop-task", Danger: true, Task: true, Reason: true},
	"deregister": {Path: "/deregister", Danger: true},
}

// Form is the form of a name for a subject, open where it was just refused.
func (w view) Form(of subject, name, label, what string) (actionForm, error) {
	a, known := actionForms[name]
	if !known {
		return a, fmt.Errorf("no form is named %s", name)
	}
	path, typed := of.subject()
	a.Label, a.What, a.Path, a.Nonce, a.From = label, what, path+a.Path, w.Nonce, w.Path
	if seen, ok := of.(agentView); ok {
		a.Incarnation = seen.Incarnation
	}
	if seen, ok := of.(taskView); ok && name == "expire" && seen.CurrentRun != nil {
		a.Run = seen.CurrentRun.RunID
	}
	if a.Open = typed.Open == name; a.Open {
		a.Typed = typed
	}
	return a, nil
}

// leaseCountdown is what is left of a lease; near its end it calls for a look.
func leaseCountdown(now, at picket.Instant, ttl int64) template.HTML {
	d := time.Duration(at-now) * time.Millisecond
	class, text := "", "in "+humanDuration(d)
	switch {
	case d <= 0:
		class, text = "over", humanDuration(-d)+" overdue"
	case ttl > 0 && d.Milliseconds() < ttl/5:
		class = "ending"
	}
	return template.HTML(fmt.Sprintf(`<time class="%s" datetime="%s" title="%s" data-at="%d" data-how="left" data-ttl="%d">%s</time>`,
		class, at, at.Time().Format("2006-01-02 15:04:05 UTC"), int64(at), ttl, text))
}

// percentLeft is how much of a span is left, in hundredths.
func percentLeft(now, at picket.Instant, ttl int64) int {
	if ttl <= 0 {
		return 0
	}
	return int(min(max(int64(at-now)*100/ttl, 0), 100))
}

// WindowMs is how long a renewal makes the lease last.
func (t taskView) WindowMs() int64 { return int64(t.LeaseWindowSeconds) * 1000 }

// TimeLeft is what is left of the lease.
func (t taskView) TimeLeft(now picket.Instant) template.HTML {
	return leaseCountdown(now, t.LeaseExpiresAt, t.WindowMs())
}

// LeaseShare is the same in hundredths of the window.
func (t taskView) LeaseShare(now picket.Instant) int {
	return percentLeft(now, t.LeaseExpiresAt, t.WindowMs())
}
