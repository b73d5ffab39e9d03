package rfc16

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// Trial is one rule being held against the server, on a goroutine of its own.
// The first expectation that is not met ends it.
type Trial struct {
	s      *suite
	nth    int    // try of its rule, from 1
	cfg    Config // with the thresholds of this try
	ctx    context.Context
	prefix string // of every id it makes
	agents []*agent
	tasks  []string
	last   *answer
	cursor string // position in the event log at which it began
	result *Result
}

// call sends a request to the server.
func (t *Trial) call(by who, method, path string, body any, headers ...string) *answer {
	return t.send(request{
		by:      by,
		secret:  t.s.keys[by],
		method:  method,
		url:     t.cfg.URL + path,
		body:    body,
		headers: headers,
	})
}

func (t *Trial) send(r request) *answer {
	return t.came(t.s.do(t.ctx, r))
}

// came takes an answer. Without a verdict it ends the rule when the run is over,
// and the try when the server says that it cannot answer just now.
func (t *Trial) came(a *answer) *answer {
	t.last = a
	if t.ctx.Err() != nil {
		t.notRun("the run was ended")
	}
	if a.status == 503 && t.nth < tries {
		t.spoiled("it answers 503")
	}
	return a
}

// fail ends the rule: what was expected, and what came. Nothing is proved when
// an agent may have been silent for longer than the rule meant it to be.
func (t *Trial) fail(expected, got string) {
	for _, a := range t.agents {
		a.inTime()
	}
	t.result.Outcome, t.result.Expected, t.result.Got = Failed, t.s.redact(expected), t.s.redact(got)
	if t.last != nil {
		t.result.Repeat = t.s.redact(t.last.repeat)
	}
	runtime.Goexit()
}

// notRun ends the rule without a verdict.
func (t *Trial) notRun(why string, args ...any) {
	t.result.Outcome, t.result.Why = NotRun, t.s.redact(fmt.Sprintf(why, args...))
	runtime.Goexit()
}

// end ends the rule with the result it has.
func (t *Trial) end() { runtime.Goexit() }

// spoiled ends this try: the machine was too slow for what was to be seen, so
// the rule is tried again.
func (t *Trial) spoiled(how string, args ...any) {
	t.result.spoiled = true
	t.notRun("this machine or the way to the server is too slow: "+how, args...)
}

// that fails unless holds; the answer is what came.
func (t *Trial) that(holds bool, a *answer, expected string, args ...any) {
	if !holds {
		t.last = a
		t.fail(fmt.Sprintf(expected, args...), a.String())
	}
}

// status expects one of some statuses.
func (t *Trial) status(a *answer, want ...int) *answer {
	var texts []string
	for _, w := range want {
		if a.err == nil && a.status == w {
			return a
		}
		texts = append(texts, fmt.Sprint(w))
	}
	t.last = a
	t.fail(strings.Join(texts, " or "), a.String())
	return a
}

// refused expects a client error of any kind: the RFC names no code.
func (t *Trial) refused(a *answer) *answer {
	t.that(a.err == nil && a.status >= 400 && a.status < 500, a, "a refusal, status 4xx")
	return a
}

// code expects a status and the code of Picket's that says why.
func (t *Trial) code(a *answer, status int, code string) *answer {
	t.that(a.err == nil && a.status == status && a.str("code") == code, a, "%d with code %q", status, code)
	return a
}

// equal compares a value with what it must be; both are shown.
func (t *Trial) equal(what string, got, want any) {
	if g, w := show(got), show(want); g != w {
		t.fail(what+" "+w, what+" "+g)
	}
}

// member expects a value at a path of an answer.
func (t *Trial) member(a *answer, path string, want any) {
	got, ok := a.at(path)
	if !ok || show(got) != show(want) {
		t.last = a
		t.fail(path+" "+show(want), a.String())
	}
}

// isTime expects an ISO 8601 time with an offset at a path of an answer.
func (t *Trial) isTime(a *answer, path string) time.Time {
	at := a.time(path)
	t.that(!at.IsZero(), a, "%s is an ISO 8601 timestamp", path)
	return at
}

// id makes an id that nobody else uses.
func (t *Trial) id(name string) string { return t.prefix + name }

// now is the time as the server has it, as well as it is known.
func (t *Trial) now() time.Time { return t.cfg.Clock.Now().Add(t.s.ahead) }

func (t *Trial) sleep(d time.Duration) {
	if t.cfg.Clock.Sleep(t.ctx, d) != nil {
		t.notRun("the run was ended")
	}
}

// clean takes away what the rule made and answers what it could not.
func (t *Trial) clean(ctx context.Context) (left []string) {
	t.ctx = ctx
	for _, a := range t.agents {
		if !a.leave() {
			left = append(left, "agent "+a.id)
		}
	}
	for _, id := range t.tasks {
		if a := t.s.do(ctx, request{
			by:     operator,
			secret: t.s.keys[operator],
			method: "POST",
			url:    t.cfg.URL + "/api/v1/tasks/" + id + "/cancel",
			body:   fields{"reason": "conformance run"},
		}); a.status != 200 && a.status != 409 {
			left = append(left, "task "+id)
		}
	}
	return left
}
