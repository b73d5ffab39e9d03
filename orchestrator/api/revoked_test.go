package api_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// What is open with a key ends when the key is revoked: a stream that sends a
// keep-alive only once an hour, a log that is followed, and an acquire.
func TestOpenRequestsEndWithTheirKey(t *testing.T) {
	for name, store := range map[string]func(t *testing.T) rig.Store{
		"Memory": func(t *testing.T) rig.Store {
			s, stop := rig.Memory()
			t.Cleanup(stop)
			return s
		},
		"Real": func(t *testing.T) rig.Store { return rig.Real(t) },
	} {
		t.Run(name, func(t *testing.T) {
			p := newFixture(t, store(t), api.Config{KeepAlive: time.Hour})
			made, err := p.CreateKey(t.Context(), root,
				picket.KeyRequest{Name: "stolen", Scopes: []picket.Scope{picket.ScopeAgent, picket.ScopeReviewer}})
			must(t, err)
			p.keys["stolen"] = made.Key.Reveal()
			path := "/api/v1/keys/" + made.KeyID
			task := p.submit(`{"title":"x"}`)
			stream := p.openStream(t, "/api/v1/events?after=0", "stolen")
			stream.want(picket.EventKeyCreated)

			p.want(200, "POST", "/api/v1/leases", "stolen", `{"agentId":"a1"}`)
			log, acquire := make(chan response, 1), make(chan response, 1)
			go func() {
				a, _ := p.send(t.Context(), "GET", "/api/v1/tasks/"+task+"/logs?follow=run&waitSeconds=50",
					p.keys["stolen"], "")
				log <- a
			}()
			go func() {
				a, _ := p.send(t.Context(), "POST", "/api/v1/leases", p.keys["stolen"], `{"waitSeconds":50}`)
				acquire <- a
			}()
			p.eventually("the acquire waits", func() bool {
				s, err := p.Stats(t.Context())
				must(t, err)
				return s.Waiters > 0
			})
			start := time.Now()
			revoked := p.want(200, "DELETE", path, "admin", `{"keepLeases":true}`)
			if revoked.text("leases") != "kept" {
				t.Errorf("revoked: %s", revoked.raw)
			}
			for what, c := range map[string]chan response{"log": log, "acquire": acquire} {
				if a := <-c; a.status != http.StatusUnauthorized {
					t.Errorf("%s: %d %s, want 401", what, a.status, a.raw)
				}
			}
			for open := true; open; {
				_, open = stream.next()
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("they ended %s after the revocation", took)
			}
			if again := p.want(200, "DELETE", path, "admin", `{"keepLeases":false}`); again.text("leases") != "ended" {
				t.Errorf("ended later: %s", again.raw)
			}
			p.wantCode(picket.CodeValidation, "DELETE", path, "admin", `{"keepLeases":"no"}`)
		})
	}
}
