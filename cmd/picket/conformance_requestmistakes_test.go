package main

import (
	"net/http"
	"strings"
	"time"
)

// serverMistake is a mistake of a server and the rules that must find it.
type serverMistake struct {
	name          string
	rules         []string
	changeRequest func(m *faultyTransport, r *http.Request, body object) int
	changeAnswer  func(m *faultyTransport, r *http.Request, res *http.Response, body object)
}

func serverMistakes() []serverMistake { return append(requestMistakes(), answerMistakes()...) }

// changingRequests makes a change of requests of one kind.
func changingRequests(method, suffix string,
	change func(m *faultyTransport, r *http.Request, body object)) func(*faultyTransport, *http.Request, object) int {
	return func(m *faultyTransport, r *http.Request, body object) int {
		if requestIs(r, method, suffix) {
			change(m, r, body)
		}
		return 0
	}
}

// Mistakes that are made by letting the server do something else than asked.
func requestMistakes() []serverMistake {
	dropParameter := func(name string) func(*faultyTransport, *http.Request, object) int {
		return changingRequests("GET", "/agents",
			func(_ *faultyTransport, r *http.Request, _ object) { withoutParameters(r, name) })
	}
	return []serverMistake{
		{"lists whatever the capabilities", []string{"6.2/capabilities-any", "6.1/shape"},
			dropParameter("capabilities"), nil},
		{"lists whatever the role", []string{"6.2/role_id"}, dropParameter("role_id"), nil},
		{"lists active agents whatever the status asked for",
			[]string{"6.2/status", "6.2/status-unhealthy", "6.2/status-all"}, dropParameter("status"), nil},
		{"lists whatever the capacity", []string{"6.2/min_available_capacity", "6.2/no-maximum"},
			dropParameter("min_available_capacity"), nil},
		{"lists agents of every status by default", []string{"6.2/status-default", "5.2/3"},
			changingRequests("GET", "/agents", func(_ *faultyTransport, r *http.Request, _ object) {
				if q := r.URL.Query(); !q.Has("status") {
					q.Set("status", "*")
					r.URL.RawQuery = q.Encode()
				}
			}), nil},
		{"matches all capabilities instead of any", []string{"6.2/capabilities-any"},
			changingRequests("GET", "/agents", func(_ *faultyTransport, r *http.Request, _ object) {
				q := r.URL.Query()
				first, _, _ := strings.Cut(q.Get("capabilities"), ",")
				q.Set("capabilities", first)
				r.URL.RawQuery = q.Encode()
			}), nil},
		{"takes a stranger's heartbeat", []string{"Security/spoofed-heartbeat"},
			changingRequests("POST", "/heartbeat",
				func(m *faultyTransport, r *http.Request, _ object) { asOwner(m, r, agentOf(r)) }), nil},
		{"takes a stranger's drain", []string{"Security/stranger-drains"},
			changingRequests("PATCH", "/status",
				func(m *faultyTransport, r *http.Request, _ object) { asOwner(m, r, agentOf(r)) }), nil},
		{"lets a stranger take over a dead id",
			[]string{"Security/stranger-takes-over-dead", "Security/stranger-takes-over-deregistered"},
			changingRequests("POST", "/agents", func(m *faultyTransport, r *http.Request, body object) {
				id, _ := body["agent_id"].(string)
				asOwner(m, r, id)
			}), nil},
		{"gives a stranger an agent's work", []string{"Security/stranger-acquires"},
			changingRequests("POST", "/leases", func(m *faultyTransport, r *http.Request, body object) {
				id, _ := body["agentId"].(string)
				asOwner(m, r, id)
			}), nil},
		{"counts a refused heartbeat as a sign of life", []string{"Security/spoofed-heartbeat-resets-nothing"},
			changingRequests("POST", "/heartbeat",
				func(m *faultyTransport, r *http.Request, _ object) { asOwner(m, r, agentOf(r)) }),
			func(_ *faultyTransport, r *http.Request, res *http.Response, _ object) {
				if requestIs(r, "POST", "/heartbeat") {
					res.StatusCode = 403
				}
			}},
		{"ignores the version in If-Match", []string{"5.1/version-conflict", "11/if-match"},
			changingRequests("PATCH", "/status", func(_ *faultyTransport, r *http.Request, _ object) {
				if r.Header.Get("If-Match") != "" {
					r.Header.Set("If-Match", "*")
				}
			}), nil},
		{"needs no If-Match", []string{"5.1/if-match-required"},
			changingRequests("PATCH", "/status",
				func(_ *faultyTransport, r *http.Request, _ object) { r.Header.Set("If-Match", "*") }), nil},
		{"forgets the thresholds it is given",
			[]string{"3.3/unhealthy-twice-interval", "3.3/dead-twice-unhealthy", "4.5/thresholds-of-each"},
			changingRequests("POST", "/agents",
				func(_ *faultyTransport, _ *http.Request, body object) { delete(body, "heartbeat_config") }),
			nil},
		{"gives a draining agent work", []string{"9.3/no-new-leases", "9.3/no-new-leases-409", "2.1/draining"},
			changingRequests("POST", "/leases",
				func(_ *faultyTransport, _ *http.Request, body object) { delete(body, "agentId") }), nil},
		{"loses the agent's id of a lease",
			[]string{"9.1/1", "8.3/instance-in-lease-events", "5.2/6", "4.6/3", "9.1/2"},
			changingRequests("POST", "/leases",
				func(_ *faultyTransport, _ *http.Request, body object) { delete(body, "agentId") }), nil},
		{"takes heartbeats that say anything", []string{"4.3/status-active-or-draining", "4.3/status-required"},
			changingRequests("POST", "/heartbeat", func(_ *faultyTransport, _ *http.Request, body object) {
				if body["status"] != "draining" {
					body["status"] = "active"
				}
			}), nil},
		{"needs no client_timestamp", []string{"4.3/client_timestamp-required"},
			changingRequests("POST", "/heartbeat", func(_ *faultyTransport, _ *http.Request, body object) {
				body["client_timestamp"] = time.Now().UTC().Format(time.RFC3339Nano)
			}), nil},
		{"forgets the load", []string{"1.1/current_load", "1/created-and-updated", "6.2/min_available_capacity",
			"7.2/capacity"},
			changingRequests("POST", "/heartbeat",
				func(_ *faultyTransport, _ *http.Request, body object) { delete(body, "current_load") }),
			nil},
		{"forgets the drain's timeout", []string{"5.2/7", "2.2/draining-dead"},
			changingRequests("PATCH", "/status", func(_ *faultyTransport, _ *http.Request, body object) {
				delete(body, "drain_timeout_seconds")
			}), nil},
		{"lets a deregistered agent's heartbeat pass",
			[]string{"4.4/gone-when-deregistered", "2.1/deregistered-is-out"}, nil,
			func(_ *faultyTransport, r *http.Request, res *http.Response, body object) {
				if requestIs(r, "POST", "/heartbeat") && res.StatusCode == 410 &&
					body["agent_status"] == "deregistered" {
					res.StatusCode = 200
				}
			}},
		{"lets a dead agent's heartbeat pass",
			[]string{"4.4/gone-when-dead", "4.6/5-6", "4.5/dead-beyond", "10.2/coordinators"}, nil,
			func(_ *faultyTransport, r *http.Request, res *http.Response, body object) {
				if requestIs(r, "POST", "/heartbeat") && res.StatusCode == 410 && body["agent_status"] == "dead" {
					res.StatusCode = 200
				}
			}},
		{"needs no key", []string{"11/get-key", "11/heartbeat-key", "11/delete-key", "11/status-key"},
			func(m *faultyTransport, r *http.Request, _ object) int {
				if key := m.owners[agentOf(r)]; key != "" {
					r.Header.Set("X-API-Key", key)
				}
				return 0
			}, nil},
	}
}
