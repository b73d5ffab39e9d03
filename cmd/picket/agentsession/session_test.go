package agentsession

import (
	"slices"
	"testing"

	"github.com/picket-dev/picket"
)

// The name of an agent stands for its live session, or for a dead one if there is no other.
func TestMeant(t *testing.T) {
	session := func(id, agent, name string, health picket.HealthGrade) picket.AgentSession {
		return picket.AgentSession{SessionID: id, AgentID: agent, AgentName: name,
			Health: picket.SessionHealth{Health: health}}
	}
	all := []picket.AgentSession{
		session("asession_AAAA", "a1", "ann", picket.HealthDead),
		session("asession_BBBB", "a2", "ann", picket.HealthHealthy),
		session("asession_CCCC", "a3", "bob", picket.HealthDead),
	}
	for given, want := range map[string][]string{
		"ann": {"asession_BBBB"}, "a1": {"asession_AAAA"}, "bob": {"asession_CCCC"}, "aaaa": {"asession_AAAA"},
		"BBBB": {"asession_BBBB"}, "BBB": nil, "nobody": nil,
	} {
		if got := meant(given, all); !slices.Equal(got, want) {
			t.Errorf("%s means %q, want %q", given, got, want)
		}
	}
}

// People read when the scheduler wakes a session next, and that it backs off.
func TestTheNextWakeIsShown(t *testing.T) {
	at, unmetered := picket.Instant(1767225600000), picket.WakeReasonUnmetered
	for want, p := range map[string]picket.WakePlan{
		"2026-01-01T00:00:00.000Z at the earliest":                                   {NextAt: &at},
		"2026-01-01T00:00:00.000Z at the earliest; backing off":                      {NextAt: &at, BackingOff: true},
		"2026-01-01T00:00:00.000Z at the earliest, if something has changed by then": {NextAt: &at, OnlyIfChanged: true},
		"none (unmetered)": {Reason: &unmetered},
		"none":             {},
	} {
		if got := wakeText(p); got != want {
			t.Errorf("%+v is %q, want %q", p, got, want)
		}
	}
}
