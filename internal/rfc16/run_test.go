package rfc16

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/internal/conformance"
)

// roundTrip is a way to a server.
type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func only(names ...string) func(Rule) bool {
	return func(r Rule) bool { return slices.Contains(names, r.Name()) }
}

// A machine that is too slow for a rule gets no verdict, neither way.
func TestSlowMachineFailsNoRule(t *testing.T) {
	server := agreeableServer()
	beats := 0
	slow := roundTrip(func(r *http.Request) (*http.Response, error) {
		if strings.HasSuffix(r.URL.Path, "/heartbeat") {
			time.Sleep(time.Minute)
			beats++
		}
		return server.RoundTrip(r)
	})
	synctest.Test(t, func(t *testing.T) {
		report, err := Run(t.Context(),
			Config{
				URL:  "http://slow.test",
				Key:  "k",
				HTTP: &http.Client{Transport: slow},
				Only: only("4.4/resets-timer"),
			})
		if err != nil || len(report.Results) != 1 {
			t.Fatal(report, err)
		}
		if r := report.Results[0]; r.Outcome != conformance.NotRun || !strings.Contains(r.Why, "too slow") ||
			report.NotRun != 1 || report.Passed != 0 {
			t.Errorf("%+v", report)
		}
		if beats != 2*conformance.MaxTries {
			t.Errorf("%d heartbeats, want %d tries with 2 each", beats, conformance.MaxTries)
		}
	})
}

// A run that is ended takes away what it has made until then.
func TestAnEndedRunCleansUp(t *testing.T) {
	server := agreeableServer()
	var mu sync.Mutex
	made, removed := 0, 0
	count := roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		switch {
		case r.Method == "POST" && r.URL.Path == agentsPath:
			made++
		case r.Method == "DELETE" && strings.HasPrefix(r.URL.Path, agentsPath):
			removed++
		}
		mu.Unlock()
		return server.RoundTrip(r)
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		report, err := Run(ctx, Config{
			URL:  "http://ended.test",
			Key:  "k",
			HTTP: &http.Client{Transport: count},
			Only: only("2.2/active-unhealthy", "2.2/unhealthy-dead", "4.4/resumed"),
		})
		if err == nil || report.NotRun != 3 || made != 3 || removed != 3 || len(report.Left) > 0 {
			t.Errorf("%v, %d agents made, %d removed: %+v", err, made, removed, report)
		}
	})
}

// A registration whose answer is lost may have happened.
func TestLostRegistrationIsDeleted(t *testing.T) {
	server := agreeableServer()
	var gone []string
	lossy := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == "DELETE" && strings.HasPrefix(r.URL.Path, agentsPath) {
			gone = append(gone, r.URL.Path)
		}
		res, err := server.RoundTrip(r)
		if r.Method == "POST" && r.URL.Path == agentsPath {
			return nil, http.ErrServerClosed
		}
		return res, err
	})
	synctest.Test(t, func(t *testing.T) {
		report, err := Run(t.Context(),
			Config{URL: "http://lossy.test", Key: "k", HTTP: &http.Client{Transport: lossy}, Only: only("3.2/201")})
		if err != nil || report.Failed != 1 || len(gone) != 1 || !strings.Contains(report.Results[0].Got, "no answer") {
			t.Errorf("%v, removed %v: %+v", err, gone, report)
		}
	})
}

// What cannot be taken away is said.
func TestLeftAgentsAreReported(t *testing.T) {
	server := agreeableServer()
	stuck := roundTrip(func(r *http.Request) (*http.Response, error) {
		res, err := server.RoundTrip(r)
		if r.Method == "DELETE" {
			res.StatusCode = 503
		}
		return res, err
	})
	synctest.Test(t, func(t *testing.T) {
		report, err := Run(t.Context(),
			Config{URL: "http://stuck.test", Key: "k", HTTP: &http.Client{Transport: stuck}, Only: only("3.2/201")})
		if err != nil || report.Passed != 1 || len(report.Left) != 5 { // the agent and four keys
			t.Errorf("%v: %+v", err, report)
		}
	})
}

