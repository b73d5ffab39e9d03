package heartbeat

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/picket-dev/picket"
)

// healthText writes "state/health/reason/detail".
func healthText(h picket.SessionHealth) string {
	reason, detail := picket.WakeReason("-"), picket.HealthDetail("-")
	return fmt.Sprintf("%s/%s/%s/%s", h.State, h.Health, *cmp.Or(h.IneligibilityReason, &reason),
		*cmp.Or(h.DetailCode, &detail))
}

func TestHealthOfSessions(t *testing.T) {
	const now = picket.Instant(1_000_000)
	for _, c := range []struct {
		what       string
		change     func(*HealthFacts)
		want       string
		attachable bool
	}{
		{"reported as idle", func(*HealthFacts) {}, "idle/healthy/-/-", true},
		{"not reported", func(f *HealthFacts) { f.ReportedAt = 0 },
			"detached/unknown/session_unhealthy/health_unknown", false},
		{"reported before the lock was taken", func(f *HealthFacts) { f.KnownSince = f.ReportedAt + 1 },
			"detached/unknown/session_unhealthy/health_unknown", false},
		{"reported when the lock was taken", func(f *HealthFacts) { f.KnownSince = f.ReportedAt },
			"idle/healthy/-/-", true},
		{"not reported, and the agent is dead", func(f *HealthFacts) { f.ReportedAt, f.AgentDead = 0, true },
			"detached/unknown/session_unhealthy/health_unknown", false},
		{"an unknown state", func(f *HealthFacts) { f.ReportedState = "asleep" },
			"detached/unknown/session_unhealthy/health_unknown", false},
		{"agent dead", func(f *HealthFacts) { f.AgentDead, f.ActivePrompt = true, true },
			"stopped/dead/session_unhealthy/health_dead", false},
		{"ended", func(f *HealthFacts) { f.ReportedState = picket.SessionStopped },
			"stopped/dead/session_unhealthy/health_dead", false},
		{"ended long ago", func(f *HealthFacts) { f.ReportedState, f.ReportedAt = picket.SessionStopped, 1 },
			"stopped/dead/session_unhealthy/health_dead", false},
		{"of exactly the age", func(f *HealthFacts) { f.ReportedAt = now - 120_000 }, "idle/healthy/-/-", true},
		{"older", func(f *HealthFacts) { f.ReportedAt = now - 120_001 },
			"idle/stale/session_unhealthy/health_stale", false},
		{"older, with a prompt", func(f *HealthFacts) {
			f.ReportedAt, f.ReportedState, f.ActivePrompt = now-120_001, picket.SessionPrompting, true
		}, "prompting/stale/session_unhealthy/health_stale", false},
		{"agent unhealthy", func(f *HealthFacts) { f.AgentUnhealthy = true },
			"idle/stale/session_unhealthy/health_stale", false},
		{"reported later than now", func(f *HealthFacts) { f.ReportedAt = now + 500 }, "idle/healthy/-/-", true},
		{"hung", func(f *HealthFacts) {
			f.ReportedState, f.ActivePrompt, f.Nudged = picket.SessionPrompting, true, true
		},
			"prompting/degraded/session_unhealthy/health_hung", true},
		{"nudged before, idle now", func(f *HealthFacts) { f.Nudged = true }, "idle/healthy/-/-", true},
		{"prompt under way", func(f *HealthFacts) { f.ReportedState, f.ActivePrompt = picket.SessionPrompting, true },
			"prompting/healthy/session_prompt_active/-", true},
		{"run under way", func(f *HealthFacts) { f.ActiveRun = true },
			"prompting/healthy/session_prompt_active/-", true},
		{"reported as idle with a prompt", func(f *HealthFacts) { f.ActivePrompt = true },
			"prompting/healthy/session_prompt_active/-", true},
		{"prompt while the adapter drains", func(f *HealthFacts) { f.ActivePrompt, f.AdapterDraining = true, true },
			"prompting/healthy/session_prompt_active/-", true},
		{"adapter draining", func(f *HealthFacts) { f.AdapterDraining = true },
			"detached/degraded/session_not_attachable/-", false},
		{"cannot start", func(f *HealthFacts) { f.CannotStart = true },
			"detached/degraded/session_not_attachable/-", false},
		{"conversation lost", func(f *HealthFacts) { f.ConversationLost = true },
			"detached/degraded/session_not_attachable/-", false},
		{"reported as detached", func(f *HealthFacts) { f.ReportedState = picket.SessionDetached },
			"detached/degraded/session_not_attachable/-", false},
	} {
		f := HealthFacts{ReportedAt: now - 1000, ReportedState: picket.SessionIdle}
		c.change(&f)
		h := Health(f, 2*time.Minute, now)
		if got := healthText(h); got != c.want || h.Attachable != c.attachable ||
			h.EligibleForWake != (c.want == "idle/healthy/-/-") || h.UpdatedAt != f.ReportedAt {
			t.Errorf("%s: %s, attachable %v, eligible %v; want %s", c.what, got, h.Attachable, h.EligibleForWake, c.want)
		}
		if !slices.Contains(picket.SessionStates(), h.State) || !slices.Contains(picket.HealthGrades(), h.Health) ||
			h.DetailCode != nil && !slices.Contains(picket.HealthDetails(), *h.DetailCode) {
			t.Errorf("%s: %s has a value that is not in the lists", c.what, healthText(h))
		}
	}
}

// In all combinations of facts a session is eligible only if nothing speaks against it.
func TestEligibleSessionsAreIdleAndHealthy(t *testing.T) {
	for bits := range 1 << 9 {
		is := func(i int) bool { return bits>>i&1 == 1 }
		f := HealthFacts{
			ReportedAt: 1000, ReportedState: picket.SessionIdle, ActivePrompt: is(0), ActiveRun: is(1), Nudged: is(2),
			AgentDead: is(3), AgentUnhealthy: is(4), AdapterDraining: is(5), CannotStart: is(6),
			ConversationLost: is(7),
		}
		if is(8) {
			f.KnownSince = 2000
		}
		h := Health(f, time.Minute, 1500)
		if want := bits&^(1<<2) == 0; h.EligibleForWake != want || (h.IneligibilityReason == nil) != want {
			t.Errorf("%+v: eligible %v", f, h.EligibleForWake)
		}
	}
}

func TestHealthOnTheWire(t *testing.T) {
	for want, f := range map[string]HealthFacts{
		`{"state":"idle","health":"healthy","active_prompt":false,"attachable":true,"eligible_for_wake":true,` +
			`"ineligibility_reason":null,"detail_code":null,"last_activity_at":null,` +
			`"last_presence_at":"1970-01-01T00:00:02.000Z","updated_at":"1970-01-01T00:00:01.000Z"}`: {ReportedAt: 1000,
			ReportedState: picket.SessionIdle, LastPresenceAt: 2000},
		`{"state":"detached","health":"unknown","active_prompt":false,"attachable":false,"eligible_for_wake":false,` +
			`"ineligibility_reason":"session_unhealthy","detail_code":"health_unknown","last_activity_at":null,` +
			`"last_presence_at":null,"updated_at":null}`: {},
	} {
		if b, err := json.Marshal(Health(f, time.Minute, 1500)); err != nil || string(b) != want {
			t.Errorf("%s, %v\nwant %s", b, err, want)
		}
	}
}
