package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// concurrently sends n requests at the same time and counts the answers by status
// and code.
func (p *fixture) concurrently(n int,
	send func(i int) (method, path, scope, body string, headers []string)) map[string]int {
	p.t.Helper()
	got := map[string]int{}
	var mu sync.Mutex
	var group sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		method, path, scope, body, headers := send(i)
		group.Go(func() {
			<-start
			a, err := p.send(p.t.Context(), method, path, p.keys[scope], body, headers...)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				p.t.Error(err)
			}
			got[strings.TrimSpace(fmt.Sprint(a.status, " ", a.text("code")))]++
		})
	}
	close(start)
	group.Wait()
	return got
}

const concurrentRequests = 16

// Of many who register one id at once, one gets it.
func TestOneIdIsRegisteredOnceOfMany(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.addStranger()
		got := p.concurrently(concurrentRequests, func(i int) (string, string, string, string, []string) {
			return "POST", "/api/v1/agents", []string{"agent", "stranger", "operator"}[i%3], `{"agent_id":"a1"}`, nil
		})
		if want := map[string]int{
			"201":                1,
			"409 state_conflict": concurrentRequests - 1,
		}; fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if got := p.transitions("a1"); len(got) != 1 {
			t.Errorf("transitions: %q", got)
		}
		same := p.concurrently(concurrentRequests, func(int) (string, string, string, string, []string) {
			return "POST", "/api/v1/agents", "agent", `{"agent_id":"a2"}`, []string{"Idempotency-Key", "k"}
		})
		if same["201"] != concurrentRequests || len(p.transitions("a2")) != 1 {
			t.Errorf("one request sent many times: %v, %q", same, p.transitions("a2"))
		}
	})
}

// Of many who change one version at once, one does.
func TestOneVersionIsChangedOnceOfMany(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for round := range 5 {
			id := fmt.Sprintf("a%d", round)
			p.register("agent", fmt.Sprintf(`{"agent_id":%q}`, id))
			got := p.concurrently(concurrentRequests, func(i int) (string, string, string, string, []string) {
				match := []string{"If-Match", `"1"`}
				switch i % 3 {
				case 0:
					return http.MethodDelete, "/api/v1/agents/" + id, "operator", "", match
				case 1:
					return "PATCH", "/api/v1/agents/" + id + "/status", "agent", `{"status":"deregistered"}`, match
				}
				return "PATCH", "/api/v1/agents/" + id + "/status", "agent", draining, match
			})
			if want := map[string]int{
				"200":                  1,
				"409 version_conflict": concurrentRequests - 1,
			}; fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("got %v, want %v", got, want)
			}
			if got := p.transitions(id); len(got) != 2 {
				t.Errorf("transitions: %q", got)
			}
		}
	})
}

// Heartbeats that meet a removal are taken before it or refused after it; none
// brings the agent back.
func TestHeartbeatsMeetARemoval(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.register("agent", `{"agent_id":"a1"}`)
		got := p.concurrently(concurrentRequests, func(i int) (string, string, string, string, []string) {
			if i == concurrentRequests/2 {
				return http.MethodDelete, anAgent, "operator", "", nil
			}
			return "POST", anAgent + "/heartbeat", []string{"agent", "operator"}[i%2], heartbeatBody(), nil
		})
		for outcome := range got {
			if !slices.Contains([]string{"200", "410 agent_gone"}, outcome) {
				t.Errorf("answered: %v", got)
			}
		}
		if p.statusOf("a1") != "deregistered" || len(p.transitions("a1")) != 2 {
			t.Errorf("it is %s after %q", p.statusOf("a1"), p.transitions("a1"))
		}
	})
}
