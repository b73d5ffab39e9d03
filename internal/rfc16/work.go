package rfc16

import (
	"crypto/sha256"
	"encoding/hex"
	"slices"
	"time"
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
		"title":              "conformance " + t.prefix,
		"needs":              []string{t.tag()},
		"priority":           9,
		"leaseWindowSeconds": longWindow,
	}, change)
	a := t.expectStatus(t.call(operator, "POST", "/api/v1/tasks", body), 201)
	t.tasks = append(t.tasks, a.str("taskId"))
	return a.str("taskId")
}

// tag is a capability that nobody else has.
func (t *Trial) tag() string {
	if len(t.prefix) <= 60 {
		return t.prefix + "t"
	}
	sum := sha256.Sum256([]byte(t.prefix)) // tags are short
	return t.s.prefix + hex.EncodeToString(sum[:8]) + "t"
}

// acquire asks for work as an agent.
func (a *agent) acquire(by keyName, change fields) *answer {
	return a.t.call(by, "POST", "/api/v1/leases",
		merge(fields{"agentId": a.id, "capabilities": []string{a.t.tag()}}, change))
}

// mustAcquire acquires and expects one of the rule's own tasks. What belongs to
// somebody else is given back at once.
func (a *agent) mustAcquire() *lease {
	t := a.t
	got := t.expectStatus(a.acquire(a.key, fields{"waitSeconds": 20}), 200)
	all := got.list("leases")
	t.assert(len(all) == 1, got, "one lease")
	l := &lease{t: t, task: text(all[0], "taskId"), run: text(all[0], "runId"), secret: text(all[0], "leaseToken"),
		fence: number(all[0], "fencingToken"), proxy: text(all[0], "proxyUrl"), previous: got}
	if l.proxy == "" {
		l.proxy = t.s.base
	}
	if !slices.Contains(t.tasks, l.task) {
		l.call("/v1/lease/release", fields{})
		t.tooSlow("the server gave out somebody else's task, which was given back")
	}
	// The first renewal starts the whole window.
	t.expectStatus(l.renew(), 200)
	return l
}

// expectNoLease acquires and expects no lease.
func (a *agent) expectNoLease() {
	got := a.t.expectStatus(a.acquire(a.key, nil), 200)
	for _, l := range got.list("leases") {
		if !slices.Contains(a.t.tasks, text(l, "taskId")) {
			(&lease{t: a.t, secret: text(l, "leaseToken"), proxy: text(l, "proxyUrl")}).release()
			a.t.tooSlow("the server gave out somebody else's task, which was given back")
		}
		a.t.assert(false, got, "no lease")
	}
}

// newLease gives an agent a task to hold.
func (t *Trial) newLease(a *agent) *lease {
	t.submit(nil)
	return a.mustAcquire()
}

// call uses the tool proxy as the lease.
func (l *lease) call(path string, body any) *answer {
	return l.t.send(request{by: leaseHolder, secret: l.secret, method: "POST", url: l.proxy + path, body: body})
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
	l.t.expectCode(l.write(), 412, code)
	l.t.expectCode(l.renew(), 412, code)
}

// expectHeld expects that it does.
func (l *lease) expectHeld() {
	l.t.expectStatus(l.renew(), 200)
	l.t.expectStatus(l.write(), 200)
}

// state is that of a task.
func (t *Trial) state(task string) *answer {
	return t.expectStatus(t.call(operator, "GET", "/api/v1/tasks/"+task, nil), 200)
}

// awaitExpired waits for the end of a lease in the log and answers its event.
func (l *lease) awaitExpired(within time.Duration) event {
	return l.t.awaitEvent("", l.task, "lease.expired", within)
}
