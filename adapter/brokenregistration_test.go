//go:build unix

package adapter_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// brokenRegistrations break the rules of registered agents.
var brokenRegistrations = map[string]brokenTransport{
	"registers before it asks for work":         ignoresTheRegistry,
	"registers once although the reply is lost": dropsIdempotencyKey,
	"beats in time": heartbeats(func(x interceptedCall) (*http.Response, error) {
		return answerOf(x, acknowledged), nil
	}),
	"says what it holds": heartbeats(rewritesHeartbeats(`"current_load":1`,
		`"current_load":0`)),
	"obeys a drain": rewritesAnswersToHeartbeats(`"command":"drain"`,
		`"command":"ping"`),
	"drains when it is told to end": heartbeats(rewritesHeartbeats(`"status":"draining"`,
		`"status":"active"`)),
	"obeys stop_task, and reports it": rewritesAnswersToHeartbeats(`"command":"stop_task"`,
		`"command":"ping"`),
	"stops its work before it registers again": reregistersAtOnce(),
	"comes back to a registry that has lost it": rewritesAnswersToHeartbeats(`"code":"not_found"`,
		`"code":"rate_limited"`),
	"ends its work when its heartbeats are not answered": heartbeats(assumesAcked),
	"stays away when an operator has removed it": rewritesAnswersToHeartbeats(`"agent_status":"deregistered"`,
		`"agent_status":"dead"`),
}

// acknowledged is the answer to a heartbeat that nobody has heard.
const acknowledged = `{"acknowledged":true,"server_timestamp":"2030-01-01T00:00:00.000Z","agent_status":"active","pending_commands":[]}`

func ignoresTheRegistry(x interceptedCall) (*http.Response, error) {
	if strings.HasPrefix(x.req.URL.Path, "/api/v1/agents") {
		res := answerOf(x, `{"status":404,"code":"not_found","message":"no such route","remedy":"Go on."}`)
		res.StatusCode, res.Header = http.StatusNotFound, http.Header{"Content-Type": {"application/problem+json"}}
		return res, nil
	}
	return x.pass()
}

// heartbeats lets broken have them.
func heartbeats(broken brokenTransport) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		if strings.HasSuffix(x.req.URL.Path, "/heartbeat") {
			return broken(x)
		}
		return x.pass()
	}
}

func rewritesHeartbeats(from, to string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		x.body = bytes.ReplaceAll(x.body, []byte(from), []byte(to))
		return x.pass()
	}
}

// rewritesAnswersToHeartbeats changes what the control plane answers.
func rewritesAnswersToHeartbeats(from, to string) brokenTransport {
	return func(x interceptedCall) (*http.Response, error) {
		if strings.HasPrefix(x.req.URL.Path, "/api/") {
			return rewritesAnswers(x.req.URL.Path, from, to)(x)
		}
		return x.pass()
	}
}

// reregistersAtOnce registers at once when it hears that it is dead.
func reregistersAtOnce() brokenTransport {
	var registration atomic.Pointer[interceptedCall]
	return func(x interceptedCall) (*http.Response, error) {
		if x.req.URL.Path == "/api/v1/agents" {
			x.req.Header.Del("Idempotency-Key")
			registration.Store(&x)
		}
		res, err := x.pass()
		if err == nil && res.StatusCode == http.StatusGone {
			first := registration.Load()
			if again, err := first.send(first.req.WithContext(context.Background()), first.body); err == nil {
				_, _ = io.Copy(io.Discard, again.Body)
				again.Body.Close()
			}
		}
		return res, err
	}
}

// assumesAcked that a heartbeat which is not answered has arrived.
func assumesAcked(x interceptedCall) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(x.req.Context(), 300*time.Millisecond)
	defer cancel()
	x.req = x.req.WithContext(ctx)
	res, err := x.pass()
	if err != nil {
		return answerOf(x, acknowledged), nil
	}
	defer res.Body.Close()
	text, _ := io.ReadAll(res.Body)
	return answerOf(x, string(text)), nil
}
