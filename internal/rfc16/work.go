package rfc16

import (
	"crypto/sha256"
	"encoding/hex"
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
	body := also(fields{
		"title":              "conformance " + t.prefix,
		"needs":              []string{t.tag()},
		"priority":           9,
		"leaseWindowSeconds": longWindow,
	}, change)
	a := t.status(t.call(operator, "POST", "/api/v1/tasks", body), 201)
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
func (a *agent) acquire(by who, change fields) *answer {
	return a.t.call(by, "POST", "/api/v1/leases",
		also(fields{"agentId": a.id, "capabilities": []string{a.t.tag()}}, change))
}

// takes acquires and expects one of the rule's own tasks. What belongs to
// somebody else is given back at once.
func (a *agent) takes() *lease {
	t := a.t
	got := t.status(a.acquire(a.key, fields{"waitSeconds": 20}), 200)
	all := got.list("leases")
	t.that(len(all) == 1, got, "one lease")
	l := &lease{t: t, task: text(all[0], "taskId"), run: text(all[0], "runId"), secret: text(all[0], "leaseToken"),
		fence: number(all[0], "fencingToken"), proxy: text(all[0], "proxyUrl"), previous: got}
	if l.proxy == "" {
		l.proxy = t.cfg.URL
	}
	if !t.owns(l.task) {
		l.call("/v1/lease/release", fields{})
		t.spoiled("the server gave out somebody else's task, which was given back")
	}
	// The first renewal starts the whole window.
	t.status(l.renew(), 200)
	return l
}

// findsNothing acquires and expects no lease.
func (a *agent) findsNothing() {
	got := a.t.status(a.acquire(a.key, nil), 200)
	for _, l := range got.list("leases") {
		if !a.t.owns(text(l, "taskId")) {
			(&lease{t: a.t, secret: text(l, "leaseToken"), proxy: text(l, "proxyUrl")}).release()
			a.t.spoiled("the server gave out somebody else's task, which was given back")
		}
		a.t.that(false, got, "no lease")
	}
}

func (t *Trial) owns(task string) bool {
	for _, own := range t.tasks {
		if own == task {
			return true
		}
	}
	return false
}

// leased gives an agent a task to hold.
func (t *Trial) leased(a *agent) *lease {
	t.submit(nil)
	return a.takes()
}

// call uses the tool proxy as the lease.
func (l *lease) call(path string, body any) *answer {
	return l.t.send(request{by: leaseHand, secret: l.secret, method: "POST", url: l.proxy + path, body: body})
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

// lost expects that the lease holds nothing any more.
func (l *lease) lost(code string) {
	l.t.code(l.write(), 412, code)
	l.t.code(l.renew(), 412, code)
}

// held expects that it does.
func (l *lease) held() {
	l.t.status(l.renew(), 200)
	l.t.status(l.write(), 200)
}

// state is that of a task.
func (t *Trial) state(task string) *answer {
	return t.status(t.call(operator, "GET", "/api/v1/tasks/"+task, nil), 200)
}

// expired waits for the end of a lease in the log and answers its event.
func (l *lease) expired(within time.Duration) event {
	return l.t.awaitEvent("", l.task, "lease.expired", within)
}
