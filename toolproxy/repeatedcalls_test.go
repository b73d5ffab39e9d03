package toolproxy_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
)

// An agent that makes the same paid call again and again is told from the fifth on, and refused
// from the eleventh on. Its run goes on, and after another call it may make this one again.
func TestTheSamePaidCallOverHTTP(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	m := h.openPriced(t, nil)
	t.Cleanup(m.proxy.Close)
	l := h.submitAndLease()
	look := func(args, key string) answer { return m.tool(t, l, "look", args, key) }
	wantOK := func(what string, a answer) {
		t.Helper()
		if a.status != 200 {
			t.Fatalf("%s: %d %s", what, a.status, a.raw)
		}
	}
	// Neither calls that did not reach anything nor repeats under a key count.
	m.source.during = func(context.Context) error { return toolproxy.NotSent(errors.New("away")) }
	for range 12 {
		if a := look(`{"n":1}`, ""); a.status == 409 {
			t.Fatalf("a call that never left counts: %s", a.raw)
		}
	}
	m.source.during = nil
	for range 12 {
		wantOK("a repeat under a key", look(`{"n":1}`, "one"))
	}
	for n := 2; n <= 10; n++ {
		key := ""
		if n%2 == 0 {
			key = fmt.Sprint("key", n)
		}
		a := look(`{"n":1}`, key)
		wantOK(fmt.Sprint("call ", n), a)
		if (a.body["nudge"] != nil) != (n >= 5) {
			t.Errorf("call %d: %s", n, a.raw)
		}
	}
	for range 2 {
		a := look(`{"n":1}`, "")
		if a.status != 409 || a.body["code"] != "call_repeated" || a.body["remedy"] == "" ||
			a.body["retryable"] != false {
			t.Fatalf("the eleventh call: %d %s", a.status, a.raw)
		}
	}
	if a := look(`{"n":1}`, "one"); a.status != 200 || a.body["replayed"] != true {
		t.Errorf("what was answered before: %d %s", a.status, a.raw)
	}
	calls := m.source.calls.Load()
	wantOK("another call", look(`{"n":2}`, ""))
	wantOK("the same call after another", look(`{"n":1}`, ""))
	if got := m.source.calls.Load() - calls; got != 2 {
		t.Errorf("%d calls were made, want 2", got)
	}
}

// Over MCP the refusal is a result that a model can read.
func TestTheSamePaidCallOverMCP(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	m := h.openPriced(t, nil)
	l := h.submitAndLease()
	m.proxyEnv.proxy = m.proxy
	s := connect(t, listenMCP(t, m.proxyEnv), l.LeaseToken.Reveal(), protocolVersions[0], nil)
	for n := 1; n <= 11; n++ {
		r, err := s.CallTool(t.Context(), &mcp.CallToolParams{Name: "look", Arguments: map[string]any{}})
		if err != nil || r.IsError != (n == 11) {
			t.Fatalf("call %d: %v %+v", n, err, r)
		}
		if n < 11 {
			if nudged := object(t, r)["nudge"] != nil; nudged != (n >= 5) {
				t.Errorf("call %d: nudged is %v", n, nudged)
			}
			continue
		}
		if code, remedy := refusal(t, r); code != "call_repeated" || remedy == "" {
			t.Errorf("refused as %s, remedy %q", code, remedy)
		}
	}
}