// A server that has nothing but the RFC's routes is held against nothing else,
// and what lacks is said, rule by rule.
func TestAServerWithTheRFCAlone(t *testing.T) {
	inner := agreeableServer()
	plain := fakeServer{func(method, path string, body fields) (int, any) {
		if !strings.HasPrefix(path, agentsPath) || strings.HasSuffix(path, "/commands") {
			return 404, fields{"title": "no such route"}
		}
		return inner.answer(method, path, body)
	}}
	for name, r := range outcomes(t, plain, Config{RFCOnly: true}) {
		if !strings.Contains(r.Why, "second agent key") && !strings.Contains(r.Why, "operator's own") && r.Why != "" &&
			!slices.Contains(silentRules(), name) {
			t.Errorf("%s: %s", name, r.Why)
		}
	}
	lacking := map[Needs]string{
		Stranger: "no second agent key",
		Operator: "operator's own",
		Events:   "/api/v1/stats answers 404",
		Tasks:    "/api/v1/tasks answers 404",
		Commands: "commands answers 404",
		Pools:    "/api/v1/pools answers 404",
		Reviewer: "no reviewer's key",
		Keys:     "makes no other keys",
	}
	all := outcomes(t, plain, Config{})
	for _, r := range Rules() {
		got := all[r.Name()]
		for need, why := range lacking {
			if r.Check != nil && r.Needs == need &&
				(got.Outcome != conformance.NotRun || !strings.Contains(got.Why, why)) {
				t.Errorf("%s needs %s: %s %s", r.Name(), need, got.Outcome, got.Why)
			}
		}
		if r.Check != nil && r.Needs&^Settled&^Exact != 0 && got.Outcome == conformance.Passed {
			t.Errorf("%s needs %s, which there is not, and passes", r.Name(), r.Needs)
		}
	}
}

func silentRules() (names []string) {
	for _, r := range Rules() {
		if r.Check == nil {
			names = append(names, r.Name())
		}
	}
	return names
}

// With keys of its own a run makes none, and strangers are not run without one.
func TestGivenKeysAreUsed(t *testing.T) {
	server := agreeableServer()
	used := map[string]bool{}
	var mu sync.Mutex
	seen := roundTrip(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		used[r.Header.Get("X-API-Key")] = true
		mu.Unlock()
		if r.URL.Path == "/api/v1/keys" {
			res, err := server.RoundTrip(r)
			res.StatusCode = 403
			return res, err
		}
		return server.RoundTrip(r)
	})
	rules := only("Security/spoofed-heartbeat", "3.2/201", "4.4/unknown-agent")
	synctest.Test(t, func(t *testing.T) {
		report, err := Run(t.Context(),
			Config{
				URL:      "http://keys.test",
				Key:      "op",
				AgentKey: "one",
				OtherKey: "two",
				HTTP:     &http.Client{Transport: seen},
				Only:     rules,
			})
		if err != nil || report.NotRun != 0 || !used["op"] || !used["one"] || !used["two"] {
			t.Errorf("%v, %v: %+v", err, used, report)
		}
		report, err = Run(t.Context(),
			Config{
				URL:      "http://keys.test",
				Key:      "op",
				AgentKey: "one",
				HTTP:     &http.Client{Transport: seen},
				Only:     rules,
			})
		if err != nil || report.NotRun != 1 || report.Results[2].Why != "no second agent key was given" {
			t.Errorf("%v: %+v", err, report)
		}
	})
}

// A server that is away for a moment is asked again; one that stays away fails.
func TestAServerThatIsAway(t *testing.T) {
	for away, want := range map[int]conformance.Outcome{
		1: conformance.Passed, conformance.MaxTries - 1: conformance.Passed, 1000: conformance.Failed,
	} {
		server, asked := agreeableServer(), 0
		flaky := roundTrip(func(r *http.Request) (*http.Response, error) {
			res, err := server.RoundTrip(r)
			if strings.HasSuffix(r.URL.Path, "/heartbeat") {
				if asked++; asked <= away {
					res.StatusCode = 503
				}
			}
			return res, err
		})
		synctest.Test(t, func(t *testing.T) {
			report, err := Run(t.Context(),
				Config{
					URL:  "http://away.test",
					Key:  "k",
					HTTP: &http.Client{Transport: flaky},
					Only: only("4.2/acknowledged"),
				})
			if err != nil || len(report.Results) != 1 || report.Results[0].Outcome != want {
				t.Errorf("away %d times: %v, %+v", away, err, report)
			}
		})
	}
}
