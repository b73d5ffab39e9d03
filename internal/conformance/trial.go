package conformance

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
	Server *Server
	Nth    int // try of its rule, from 1
	Ctx    context.Context
	Prefix string  // of every id it makes
	Last   *Answer // to the last request
	// Doubt is called before the rule fails. It may end the try with TooSlow. Defaults to nothing.
	Doubt func()
	// Clean takes away what the rule made, and returns what it could not. Defaults to nothing.
	Clean func(ctx context.Context) (left []string)

	runner *Runner
	result *Result
}

// Call sends a request to the server.
func (t *Trial) Call(by KeyName, method, path string, body any, headers ...string) *Answer {
	return t.Accept(t.Server.Ask(t.Ctx, by, method, path, body, headers...))
}

// Send sends a request that has its own secret or URL.
func (t *Trial) Send(r Request) *Answer { return t.Accept(t.Server.Do(t.Ctx, r)) }

// Accept takes an answer. Without a verdict it ends the rule when the run is over,
// and the try when the server says that it cannot answer just now.
func (t *Trial) Accept(a *Answer) *Answer {
	t.Last = a
	if t.Ctx.Err() != nil {
		t.NotRun("the run was ended")
	}
	if a.Status == 503 && t.Nth < MaxTries {
		t.TooSlow("it answers 503")
	}
	return a
}

// Fail ends the rule: what was expected, and what came. Nothing is proved if Doubt ends the try.
func (t *Trial) Fail(expected, got string) {
	if t.Doubt != nil {
		t.Doubt()
	}
	t.result.Outcome, t.result.Expected, t.result.Got = Failed, t.Server.Redact(expected), t.Server.Redact(got)
	if t.Last != nil {
		t.result.Repeat = t.Server.Redact(t.Last.Curl)
	}
	runtime.Goexit()
}

// NotRun ends the rule without a verdict.
func (t *Trial) NotRun(why string, args ...any) {
	t.result.Outcome, t.result.Why = NotRun, t.Server.Redact(fmt.Sprintf(why, args...))
	runtime.Goexit()
}

// TooSlow ends this try. The machine was too slow to see what the rule is about, so the rule is
// tried again.
func (t *Trial) TooSlow(how string, args ...any) {
	t.result.tooSlow = true
	t.NotRun("this machine or the way to the server is too slow: "+how, args...)
}

// Assert fails unless holds; the answer is what came.
func (t *Trial) Assert(holds bool, a *Answer, expected string, args ...any) {
	if !holds {
		t.Last = a
		t.Fail(fmt.Sprintf(expected, args...), a.String())
	}
}

// ExpectStatus expects one of some statuses.
func (t *Trial) ExpectStatus(a *Answer, want ...int) *Answer {
	expected := strings.ReplaceAll(strings.Trim(fmt.Sprint(want), "[]"), " ", " or ")
	t.Assert(a.Err == nil && slices.Contains(want, a.Status), a, "%s", expected)
	return a
}

// ExpectRefused expects a client error of any kind: the document names no code.
func (t *Trial) ExpectRefused(a *Answer) *Answer {
	t.Assert(a.Err == nil && a.Status >= 400 && a.Status < 500, a, "a refusal, status 4xx")
	return a
}

// ExpectCode expects a status and the code of Picket's that says why.
func (t *Trial) ExpectCode(a *Answer, status int, code string) *Answer {
	t.Assert(a.Err == nil && a.Status == status && a.Str("code") == code, a, "%d with code %q", status, code)
	return a
}

// ExpectEqual compares a value with what it must be; both are shown.
func (t *Trial) ExpectEqual(what string, got, want any) {
	if g, w := JSON(got), JSON(want); g != w {
		t.Fail(what+" "+w, what+" "+g)
	}
}

// ExpectMember expects a value at a path of an answer.
func (t *Trial) ExpectMember(a *Answer, path string, want any) {
	got, ok := a.At(path)
	if !ok || JSON(got) != JSON(want) {
		t.Last = a
		t.Fail(path+" "+JSON(want), a.String())
	}
}

// ExpectTime expects an ISO 8601 time with an offset at a path of an answer.
func (t *Trial) ExpectTime(a *Answer, path string) time.Time {
	at := a.Time(path)
	t.Assert(!at.IsZero(), a, "%s is an ISO 8601 timestamp", path)
	return at
}

// ID makes an id that nobody else uses.
func (t *Trial) ID(name string) string { return t.Prefix + name }

// Now is the time as the server has it, as well as it is known.
func (t *Trial) Now() time.Time { return time.Now().Add(t.Server.Ahead) }

// Sleep waits, or ends the rule with the run.
func (t *Trial) Sleep(d time.Duration) {
	select {
	case <-time.After(d):
	case <-t.Ctx.Done():
		t.NotRun("the run was ended")
	}
}
