package main

import (
	"net/http"
	"slices"
	"time"
)

// changingAnswers makes a change of the answers to requests of one kind.
func changingAnswers(method, suffix string,
	change func(m *faultyTransport, body object)) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(m *faultyTransport, r *http.Request, _ *http.Response, body object) {
		if requestIs(r, method, suffix) && body != nil {
			change(m, body)
		}
	}
}

// changingRecords makes a change of every record that is shown.
func changingRecords(change func(m *faultyTransport, r *http.Request, body object)) func(*faultyTransport,
	*http.Request, *http.Response,
	object) {
	return func(m *faultyTransport, r *http.Request, res *http.Response, body object) {
		if body["agent_id"] != nil && res.StatusCode < 300 {
			change(m, r, body)
		}
	}
}

// droppingEvents leaves out events that lose is true of.
func droppingEvents(lose func(e object) bool) func(*faultyTransport, *http.Request, *http.Response, object) {
	return func(_ *faultyTransport, r *http.Request, _ *http.Response, body object) {
		eachEvent(r, body, func(e object) bool { return !lose(e) })
	}
}

// Mistakes that are made by answering something else than what happened.
func answerMistakes() []serverMistake {
	judged := func(wrong func(silent, unhealthy, dead time.Duration, status string) string) func(*faultyTransport,
		*http.Request,
		*http.Response, object) {
		return changingRecords(func(_ *faultyTransport, r *http.Request, body object) {
			if readsRecord(r) {
				status, _ := body["status"].(string)
				body["status"] = wrong(silentFor(body), threshold(body, "unhealthy_after_seconds"),
					threshold(body, "dead_after_seconds"), status)
			}
		})
	}
	return []serverMistake{
		{"calls an agent unhealthy at the threshold instead of beyond it", []string{"4.5/unhealthy-boundary"}, nil,
			judged(func(silent, unhealthy, _ time.Duration, status string) string {
				if status == "active" && silent >= unhealthy {
					return "unhealthy"
				}
				return status
			})},
		{"calls an agent dead at the threshold instead of beyond it", []string{"4.5/dead-boundary"}, nil,
			judged(func(silent, _, dead time.Duration, status string) string {
				if status == "unhealthy" && silent >= dead {
					return "dead"
				}
				return status
			})},
		{"judges unhealthy three times as late",
			[]string{"4.5/unhealthy-threshold", "2.2/active-unhealthy", "3.4/monitoring-begins"}, nil,
			judged(func(silent, unhealthy, _ time.Duration, status string) string {
				if status == "unhealthy" && silent <= 3*unhealthy {
					return "active"
				}
				return status
			})},
		{"never lets an agent die", []string{"4.5/dead-threshold", "2.1/dead-record-kept"}, nil,
			judged(func(_, _, _ time.Duration, status string) string {
				if status == "dead" {
					return "unhealthy"
				}
				return status
			})},
		{"sends no ETag", []string{"3.2/etag", "6.3/etag", "3.3/version-reset"}, nil,
			func(_ *faultyTransport, _ *http.Request, res *http.Response, _ object) { res.Header.Del("ETag") }},
		{"answers 200 to a registration", []string{"3.2/201"}, nil,
			func(_ *faultyTransport, r *http.Request, res *http.Response, _ object) {
				if requestIs(r, "POST", "/agents") && res.StatusCode == 201 {
					res.StatusCode = 200
				}
			}},
		{"moves the version with heartbeats", []string{"1.1/version-keeps-through-heartbeats"}, nil,
			func(m *faultyTransport, r *http.Request, _ *http.Response, body object) {
				beats, _ := m.seen[agentOf(r)].(float64)
				if requestIs(r, "POST", "/heartbeat") {
					m.seen[agentOf(r)] = beats + 1
				} else if v, ok := body["version"].(float64); ok && readsRecord(r) {
					body["version"] = v + beats
				}
			}},
		{"never moves the version", []string{"1.1/version", "1.1/version-by-one"}, nil,
			changingRecords(func(_ *faultyTransport, _ *http.Request, body object) { body["version"] = 1 })},
		{"keeps the version over a new registration", []string{"3.3/version-reset"}, nil,
			changingRecords(func(m *faultyTransport, _ *http.Request, body object) {
				id, v := body["agent_id"].(string), body["version"].(float64)
				most, _ := m.seen[id].(float64)
				m.seen[id] = max(most, v)
				body["version"] = max(most, v)
			})},
		{"shows the agent's clock as the time of its heartbeat", []string{"4.5/receipt-timestamps"},
			func(m *faultyTransport, r *http.Request, body object) int {
				if requestIs(r, "POST", "/heartbeat") {
					m.seen[agentOf(r)] = body["client_timestamp"]
				}
				return 0
			}, changingRecords(func(m *faultyTransport, _ *http.Request, body object) {
				if at := m.seen[body["agent_id"].(string)]; at != nil {
					body["last_heartbeat_at"] = at
				}
			})},
		// every answer that is looked at is written again,
		{"writes metadata in its own words", []string{"1.1/metadata-byte-for-byte"}, nil,
			changingRecords(func(*faultyTransport, *http.Request, object) {})},
		{"loses the metadata", []string{"1.1/metadata", "6.3/lookup"}, nil,
			changingRecords(func(_ *faultyTransport, _ *http.Request, body object) { body["metadata"] = object{} })},
		{"shows a new registered_at", []string{"3.3/registered_at-stays"}, nil,
			changingRecords(func(_ *faultyTransport, _ *http.Request, body object) {
				body["registered_at"] = body["last_heartbeat_at"]
			})},
		{"gives every registration the same incarnation", []string{"3.3/incarnation-rises"}, nil,
			changingRecords(func(_ *faultyTransport, _ *http.Request, body object) { body["incarnation"] = 7 })},
		{"counts one page as the total", []string{"6.2/pages"}, nil,
			changingAnswers("GET", "/agents", func(_ *faultyTransport, body object) {
				all, _ := body["agents"].([]any)
				body["total"] = len(all)
			})},
		{"delivers a command once", []string{"5.3/until-honoured", "5.3/handled"}, nil,
			func(m *faultyTransport, r *http.Request, _ *http.Response, body object) {
				if !requestIs(r, "POST", "/heartbeat") || body["pending_commands"] == nil {
					return
				}
				body["pending_commands"] = slices.DeleteFunc(body["pending_commands"].([]any), func(c any) bool {
					id := c.(object)["command_id"].(string)
					was := m.seen[id]
					m.seen[id] = true
					return was != nil
				})
			}},
		{"lets a drain's deadline move", []string{"5.2/deadline-fixed"}, nil,
			changingRecords(func(m *faultyTransport, r *http.Request, body object) {
				if body["drain_deadline_at"] != nil && !readsRecord(r) {
					m.seen["moved"] = true
				} else if m.seen["moved"] == true && body["drain_deadline_at"] != nil {
					n, _ := m.seen["n"].(int)
					m.seen["n"] = n + 1
					body["drain_deadline_at"] = time.Now().Add(time.Duration(n) * time.Second).UTC().
						Format(time.RFC3339Nano)
				}
			})},
		{"admits writes after the agent's death", []string{"9.1/at-once", "9.1/1", "2.1/dead"}, nil,
			func(_ *faultyTransport, r *http.Request, res *http.Response, _ object) {
				if requestIs(r, "POST", "/report_progress") && res.StatusCode == 412 {
					res.StatusCode = 200
				}
			}},
		{"writes no event of deaths",
			[]string{"2.2/unhealthy-dead", "2.3/event-heartbeat_timeout", "4.5/dead-threshold"}, nil,
			droppingEvents(func(e object) bool { return e["new_status"] == "dead" })},
		{"leaves out unhealthy on the way to death", []string{"4.5/both-steps", "2.3/event-heartbeat_timeout"}, nil,
			droppingEvents(func(e object) bool { return e["new_status"] == "unhealthy" })},
		{"writes no event of drains", []string{"5.2/2", "2.3/event-drain_initiated"}, nil,
			droppingEvents(func(e object) bool { return e["reason"] == "drain_initiated" })},
		{"warns of no overdue drain", []string{"5.2/7-warning"}, nil,
			droppingEvents(func(e object) bool { return e["type"] == "agent.drain_overdue" })},
		{"notices no drift", []string{"4.5/drift-warning", "4.5/drift-boundary"}, nil,
			droppingEvents(func(e object) bool { return e["type"] == "agent.drift" })},
		{"expires leases before it says that the agent died", []string{"9.1/order"}, nil,
			droppingEvents(func(e object) bool {
				if seq, ok := e["seq"].(float64); ok && e["type"] == "lease.expired" {
					e["seq"] = seq - 100
				}
				return false
			})},
		{"calls a lease's end after a death a timeout", []string{"9.1/2", "4.6/3"}, nil,
			droppingEvents(func(e object) bool {
				if e["reason"] == "agent_dead" {
					e["reason"] = "lease_expired"
				}
				return false
			})},
		{"records the role instead of the instance", []string{"8.3/instance-in-events", "2.3/fields"}, nil,
			droppingEvents(func(e object) bool {
				if e["agent_id"] != nil {
					e["agent_id"] = "role"
				}
				return false
			})},
		{"shows keys in refusals", []string{"Security/no-key-material"}, nil,
			func(_ *faultyTransport, r *http.Request, res *http.Response, body object) {
				if res.StatusCode == 403 {
					body["detail"] = "not with " + r.Header.Get("X-API-Key")
				}
			}},
		{"answers with fields of its own", []string{"4.2/four-members"}, nil,
			changingAnswers("POST", "/heartbeat", func(_ *faultyTransport, body object) { body["load"] = 1 })},
		{"always says active", []string{"4.4/active-does-not-undo", "5.2/4", "5.2/none-held-next-heartbeat"}, nil,
			changingAnswers("POST", "/heartbeat",
				func(_ *faultyTransport, body object) { body["agent_status"] = "active" })},
		{"shows everybody's agents to everybody", []string{"Security/own-pool", "Security/own-agents-without-role"},
			func(m *faultyTransport, r *http.Request, _ object) int {
				if r.URL.Path == "/api/v1/stats" {
					m.seen["operator"] = r.Header.Get("X-API-Key")
				}
				if key, ok := m.seen["operator"].(string); ok && requestIs(r, "GET", "/agents") {
					r.Header.Set("X-API-Key", key)
				}
				return 0
			}, nil},
	}
}
