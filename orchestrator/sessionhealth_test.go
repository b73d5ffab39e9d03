package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// healthData is the data of an event agent_session.health.
type healthData struct {
	SessionID  string  `json:"sessionId"`
	State      string  `json:"state"`
	DetailCode *string `json:"detailCode"`
	Before     struct {
		Health string `json:"health"`
	} `json:"before"`
	After struct {
		Health string `json:"health"`
	} `json:"after"`
}

// healthEvents are the events of health so far, as "before-after state detail".
func (f *fixture) healthEvents(t *testing.T) (list []string) {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventSessionHealth}, Limit: 1000})
	kit.OK(t, err)
	for _, e := range page.Events {
		var d healthData
		kit.OK(t, json.Unmarshal(e.Data, &d))
		line := d.Before.Health + "-" + d.After.Health + " " + d.State
		if d.DetailCode != nil {
			line += " " + *d.DetailCode
		}
		list = append(list, line)
	}
	return list
}

func (f *fixture) judge(t *testing.T) {
	t.Helper()
	_, err := f.JudgeAgents(f.Ctx, 100)
	kit.OK(t, err)
}

func cannotStart(id string) picket.SessionReport {
	s := idleSession(id)
	s.State, s.DetachedBecause = picket.SessionDetached, picket.CannotStart
	return s
}

// A change of health is an event, by the report or by the sweep that sees it first, and at most one in a minute.
func TestChangesOfHealthAreEvents(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		var want []string
		expect := func(more ...string) {
			t.Helper()
			if want = append(want, more...); !slices.Equal(f.healthEvents(t), want) {
				t.Fatalf("events %q, want %q", f.healthEvents(t), want)
			}
		}
		kit.OK(t, f.report("a1", n, idleSession(id)))
		working := idleSession(id)
		working.State, working.PromptID = picket.SessionPrompting, "prompt_"+ulid.Make().String()
		kit.OK(t, f.report("a1", n, working))
		expect() // it is as healthy as before
		kit.OK(t, f.report("a1", n, cannotStart(id)))
		kit.OK(t, f.report("a1", n, cannotStart(id)))
		expect("healthy-degraded detached")
		kit.OK(t, f.report("a1", n, idleSession(id)))
		kit.OK(t, f.report("a1", n, cannotStart(id)))
		f.judge(t)
		expect() // it was well again for a moment only
		kit.OK(t, f.report("a1", n, idleSession(id)))
		f.judge(t)
		expect()
		f.JumpStoreTime(t, 61*time.Second)
		f.judge(t)
		expect("degraded-healthy idle")
		f.JumpStoreTime(t, 40*time.Second) // the agent is silent for too long
		f.judge(t)
		expect()
		f.JumpStoreTime(t, 25*time.Second)
		f.judge(t)
		expect("healthy-stale idle health_stale")
		_, err := f.AgentSession(f.Ctx, id)
		kit.OK(t, err)
		expect() // a look writes no event
		f.JumpStoreTime(t, 61*time.Second)
		kit.OK(t, f.report("a1", n, idleSession(id)))
		expect() // its agent is still silent
		_, err = f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
			ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
		kit.OK(t, err)
		kit.OK(t, f.report("a1", n, idleSession(id)))
		expect("stale-healthy idle")
	})
}

// The events say what readers see.
func TestEventsOfHealthSayWhatReadersSee(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id := f.sessionAgent(t, "a1"), newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id)))
		const due, session = "pk:{default}:health-due", "pk:{default}:asession:"
		check := func(what string) {
			t.Helper()
			f.Raw.HSet(f.Ctx, session+id, "health", "other") // so that there is an event in any case
			f.Raw.HDel(f.Ctx, session+id, "health_at")
			kit.OK(t, f.Raw.ZAdd(f.Ctx, due, redis.Z{Member: id}).Err())
			f.judge(t)
			list := f.healthEvents(t)
			s, err := f.AgentSession(f.Ctx, id)
			kit.OK(t, err)
			want := fmt.Sprintf("other-%s %s", s.Health.Health, s.Health.State)
			if s.Health.DetailCode != nil {
				want += " " + string(*s.Health.DetailCode)
			}
			if got := list[len(list)-1]; got != want {
				t.Errorf("%s: the event says %q, and readers see %q", what, got, want)
			}
		}
		check("idle")
		for _, state := range picket.SessionStates() {
			for _, silent := range []bool{false, true} {
				s := idleSession(id)
				s.State, s.Silent = state, silent
				switch state {
				case picket.SessionPrompting:
					s.PromptID = "prompt_" + ulid.Make().String()
				case picket.SessionDetached:
					s.DetachedBecause = picket.ConversationLost
				case picket.SessionStopped:
					continue // its end has another event
				}
				kit.OK(t, f.report("a1", n, s))
				check(fmt.Sprintf("%s %v", state, silent))
			}
		}
		kit.OK(t, f.report("a1", n, idleSession(id)))
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		check("with a queued prompt")
		kit.OK(t, f.result(n, p.PromptID, picket.PromptAccepted, ""))
		check("with an accepted prompt")
		kit.OK(t, f.result(n, p.PromptID, picket.PromptAnswered, ""))
		f.Raw.HSet(f.Ctx, "pk:{default}:agent:a1", "status", "draining", "drain_due", "99999999999999")
		check("of an agent that drains")
		f.Raw.HSet(f.Ctx, "pk:{default}:agent:a1", "status", "active")
		f.Raw.HSet(f.Ctx, "pk:{default}:meta", "adopted", "99999999999999")
		check("after an adoption")
		f.Raw.HSet(f.Ctx, "pk:{default}:meta", "adopted", "0")
		f.JumpStoreTime(t, 95*time.Second)
		check("of a silent agent")
	})
}

// Nothing looks at a session that has ended.
func TestHealthIsLookedAtWhileASessionLives(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		n, id, other := f.sessionAgent(t, "a1"), newSessionID(), newSessionID()
		due := func() string { return strings.Join(f.Raw.ZRange(f.Ctx, "pk:{default}:health-due", 0, -1).Val(), " ") }
		kit.OK(t, f.report("a1", n, idleSession(id)))
		kit.OK(t, f.report("a1", n, idleSession(other)))
		if due() != other {
			t.Errorf("%q are looked at, want %q", due(), other)
		}
		_, err := f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		f.JumpStoreTime(t, 3*time.Minute)
		f.judge(t) // before a chore has ended the sessions of the agent
		if due() != "" {
			t.Errorf("%q are looked at", due())
		}
		if got := f.healthEvents(t); len(got) > 0 {
			t.Errorf("events %q", got)
		}
	})
}
