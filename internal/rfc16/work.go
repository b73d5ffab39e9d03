package rfc16

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// lease is a task in the hands of an agent.
type lease struct {
	t        *Trial
	task     string
	run      string
	secret   string
	fence    int
	proxy    string
	previous *answer
}

// longWindow is a lease window that no rule outlives, in seconds.
const longWindow = 7200

// submit makes a task that only an agent with this rule's own tag may take.
func (t *Trial) submit(change fields) string {
	body := merge(fields{
		"title":              "conformance " + t.Prefix,
		"needs":              []string{t.tag()},
		"priority":           9,
		"leaseWindowSeconds": longWindow,
	}, change)
	a := t.ExpectStatus(t.Call(operator, "POST", "/api/v1/tasks", body), 201)
	t.tasks = append(t.tasks, a.Str("taskId"))
	return a.Str("taskId")
}

// tag is a capability that nobody else has.
func (t *Trial) tag() string {
	if len(t.Prefix) <= 60 {
		return t.Prefix + "t"
	}
	sum := sha256.Sum256([]byte(t.Prefix)) // tags are short
	return t.s.Prefix + hex.EncodeToString(sum[:8]) + "t"
}

// acquire asks for work as an agent.
func (a *agent) acquire(by keyName, change fields) *answer {
	return a.t.Call(by, "POST", "/api/v1/leases",
		merge(fields{"agentId": a.id, "capabilities": []string{a.t.tag()}}, change))
}

// mustAcquire acquires and expects one of the rule's own tasks. What belongs to
// somebody else is given back at once.
func (a *agent) mustAcquire() *lease {
	t := a.t
	got := t.ExpectStatus(a.acquire(a.key, fields{"waitSeconds": 20}), 200)
	all := got.List("leases")
	t.Assert(len(all) == 1, got, "one lease")
	l := &lease{t: t, task: text(all[0], "taskId"), run: text(all[0], "runId"), secret: text(all[0], "leaseToken"),
		fence: conformance.Number(all[0], "fencingToken"), proxy: text(all[0], "proxyUrl"), previous: got}
	if l.proxy == "" {
		l.proxy = t.s.Base
	}
	if !slices.Contains(t.tasks, l.task) {
		l.call("/v1/lease/release", fields{})
		t.TooSlow("the server gave out somebody else's task, which was given back")
	}
	// The first renewal starts the whole window.
	t.ExpectStatus(l.renew(), 200)
	return l
}

// expectNoLease acquires and expects no lease.
func (a *agent) expectNoLease() {
	got := a.t.ExpectStatus(a.acquire(a.key, nil), 200)
	for _, l := range got.List("leases") {
		if !slices.Contains(a.t.tasks, text(l, "taskId")) {
			(&lease{t: a.t, secret: text(l, "leaseToken"), proxy: text(l, "proxyUrl")}).release()
			a.t.TooSlow("the server gave out somebody else's task, which was given back")
		}
		a.t.Assert(false, got, "no lease")
	}
}

// newLease gives an agent a task to hold.
func (t *Trial) newLease(a *agent) *lease {
	t.submit(nil)
	return a.mustAcquire()
}

// call uses the tool proxy as the lease.
func (l *lease) call(path string, body any) *answer {
	return l.t.Send(request{By: leaseHolder, Secret: l.secret, Method: "POST", URL: l.proxy + path, Body: body})
}

func (l *lease) renew() *answer { return l.call("/v1/lease/renew", fields{}) }

// write is an admitted or refused write of the agent's.
func (l *lease) write() *answer {
	return l.call("/v1/tools/report_progress", fields{"summary": "conformance"})
}

func (l *lease) release() *answer { return l.call("/v1/lease/release", fields{}) }

func (l *lease) complete() *answer {
	return l.call("/v1/tools/mark_complete", fields{"output": "done"})
}

// expectLost expects that the lease holds nothing any more.
func (l *lease) expectLost(code string) {
	l.t.ExpectCode(l.write(), 412, code)
	l.t.ExpectCode(l.renew(), 412, code)
}

// expectHeld expects that it does.
func (l *lease) expectHeld() {
	l.t.ExpectStatus(l.renew(), 200)
	l.t.ExpectStatus(l.write(), 200)
}

// state is that of a task.
func (t *Trial) state(task string) *answer {
	return t.ExpectStatus(t.Call(operator, "GET", "/api/v1/tasks/"+task, nil), 200)
}

// awaitExpired waits for the end of a lease in the log and answers its event.
func (l *lease) awaitExpired(within time.Duration) event {
	return l.t.awaitEvent("", l.task, "lease.expired", within)
}
