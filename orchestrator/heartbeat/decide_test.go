package heartbeat

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/picket-dev/picket"
)

// wakeable are the facts of a wake that goes out: it is 12:00 UTC on 1 May 2026.
func wakeable(t testing.TB, source string) WakeFacts {
	t.Helper()
	p, _ := parse(source)
	now := instant(t, "2026-05-01T12:00:00Z")
	return WakeFacts{
		Now: now, Source: picket.WakeSourceManual, Settings: Defaults(), Agent: "a", Policy: p, Available: 1,
		Session: &WakeSession{Agent: "a", Health: Health(
			HealthFacts{ReportedAt: now, ReportedState: picket.SessionIdle},
			time.Minute, now)},
	}
}

// decision writes "result/reason next".
func decision(d Decision) string {
	next := "-"
	if d.NextAllowedAt != nil {
		next = d.NextAllowedAt.Time().Format("02T15:04:05")
	}
	return fmt.Sprintf("%s/%s %s", d.Result, d.Reason, next)
}

const (
	plain = "Look around."
	own2h = "---\npreferences: {min_interval: 2h}\n---\n"
	quiet = "---\npreferences:\n  quiet_windows: [{timezone: UTC, start: '11:00', end: '13:00'}]\n---\n"
	never = "---\npreferences:\n  active_hours: [{timezone: UTC, start: '11:00', end: '13:00'}]\n" +
		"  quiet_windows: [{timezone: UTC, start: '10:00', end: '14:00'}]\n---\n"
)

// change changes the facts of a wake.
type change = func(*WakeFacts)

