package rfc16

import (
	"context"
	"fmt"
	"runtime"
	"slices"
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
func (t *Trial) call(by keyName, method, path string, body any, headers ...string) *answer {
	return t.accept(t.s.ask(t.ctx, by, method, path, body, headers...))
}

func (t *Trial) send(r request) *answer {
	return t.accept(t.s.do(t.ctx, r))
}

// accept takes an answer. Without a verdict it ends the rule when the run is over,
// and the try when the server says that it cannot answer just now.
func (t *Trial) accept(a *answer) *answer {
	t.last = a
	if t.ctx.Err() != nil {
		t.notRun("the run was ended")
	}
	if a.status == 503 && t.nth < maxTries {
		t.tooSlow("it answers 503")
	}
	return a
}

// fail ends the rule: what was expected, and what came. Nothing is proved when
// an agent may have been silent for longer than the rule meant it to be.
func (t *Trial) fail(expected, got string) {
	for _, a := range t.agents {
		a.checkNotSilent()
	}
	t.result.Outcome, t.result.Expected, t.result.Got = Failed, t.s.redact(expected), t.s.redact(got)
	if t.last != nil {
		t.result.Repeat = t.s.redact(t.last.curl)
	}
	runtime.Goexit()
}

// notRun ends the rule without a verdict.
func (t *Trial) notRun(why string, args ...any) {
	t.result.Outcome, t.result.Why = NotRun, t.s.redact(fmt.Sprintf(why, args...))
	runtime.Goexit()
}

// tooSlow ends this try. The machine was too slow to see what the rule is about, so the rule is
// tried again.
func (t *Trial) tooSlow(how string, args ...any) {
	t.result.tooSlow = true
	t.notRun("this machine or the way to the server is too slow: "+how, args...)
}

// assert fails unless holds; the answer is what came.
func (t *Trial) assert(holds bool, a *answer, expected string, args ...any) {
	if !holds {
		t.last = a
		t.fail(fmt.Sprintf(expected, args...), a.String())
	}
}

// expectStatus expects one of some statuses.
func (t *Trial) expectStatus(a *answer, want ...int) *answer {
	expected := strings.ReplaceAll(strings.Trim(fmt.Sprint(want), "[]"), " ", " or ")
	t.assert(a.err == nil && slices.Contains(want, a.status), a, "%s", expected)
	return a
}

// expectRefused expects a client error of any kind: the RFC names no code.
func (t *Trial) expectRefused(a *answer) *answer {
	t.assert(a.err == nil && a.status >= 400 && a.status < 500, a, "a refusal, status 4xx")
	return a
}

// expectCode expects a status and the code of Picket's that says why.
func (t *Trial) expectCode(a *answer, status int, code string) *answer {
	t.assert(a.err == nil && a.status == status && a.str("code") == code, a, "%d with code %q", status, code)
	return a
}

// expectEqual compares a value with what it must be; both are shown.
func (t *Trial) expectEqual(what string, got, want any) {
	if g, w := oneLineJSON(got), oneLineJSON(want); g != w {
		t.fail(what+" "+w, what+" "+g)
	}
}

// expectMember expects a value at a path of an answer.
func (t *Trial) expectMember(a *answer, path string, want any) {
	got, ok := a.at(path)
	if !ok || oneLineJSON(got) != oneLineJSON(want) {
		t.last = a
		t.fail(path+" "+oneLineJSON(want), a.String())
	}
}

// expectTime expects an ISO 8601 time with an offset at a path of an answer.
func (t *Trial) expectTime(a *answer, path string) time.Time {
	at := a.time(path)
	t.assert(!at.IsZero(), a, "%s is an ISO 8601 timestamp", path)
	return at
}

// id makes an id that nobody else uses.
func (t *Trial) id(name string) string { return t.prefix + name }

// now is the time as the server has it, as well as it is known.
func (t *Trial) now() time.Time { return time.Now().Add(t.s.ahead) }

func (t *Trial) sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.ctx.Done():
		t.notRun("the run was ended")
	}
}

// clean takes away what the rule made and answers what it could not.
func (t *Trial) clean(ctx context.Context) (left []string) {
	t.ctx = ctx
	for _, a := range t.agents {
		if !a.deregisterQuietly() {
			left = append(left, "agent "+a.id)
		}
	}
	for _, id := range t.tasks {
		a := t.s.ask(ctx, operator, "POST", "/api/v1/tasks/"+id+"/cancel", fields{"reason": "conformance run"})
		if a.status != 200 && a.status != 409 {
			left = append(left, "task "+id)
		}
	}
	return left
}
