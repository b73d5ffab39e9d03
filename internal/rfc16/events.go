package rfc16

import (
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// event is one line of the server's log.
type event struct {
	fields
	a *answer // that held it
}

func (e event) str(path string) string { return text(e.fields, path) }

// move is what a lifecycle event says of the status.
func (e event) move() string {
	return e.str("previous_status") + " " + e.str("new_status") + " " + e.str("reason")
}

// markLog notes where the event log stands, so that the rule reads only what comes
// after. Rules with Events begin with it.
func (t *Trial) markLog() {
	a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/stats", nil), 200)
	t.cursor = fmt.Sprint(max(0, a.Num("lastSeq")))
}

// events reads what the log holds of some types since the rule began, of one
// agent or task (both may be empty), in order.
func (t *Trial) events(agentID, taskID string, types ...string) []event {
	var all []event
	for after := t.cursor; ; {
		q := url.Values{"after": {after}, "limit": {"1000"}}
		for name, value := range map[string]string{"agent": agentID, "task": taskID, "type": strings.Join(types, ",")} {
			if value != "" {
				q.Set(name, value)
			}
		}
		a := t.ExpectStatus(t.Call(operator, "GET", "/api/v1/events?"+q.Encode(), nil), 200)
		page := a.List("events")
		for _, e := range page {
			all = append(all, event{e, a})
		}
		next := a.Str("next")
		if next == after || next == "" {
			return all
		}
		after = next
	}
}

// lifecycleEvents is every lifecycle event of an agent since the rule began.
func (a *agent) lifecycleEvents() []event { return a.t.events(a.id, "", "agent.lifecycle") }

// expectLifecycle expects exactly these lifecycle events of an agent, each as "previous
// new reason".
func (a *agent) expectLifecycle(want ...string) []event {
	all := a.lifecycleEvents()
	var got []string
	for _, e := range all {
		got = append(got, e.move())
	}
	a.t.ExpectEqual("lifecycle events of "+a.id, got, want)
	return all
}

// Lifecycle events as moved writes them.
const (
	moveRegistered       = "registering active registered"
	moveUnhealthy        = "active unhealthy heartbeat_timeout"
	moveResumed          = "unhealthy active heartbeat_resumed"
	moveDead             = "unhealthy dead heartbeat_timeout"
	moveDrain            = "active draining drain_initiated"
	moveDrainUnhealthy   = "unhealthy draining drain_initiated"
	moveDrained          = "draining deregistered drain_completed"
	moveOverdue          = "draining dead drain_timeout"
	moveSilent           = "draining dead heartbeat_timeout"
	moveDeregistered     = "active deregistered deregistered"
	moveReregisteredDead = "dead active re_registered"
	moveReregisteredGone = "deregistered active re_registered"
)

// awaitEvent looks until the log holds an event of a type about an agent or a
// task, and answers the first.
func (t *Trial) awaitEvent(agentID, taskID, kind string, within time.Duration) event {
	for end := t.Now().Add(within); ; t.Sleep(t.cfg.Poll) {
		if all := t.events(agentID, taskID, kind); len(all) > 0 {
			return all[0]
		}
		if t.Now().After(end) {
			t.Assert(false, t.Last, "an event %s within %s", kind, within)
		}
	}
}

// seq is the place of an event in the log.
func (e event) seq() int { return conformance.Number(e.fields, "seq") }

// at is when the event says it happened.
func (e event) at() time.Time { return conformance.Instant(e.str("timestamp")) }