func TestDecisions(t *testing.T) {
	minutesAgo := func(n int) func(*WakeFacts) {
		return func(f *WakeFacts) { f.LastWake = f.Now - picket.Instant(n*60_000) }
	}
	unhealthy := func(change func(*HealthFacts)) func(*WakeFacts) {
		return func(f *WakeFacts) {
			facts := HealthFacts{ReportedAt: f.Now, ReportedState: picket.SessionIdle}
			change(&facts)
			f.Session.Health = Health(facts, time.Minute, f.Now)
		}
	}
	scheduler := func(f *WakeFacts) { f.Source = picket.WakeSourceScheduler }
	for _, c := range []struct {
		what, source string
		changes      []change
		want         string
	}{
		{"all is well", plain, nil, "sent/wake_sent -"},
		{"wakes are off", plain, []change{func(f *WakeFacts) { f.Settings.Enabled = false }},
			"skipped/heartbeat_disabled -"},
		{"no policy", plain, []change{func(f *WakeFacts) { f.Policy = nil }}, "skipped/heartbeat_no_policy -"},
		{"invalid", "# Tools", nil, "skipped/heartbeat_invalid -"},
		{"conflict", plain, []change{func(f *WakeFacts) { f.Conflict = true }}, "skipped/heartbeat_invalid -"},
		{"off in the file", "---\nenabled: false\n---\n", nil, "skipped/heartbeat_disabled -"},
		{"empty", "", nil, "skipped/heartbeat_disabled -"},
		{"quiet", quiet, nil, "skipped/quiet_window 01T13:00:00"},
		{"never", never, nil, "skipped/quiet_window -"},
		{"no session", plain, []change{func(f *WakeFacts) { f.Session = nil }}, "skipped/session_not_found -"},
		{"session of another agent", plain, []change{func(f *WakeFacts) { f.Session.Agent = "b" }},
			"skipped/session_not_found -"},
		{"not reported", plain, []change{unhealthy(func(f *HealthFacts) { f.ReportedAt = 0 })},
			"skipped/session_unhealthy -"},
		{"not attachable", plain, []change{unhealthy(func(f *HealthFacts) { f.CannotStart = true })},
			"skipped/session_not_attachable -"},
		{"prompt active", plain, []change{unhealthy(func(f *HealthFacts) { f.ActivePrompt = true })},
			"skipped/session_prompt_active -"},
		{"health without a reason", plain, []change{func(f *WakeFacts) { f.Session.Health = picket.SessionHealth{} }},
			"skipped/session_unhealthy -"},
		{"idle but not eligible", plain, []change{func(f *WakeFacts) { f.Session.Health.EligibleForWake = false }},
			"skipped/session_unhealthy -"},
		{"eligible but not idle", plain,
			[]change{func(f *WakeFacts) { f.Session.Health.State = picket.SessionStopped }},
			"skipped/session_unhealthy -"},
		{"paused", plain, []change{func(f *WakeFacts) { f.NamespacePaused = true }}, "skipped/paused -"},
		{"draining", plain, []change{func(f *WakeFacts) { f.AgentDraining = true }}, "skipped/agent_draining -"},
		{"no money on any day", plain, []change{func(f *WakeFacts) { f.Available, f.NoBudget = 0, true }},
			"skipped/wake_budget_exceeded -"},
		{"no money", plain, []change{func(f *WakeFacts) { f.Available = 0 }},
			"skipped/wake_budget_exceeded 02T00:00:00"},
		{"own keys", plain, []change{scheduler, func(f *WakeFacts) { f.OwnKeys = true }},
			"skipped/unmetered -"},
		{"own keys, allowed", plain,
			[]change{scheduler, func(f *WakeFacts) { f.OwnKeys, f.UnmeteredAllowed = true, true }}, "sent/wake_sent -"},
		{"own keys, asked by a person", plain, []change{func(f *WakeFacts) { f.OwnKeys = true }},
			"sent/wake_sent -"},
		{"in the cooldown", plain, []change{func(f *WakeFacts) { f.LastWake = f.Now - 59_999 }},
			"rate_limited/cooldown_active 01T12:00:00"},
		{"at its end", plain, []change{minutesAgo(1)}, "sent/wake_sent -"},
		{"default_interval is for the scheduler", plain, []change{minutesAgo(2)}, "sent/wake_sent -"},
		{"in the interval of the file", own2h, []change{minutesAgo(90)},
			"rate_limited/cooldown_active 01T12:30:00"},
		{"at its end", own2h, []change{minutesAgo(120)}, "sent/wake_sent -"},
		{"the agent asks in the interval", own2h,
			[]change{minutesAgo(90), func(f *WakeFacts) { f.Source = picket.WakeSourceAgent }},
			"rate_limited/cooldown_active 01T12:30:00"},
		{"the scheduler in the interval", own2h, []change{minutesAgo(90), scheduler},
			"coalesced/wake_coalesced 01T12:30:00"},
		{"another wake under way", plain, []change{func(f *WakeFacts) { f.WakeUnderWay = true }},
			"coalesced/wake_coalesced -"},
		{"another wake under way in the interval", own2h,
			[]change{minutesAgo(90), func(f *WakeFacts) { f.WakeUnderWay = true }},
			"coalesced/wake_coalesced 01T12:30:00"},
		{"a clock that went back", own2h, []change{minutesAgo(-10)}, "rate_limited/cooldown_active 01T14:10:00"},
		{"too many in the cycle", plain, []change{func(f *WakeFacts) {
			f.WakesInCycle, f.CycleEndsAt = 25, f.Now+30_000
		}}, "rate_limited/heartbeat_rate_limited 01T12:00:30"},
		{"too many, end unknown", plain, []change{func(f *WakeFacts) { f.WakesInCycle = 26 }},
			"rate_limited/heartbeat_rate_limited -"},
		{"one less", plain, []change{func(f *WakeFacts) { f.WakesInCycle = 24 }}, "sent/wake_sent -"},
		{"the interval ends in a quiet window",
			"---\npreferences:\n  min_interval: 2h\n  quiet_windows: [{timezone: UTC, start: '12:15', end: '13:00'}]\n---\n",
			[]change{minutesAgo(90)}, "rate_limited/cooldown_active 01T13:00:00"},
	} {
		f := wakeable(t, c.source)
		for _, change := range c.changes {
			change(&f)
		}
		d := Decide(f)
		if got := decision(d); got != c.want || d.MayDeliver() != strings.HasPrefix(c.want, "sent") {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if !slices.Contains(picket.WakeResults(), d.Result) || !slices.Contains(picket.WakeReasons(), d.Reason) {
			t.Errorf("%s: %s is not in the lists", c.what, decision(d))
		}
	}
}

// The first rule that refuses gives the reason. Here every rule refuses at first, and each step
// removes the cause of the reason before.
func TestNextAllowed(t *testing.T) {
	prompting := func(f *WakeFacts) {
		facts := HealthFacts{ReportedAt: f.Now, ReportedState: picket.SessionPrompting}
		f.Session.Health = Health(facts, time.Minute, f.Now)
	}
	for _, c := range []struct {
		what, source string
		change       change
		want         string // "-": never
	}{
		{"at once", plain, func(*WakeFacts) {}, "01T12:00:00"},
		{"while the session is prompted", plain, prompting, "01T12:00:00"},
		{"while a wake is under way", plain, func(f *WakeFacts) { f.WakeUnderWay = true }, "01T12:00:00"},
		{"after the cooldown", plain, func(f *WakeFacts) { f.LastWake = f.Now - 10_000 }, "01T12:00:50"},
		{"after its own interval", own2h, func(f *WakeFacts) { f.LastWake = f.Now - 3_600_000 }, "01T13:00:00"},
		{"after a quiet window", quiet, func(*WakeFacts) {}, "01T13:00:00"},
		{"after both", quiet, func(f *WakeFacts) { f.LastWake = f.Now }, "01T13:00:00"},
		{"in the next cycle", plain, func(f *WakeFacts) {
			f.WakesInCycle, f.CycleEndsAt = 25, f.Now+7000
		}, "01T12:00:07"},
		{"on the next day", plain, func(f *WakeFacts) { f.Available = 0 }, "02T00:00:00"},
		{"in no hours", never, func(*WakeFacts) {}, "-"},
		{"without a policy", plain, func(f *WakeFacts) { f.Policy = nil }, "-"},
		{"without a session", plain, func(f *WakeFacts) { f.Session = nil }, "-"},
		{"of another agent", plain, func(f *WakeFacts) { f.Session.Agent = "b" }, "-"},
		{"in a pause", plain, func(f *WakeFacts) { f.NamespacePaused = true }, "-"},
	} {
		f := wakeable(t, c.source)
		c.change(&f)
		session := f.Session
		got := "-"
		if at, ok := NextAllowed(f); ok {
			got = at.Time().Format("02T15:04:05")
		}
		if got != c.want || f.Session != session {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

func TestRulesHaveAnOrder(t *testing.T) {
	f := wakeable(t, quiet)
	good := f.Session
	f.Source = picket.WakeSourceScheduler
	f.Settings.Enabled, f.Settings.MaxWakesPerCycle = false, 1
	f.Policy.Valid, f.Policy.Enabled = false, false
	f.Session = &WakeSession{Agent: "b", Health: Health(HealthFacts{}, time.Minute, f.Now)}
	f.NamespacePaused, f.AgentDraining, f.Available, f.OwnKeys = true, true, 0, true
	f.LastWake, f.WakesInCycle = f.Now, 1
	policy := f.Policy
	f.Policy, f.Conflict = nil, true
	for _, step := range []struct {
		want picket.WakeReason
		next func()
	}{
		{picket.WakeReasonDisabled, func() { f.Settings.Enabled = true }},
		{picket.WakeReasonInvalid, func() { f.Conflict = false }},
		{picket.WakeReasonNoPolicy, func() { f.Policy = policy }},
		{picket.WakeReasonInvalid, func() { f.Policy.Valid = true }},
		{picket.WakeReasonDisabled, func() { f.Policy.Enabled = true }},
		{picket.WakeReasonQuietWindow, func() { f.Policy.Windows.Quiet = nil }},
		{picket.WakeReasonSessionNotFound, func() { f.Session.Agent = "a" }},
		{picket.WakeReasonSessionUnhealthy, func() { f.Session = good }},
		{picket.WakeReasonPaused, func() { f.NamespacePaused = false }},
		{picket.WakeReasonAgentDraining, func() { f.AgentDraining = false }},
		{picket.WakeReasonBudgetExceeded, func() { f.Available = 1 }},
		{picket.WakeReasonUnmetered, func() { f.OwnKeys = false }},
		{picket.WakeReasonCoalesced, func() { f.LastWake = 0 }},
		{picket.WakeReasonRateLimited, func() { f.WakesInCycle = 0 }},
		{picket.WakeReasonSent, func() {}},
	} {
		if got := Decide(f); got.Reason != step.want {
			t.Fatalf("the reason is %s, want %s", got.Reason, step.want)
		}
		step.next()
	}
}

func TestAnswersOfTheAdapter(t *testing.T) {
	for answer, want := range map[DeliveryAnswer]string{
		DeliveryAccepted:     "sent/wake_sent -",
		DeliveryPromptActive: "skipped/session_prompt_active_race -",
		DeliveryRefused:      "failed/synthetic_prompt_failed -",
		DeliveryTimedOut:     "failed/synthetic_prompt_failed -",
		"?":                  "failed/synthetic_prompt_failed -",
	} {
		if got := decision(Delivered(answer)); got != want {
			t.Errorf("%s: %s, want %s", answer, got, want)
		}
	}
}

func TestDecisionOnTheWire(t *testing.T) {
	next := picket.Instant(1000)
	for want, d := range map[string]Decision{
		`{"result":"sent","reason":"wake_sent","next_allowed_at":null}`: decided(picket.WakeReasonSent),
		`{"result":"rate_limited","reason":"cooldown_active","next_allowed_at":"1970-01-01T00:00:01.000Z"}`: {
			Result: picket.WakeResultRateLimited, Reason: picket.WakeReasonCooldownActive, NextAllowedAt: &next},
	} {
		if b, err := json.Marshal(d); err != nil || string(b) != want {
			t.Errorf("%s, %v; want %s", b, err, want)
		}
	}
}

// A part of a millisecond of an interval counts as a whole one, since no wake may be early.
func TestIntervalsAreRoundedUp(t *testing.T) {
	f := wakeable(t, plain)
	f.Settings.WakeCooldown, f.LastWake = time.Millisecond+1, f.Now-1
	if d := Decide(f); d.NextAllowedAt == nil || *d.NextAllowedAt != f.Now+1 {
		t.Errorf("a wake after 1 ms is %s", decision(d))
	}
}

// A reason has one result, and the source document's reasons are there.
func TestReasonsOfTheDocument(t *testing.T) {
	all := picket.WakeReasons()
	for _, name := range strings.Fields("wake_sent heartbeat_disabled heartbeat_invalid heartbeat_no_policy " +
		"heartbeat_rate_limited cooldown_active quiet_window session_not_found session_unhealthy " +
		"session_not_attachable session_prompt_active session_prompt_active_race synthetic_prompt_failed wake_coalesced " +
		"agent_draining paused wake_budget_exceeded unmetered") {
		reason := picket.WakeReason(name)
		if !slices.Contains(all, reason) || !slices.Contains(picket.WakeResults(), reason.Result()) {
			t.Errorf("the reason %s is missing", name)
		}
	}
	if len(all) != 18 {
		t.Errorf("there are %d reasons", len(all))
	}
}
