//go:build unix

package adapter_test

import (
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// interceptedCall is one request of an adapter that a test breaks.
type interceptedCall struct {
	req  *http.Request
	body []byte
	send func(*http.Request, []byte) (*http.Response, error)
}

func (x interceptedCall) pass() (*http.Response, error) { return x.send(x.req, x.body) }

// brokenTransport is a way to be a bad adapter: it stands between a good one and the
// server, and does there what the bad one would do.
type brokenTransport func(x interceptedCall) (*http.Response, error)

func (b brokenTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body.Close()
	}
	return b(interceptedCall{req: r, body: body, send: func(r *http.Request, body []byte) (*http.Response, error) {
		out := r.Clone(r.Context())
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		return http.DefaultTransport.RoundTrip(out)
	}})
}

func answerOf(x interceptedCall, body string) *http.Response {
	return &http.Response{
		StatusCode:    http.StatusOK,
		Request:       x.req,
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        http.Header{"Content-Type": {"application/json"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

// answersLocally answers a path on its own: the server hears nothing of it.
func answersLocally(path, answer string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		if x.req.URL.Path == path {
			return answerOf(x, answer), nil
		}
		return x.pass()
	}
}

// rewrites changes the bodies of requests to a path.
func rewrites(path, from, to string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		if x.req.URL.Path == path {
			x.body = bytes.ReplaceAll(x.body, []byte(from), []byte(to))
		}
		return x.pass()
	}
}

// rewritesAnswers changes the answers of a path.
func rewritesAnswers(path, from, to string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		res, err := x.pass()
		if err != nil || x.req.URL.Path != path {
			return res, err
		}
		b, _ := io.ReadAll(res.Body)
		res.Body.Close()
		b = bytes.ReplaceAll(b, []byte(from), []byte(to))
		res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
		return res, nil
	}
}

// endlessRetries is a renewal that was never answered.
const endlessRetries = `{"leaseExpiresAt":"2030-01-01T00:00:00.000Z","leaseTtlMs":600000,"fencingToken":1,"commands":[]}`

// trustsRenewals takes every renewal for granted and hears nothing of its lease.
func trustsRenewals(x interceptedCall) (*http.Response, error) {
	switch x.req.URL.Path {
	case "/v1/lease/renew":
		if res, err := x.pass(); err == nil && res.StatusCode == http.StatusOK {
			return res, nil
		} else if err == nil {
			res.Body.Close()
		}
		return answerOf(x, endlessRetries), nil
	case "/v1/lease/watch":
		if x.req.URL.Query().Get("waitSeconds") == "0" { // asked when all is over
			return x.pass()
		}
		<-x.req.Context().Done()
		return nil, x.req.Context().Err()
	}
	return x.pass()
}

// givesUpOnTrouble gives up at the first trouble with a path.
func givesUpOnTrouble(path string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		res, err := x.pass()
		if x.req.URL.Path != path || err == nil && res.StatusCode/100 == 2 {
			return res, err
		}
		return fenced(x), nil
	}
}

func fenced(x interceptedCall) *http.Response {
	res := answerOf(x, `{"status":412,"code":"lease_expired","message":"gone","remedy":"Exit."}`)
	res.StatusCode, res.Header = http.StatusPreconditionFailed,
		http.Header{"Content-Type": {"application/problem+json"}}
	return res
}

// repeatsRequests asks fifty times for once.
func repeatsRequests(x interceptedCall) (*http.Response, error) {
	if x.req.URL.Path == "/api/v1/leases" {
		for range 50 {
			if res, err := x.pass(); err == nil {
				res.Body.Close()
			}
		}
	}
	return x.pass()
}

// dropsIdempotencyKey loses the key of a repeated request.
func dropsIdempotencyKey(x interceptedCall) (*http.Response, error) {
	x.req.Header.Del("Idempotency-Key")
	return x.pass()
}

// onlyFirst sends the first request of a path and makes the others up.
func onlyFirst(path, answer string) brokenTransport {
	var sent atomic.Bool
	return func(x interceptedCall) (*http.Response, error) {
		if x.req.URL.Path != path || sent.CompareAndSwap(false, true) {
			return x.pass()
		}
		return answerOf(x, answer), nil
	}
}

