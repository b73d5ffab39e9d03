package console

import (
	"fmt"
	"net/url"
	"strings"
)

// actionForm is a button that opens the form of a decision.
type actionForm struct {
	Label  string
	What   string // happens
	Path   string
	Nonce  string
	From   string
	Seen   string // the name of what the person saw, such as the run whose lease it was
	SeenAs any    // its value
	Open   bool
	Typed  url.Values // into this form, when it was refused
	Danger bool
	Money  bool // the fields it has
	Task   bool
	Reason bool
}

// actionForms are what the forms ask for, by the name of their route.
var actionForms = map[string]actionForm{
	"task.cancel":      {Danger: true, Reason: true},
	"task.retry":       {Reason: true},
	"task.expire":      {Danger: true, Reason: true, Seen: "run"},
	"task.topup":       {Money: true, Reason: true},
	"task.tell":        {},
	"agent.tell":       {},
	"session.prompt":   {},
	"session.stop":     {Danger: true},
	"session.wake":     {},
	"policy.delete":    {Danger: true, Seen: "expected"},
	"agent.drain":      {Seen: "incarnation"},
	"agent.ping":       {Reason: true, Seen: "incarnation"},
	"agent.stop":       {Danger: true, Task: true, Reason: true, Seen: "incarnation"},
	"agent.deregister": {Danger: true, Seen: "incarnation"},
}

// Form is the form of a route for what has the id, open where it was just refused.
func (w view) Form(name, id, label, what string, seen any) (actionForm, error) {
	a, known := actionForms[name]
	if !known {
		return a, fmt.Errorf("no form is named %s", name)
	}
	a.Label, a.What, a.Nonce, a.From, a.SeenAs = label, what, w.Nonce, w.Path, seen
	a.Path = strings.Replace(w.request.console.routes[name].path, ":id", id, 1)
	if a.Open = w.Refused(name); a.Open {
		a.Typed = w.Typed
	}
	return a, nil
}
