package main

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rfc16"
	"github.com/picket-dev/picket/internal/rig"
)

// faultyTransport stands between the suite and a good server, and does one thing wrong.
type faultyTransport struct {
	next http.RoundTripper
	// changeRequest may change a request before it goes on; a status above 0 answers it here.
	changeRequest func(m *faultyTransport, r *http.Request, body object) int
	// changeAnswer may change an answer; body is nil when it is not a JSON object.
	changeAnswer func(m *faultyTransport, r *http.Request, res *http.Response, body object)

	mu     sync.Mutex
	owners map[string]string // API key by agent id
	seen   map[string]any    // what a mistake remembers
}

type object = map[string]any

func (m *faultyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	var sent object
	if r.Body != nil {
		raw, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		_ = json.Unmarshal(raw, &sent)
		r = r.Clone(r.Context())
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	}
	key, registers := r.Header.Get("X-API-Key"), r.Method == "POST" && r.URL.Path == "/api/v1/agents"
	if m.changeRequest != nil {
		if status := m.mistake(func() int { return m.changeRequest(m, r, sent) }); status > 0 {
			return &http.Response{
				StatusCode: status,
				Header:     http.Header{"Content-Type": {"application/json"}},
				Body:       io.NopCloser(strings.NewReader("{}")),
				Request:    r,
			}, nil
		}
		if sent != nil {
			raw, _ := json.Marshal(sent)
			r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
		}
	}
	res, err := m.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	raw, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return nil, err
	}
	var body object
	_ = json.Unmarshal(raw, &body)
	m.mistake(func() int {
		if id, _ := body["agent_id"].(string); registers && res.StatusCode == 201 {
			m.owners[id] = key
		}
		if m.changeAnswer != nil {
			m.changeAnswer(m, r, res, body)
		}
		return 0
	})
	if m.changeAnswer != nil && body != nil {
		raw, _ = json.Marshal(body)
	}
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(raw)), int64(len(raw))
	return res, nil
}

// mistake makes one at a time. The way to the server is not held up: waiting
// for a lock is not waiting on the virtual clock.
func (m *faultyTransport) mistake(make func() int) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return make()
}

// agentOf is the agent id in a request's path, empty without one.
func agentOf(r *http.Request) string {
	rest, ok := strings.CutPrefix(r.URL.Path, "/api/v1/agents/")
	if !ok {
		return ""
	}
	id, _, _ := strings.Cut(rest, "/")
	return id
}

func requestIs(r *http.Request, method, suffix string) bool {
	return r.Method == method && strings.HasSuffix(r.URL.Path, suffix)
}

// readsRecord reports whether a request looks at one agent's record.
func readsRecord(r *http.Request) bool {
	return r.Method == "GET" && agentOf(r) != "" && !strings.Contains(agentOf(r), "/")
}

// asOwner sends a request in the name of the agent's own key.
func asOwner(m *faultyTransport, r *http.Request, id string) {
	if key := m.owners[id]; key != "" && r.Header.Get("X-API-Key") != "" {
		r.Header.Set("X-API-Key", key)
	}
}

// withoutParameters leaves parameters out of a query.
func withoutParameters(r *http.Request, names ...string) {
	q := r.URL.Query()
	for _, n := range names {
		q.Del(n)
	}
	r.URL.RawQuery = q.Encode()
}

// eachEvent changes the events in an answer; false drops one.
func eachEvent(r *http.Request, body object, keep func(e object) bool) {
	all, ok := body["events"].([]any)
	if !ok || r.URL.Path != "/api/v1/events" {
		return
	}
	kept := []any{}
	for _, e := range all {
		if keep(e.(object)) {
			kept = append(kept, e)
		}
	}
	body["events"] = kept
}

// silentFor is how long the agent was silent by its record.
func silentFor(body object) time.Duration {
	heard, _ := body["last_heartbeat_at"].(string)
	at, err := time.Parse(time.RFC3339Nano, heard)
	if err != nil {
		return 0
	}
	return time.Since(at)
}

func threshold(body object, name string) time.Duration {
	config, _ := body["heartbeat_config"].(object)
	n, _ := config[name].(float64)
	return time.Duration(n) * time.Second
}

// TestSuiteFindsEveryMistake holds a server that does one thing wrong against the rule
// that is about it: a third of the servers each day.
func TestSuiteFindsEveryMistake(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	names := map[string]bool{}
	for i, b := range serverMistakes() {
		if names[b.name] {
			t.Errorf("%q is there twice", b.name)
		}
		names[b.name] = true
		if !rig.OfToday(i, 3) {
			continue
		}
		t.Run(strings.ReplaceAll(b.name, " ", "_"), func(t *testing.T) {
			onVirtualClock(t, func(t *testing.T, cfg rfc16.Config) {
				cfg.HTTP = &http.Client{
					Transport: &faultyTransport{
						next:          cfg.HTTP.Transport,
						changeRequest: b.changeRequest,
						changeAnswer:  b.changeAnswer,
						owners:        map[string]string{},
						seen:          map[string]any{},
					},
				}
				// Small thresholds: also on a virtual clock every second has its sweeps.
				cfg.Interval, cfg.Unhealthy, cfg.Dead, cfg.DrainTimeout = 1, 2, 4, 2
				cfg.Only = func(r rfc16.Rule) bool { return slices.Contains(b.rules, r.Name()) }
				report, err := rfc16.Run(t.Context(), cfg)
				if err != nil || len(report.Results) != len(b.rules) {
					t.Fatalf("%d results of %d rules, %v", len(report.Results), len(b.rules), err)
				}
				for _, r := range report.Results {
					if r.Outcome != conformance.Failed {
						t.Errorf("a server that %s passes %s/%s: %s %s", b.name, r.Section, r.ID, r.Outcome, r.Why)
					}
				}
			})
		})
	}
	if len(names) < 30 {
		t.Errorf("%d mistakes only", len(names))
	}
}