// brokenAdapters has one adapter for each rule, which breaks it.
var brokenAdapters = map[string]brokenTransport{
	"confirms the lease before it launches": answersLocally("/v1/lease/renew", endlessRetries),
	"announces its process and how it is held": rewrites("/v1/run/events", `"containment":"`,
		`"containment":"string and `),
	"reports a crash with code and class":    rewrites("/v1/lease/release", `"code":3`, `"code":1`),
	"reports a signal":                       rewrites("/v1/lease/release", `"SIGKILL"`, `"SIGTERM"`),
	"reports a process without a result":     rewrites("/v1/lease/release", `"no_result"`, `"crash"`),
	"hands in the output of onExit complete": rewrites("/api/v1/leases/advance", `"hi\n"`, `"hello"`),
	"does one task after the other": rewritesAnswers("/api/v1/leases/advance", `"leases":[`,
		`"leases":[],"more":[`),
	"lets an agent that is done end on its own": rewritesAnswers("/v1/lease/watch", `"completed"`, `"cancelled"`),
	"obeys stop":                           rewritesAnswers("/v1/lease/watch", `"stop"`, `"ping"`),
	"ends nobody for a nudge":              rewritesAnswers("/v1/lease/watch", `"nudge"`, `"stop"`),
	"kills a tree that is deaf to SIGTERM": answersLocally("/v1/lease/watch", `{"state":"held","commands":[]}`),
	"ships the output, each byte once":     rewrites("/v1/run/logs", "two", "too"),
	"ends a run at its timeout and reports it": rewrites("/v1/run/events", "agent-timed-out",
		"agent-heartbeat"),
	"gives its agent no credential of its own": rewritesAnswers("/api/v1/leases", `"agentToken"`,
		`"forNobody"`),
	"kills the tree of a cancelled task":                  trustsRenewals,
	"kills the tree of a superseded lease":                trustsRenewals,
	"kills the tree of a lease that ended while it slept": trustsRenewals,
	"reclaims its lease in an adopted store":              answersLocally("/v1/lease/reclaim", endlessRetries),
	"kills the tree of a lease it cannot reclaim":         trustsRenewals,

	"is done with a tree before the lease ends, in a storm of 503": trustsRenewals,
	"is done with a tree before the lease ends, cut off":           onlyFirst("/v1/lease/renew", endlessRetries),
	"is done with a tree before the lease ends, without replies":   onlyFirst("/v1/lease/renew", endlessRetries),

	"goes on after a partition":                                    onlyFirst("/v1/lease/renew", endlessRetries),
	"keeps its agent through a reply that is lost":                 givesUpOnTrouble("/v1/lease/renew"),
	"keeps its agent through a server that is away for a moment":   givesUpOnTrouble("/v1/lease/renew"),
	"asks again with the same key when an acquire's reply is lost": dropsIdempotencyKey,
	"backs off from a server that is away":                         repeatsRequests,
	"releases once although the reply is lost": onlyFirst("/v1/lease/release",
		`{"state":"queued"}`),
	"completes once although request and reply are lost": givesUpOnTrouble("/v1/tools/mark_complete"),
}

// Every rule of the conformance table is broken by an adapter here, and the table finds it.
func TestEveryRuleCanBeBroken(t *testing.T) {
	rig.SkipShort(t)
	rules := adaptertest.Rules()
	maps.Copy(brokenAdapters, brokenRegistrations)
	for name := range brokenAdapters {
		if !has(rules, name) {
			t.Errorf("there is no rule %q", name)
		}
	}
	busy := make(chan struct{}, 8)
	found := make([]chan error, len(rules))
	for i, rule := range rules {
		found[i] = make(chan error, 1)
		broken, ok := brokenAdapters[rule.Name]
		if !ok {
			t.Errorf("no adapter breaks the rule %q: nothing shows that it can fail", rule.Name)
			continue
		}
		go func() {
			busy <- struct{}{}
			defer func() { <-busy }()
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			found[i] <- rule.Check(ctx, newBrokenAdapter(t, broken))
		}()
	}
	for i, rule := range rules {
		t.Run(rule.Name, func(t *testing.T) {
			err := <-found[i]
			if err == nil {
				t.Error("an adapter that breaks the rule is let pass")
			}
			t.Log(err)
		})
	}
}

// newBrokenAdapter is an adapter that is a bad one, and ends at once when it is told.
func newBrokenAdapter(t *testing.T, broken brokenTransport) adaptertest.AdapterFunc {
	return func(ctx context.Context, s *adaptertest.Server, command []string) error {
		a := newAdapter(t, s, command, asAsked(s), func(c *adapter.Config) { c.HTTP = &http.Client{Transport: broken} })
		defer context.AfterFunc(ctx, a.ReleaseNow)()
		return a.Run(ctx)
	}
}

func has(rules []adaptertest.Rule, name string) bool {
	for _, r := range rules {
		if r.Name == name {
			return true
		}
	}
	return false
}
