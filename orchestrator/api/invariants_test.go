package api_test

import (
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// What the scanner finds is told to anyone who asks, and counted.
func TestInvariantsAreLookedAtAndRepaired(t *testing.T) {
	store := rig.Real(t)
	p := newFixture(t, store, api.Config{})
	raw := rig.Hashes(redis.NewUniversalClient(&store.Redis))
	defer raw.Close()
	p.want(201, "POST", "/api/v1/tasks", "operator", `{"title":"t"}`)
	lease, _ := p.lease()
	clean := func() {
		t.Helper()
		if a := p.want(200, "POST", "/api/v1/invariants", "operator",
			`{}`); !strings.Contains(a.raw, `"violations":[]`) || a.text("next") != "" || a.body["checked"] == 0.0 {
			t.Errorf("a sound store: %s", a.raw)
		}
	}
	clean()
	must(t, raw.ZRem(t.Context(), "pk:{default}:deadlines", lease.TaskID).Err())
	line := `"kind":"deadline_missing","subject":"` + lease.TaskID +
		`","detail":"it does not stand in deadlines","repaired":`
	for range 2 {
		if a := p.want(200, "POST", "/api/v1/invariants", "operator",
			`{"repair":false,"cursor":""}`); !strings.Contains(a.raw, line+"false") {
			t.Errorf("looked: %s", a.raw)
		}
	}
	if a := p.want(200, "POST", "/api/v1/invariants", "admin", `{"repair":true}`); !strings.Contains(a.raw,
		line+"true") {
		t.Errorf("repaired: %s", a.raw)
	}
	clean()
	metrics := p.want(200, "GET", "/metrics", "", "").raw
	for _, repaired := range []string{"false", "true"} {
		want := `picket_invariant_violations_total{kind="deadline_missing",namespace="default",repaired="` + repaired +
			`"} 1`
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
	events := p.want(200, "GET", "/api/v1/events?type="+picket.EventInvariantViolated+","+picket.EventInvariantRepaired,
		"reviewer", "").raw
	if strings.Count(events, `"kind":"deadline_missing"`) != 2 {
		t.Errorf("events: %s", events)
	}
}

func TestABadInspectionIsRefused(t *testing.T) {
	p := newMemoryFixture(t)
	for _, cursor := range []string{"x", "1", "1 2", "999 0 ", "1 -1 ", "1 0 " + strings.Repeat("a", 300),
		`1 0 \u0000`} {
		if a := p.wantCode(picket.CodeValidation, "POST", "/api/v1/invariants", "operator",
			`{"cursor":"`+cursor+`"}`); a.text("field") != "/cursor" {
			t.Errorf("cursor %q: %s", cursor, a.raw)
		}
	}
	p.wantCode(picket.CodeValidation, "POST", "/api/v1/invariants", "operator", `{"fix":true}`)
	if a := p.want(200, "POST", "/api/v1/invariants", "operator", `{"cursor":"99 7 coder|"}`); a.text("next") != "" {
		t.Errorf("beyond the end: %s", a.raw)
	}
}
