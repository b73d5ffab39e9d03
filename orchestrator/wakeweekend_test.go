package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The weekend is that of 26 March 2000. Clocks were set forward in Berlin on Sunday at 01:00 UTC, and back in
// Sydney on Saturday at 16:00 UTC.
var (
	weekendBegins = time.Date(2000, 3, 24, 18, 0, 0, 0, time.UTC) // Friday
	weekendEnds   = time.Date(2000, 3, 27, 6, 0, 0, 0, time.UTC)  // Monday
)

// span is a time from an instant up to another one, in UTC.
type span struct{ from, to string }

func (s span) has(at time.Time) bool {
	const layout = "Mon 2 15:04"
	clock := func(text string) time.Time {
		t, err := time.Parse(layout, text)
		if err != nil {
			panic(err)
		}
		return time.Date(2000, 3, t.Day(), t.Hour(), t.Minute(), 0, 0, time.UTC)
	}
	return !at.Before(clock(s.from)) && at.Before(clock(s.to))
}

type weekendPolicy struct {
	name, preferences string
	allowed           []span
}

// check compares a decision with the table. The session is of another name, so a wake that the windows allow
// is refused for that.
func (p weekendPolicy) check(t *testing.T, d picket.WakeDecision) {
	t.Helper()
	at, want := time.UnixMilli(int64(d.At)).UTC(), picket.WakeReasonQuietWindow
	for _, s := range p.allowed {
		if s.has(at) {
			want = picket.WakeReasonSessionNotFound
		}
	}
	if d.Reason != want {
		t.Errorf("%s at %s: %s, want %s", p.name, at, d.Reason, want)
	}
}

// weekendPolicies are policies, with the times of the weekend at which wakes are allowed, worked out by hand.
var weekendPolicies = []weekendPolicy{
	{"berlin-office", `active_hours: [{timezone: Europe/Berlin, start: "08:00", end: "20:00"}]`, []span{
		{"Fri 24 18:00", "Fri 24 19:00"},
		{"Sat 25 07:00", "Sat 25 19:00"},
		{"Sun 26 06:00", "Sun 26 18:00"},
		{"Mon 27 06:00", "Mon 27 18:00"},
	}},
	{"berlin-quiet", `quiet_windows: [{timezone: Europe/Berlin, start: "01:30", end: "02:30"}]`, []span{
		{"Fri 24 18:00", "Sat 25 00:30"},
		{"Sat 25 01:30", "Sun 26 00:30"},
		{"Sun 26 01:00", "Sun 26 23:30"}, // the half hour after 02:00 is left out
		{"Mon 27 00:30", "Mon 27 07:00"},
	}},
	{"sydney-quiet", `quiet_windows: [{timezone: Australia/Sydney, start: "01:30", end: "02:30"}]`, []span{
		{"Fri 24 18:00", "Sat 25 14:30"},
		{"Sat 25 15:30", "Sat 25 16:00"}, // the half hour from 02:00 comes twice
		{"Sat 25 16:30", "Sun 26 15:30"},
		{"Sun 26 16:30", "Mon 27 07:00"},
	}},
	{"both", `active_hours: [{timezone: Australia/Sydney, start: "22:00", end: "06:00"}]
  quiet_windows: [{timezone: Europe/Berlin, start: "18:00", end: "20:00"}]`, []span{
		{"Fri 24 19:00", "Fri 24 19:00"},
		{"Sat 25 11:00", "Sat 25 17:00"},
		{"Sat 25 19:00", "Sat 25 20:00"},
		{"Sun 26 12:00", "Sun 26 16:00"},
		{"Sun 26 18:00", "Sun 26 20:00"},
	}},
}

// Each decision of a weekend in which clocks are changed is that of a table made by hand.
func TestWakesFollowAWeekendWithChangedClocks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, id := f.sessionAgent(t, "a1"), newSessionID()
		for _, p := range weekendPolicies {
			f.mustWritePolicy(t, p.name, "---\npreferences:\n  "+p.preferences+"\n---\n")
		}
		for at := weekendBegins; at.Before(weekendEnds); at = at.Add(5 * time.Minute) {
			instant := picket.InstantOf(at)
			for _, p := range weekendPolicies {
				d, err := f.Wake(f.Ctx, kit.OtherOperator, p.name,
					picket.WakeRequest{SessionID: id, DryRun: true, At: &instant})
				kit.OK(t, err)
				p.check(t, d)
			}
		}
	})
}

// onTheVirtualClock runs a test that takes days.
func onTheVirtualClock(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.Close()
		f.Virtual = true
		test(t, f)
	})
}

// weekendFleet has agents that keep many idle sessions of ann.
type weekendFleet struct {
	*fixture
	sessions map[string][]picket.SessionReport // by agent
	of       map[string]int64                  // incarnations
	cost     string                            // dollars of a call of a model with each wake; empty: none is made
}

// newWeekendFleet registers the agents, and reports their sessions.
func (f *fixture) newWeekendFleet(t *testing.T, agents, sessionsOfEach int) *weekendFleet {
	t.Helper()
	fleet := &weekendFleet{f, map[string][]picket.SessionReport{}, map[string]int64{}, ""}
	for i := range agents {
		id := fmt.Sprint("a", i+1)
		fleet.of[id] = f.sessionAgent(t, id)
		for range sessionsOfEach {
			fleet.sessions[id] = append(fleet.sessions[id], idleSession(newSessionID()))
		}
	}
	f.mustWritePolicy(t, "ann", wakePolicyText)
	return fleet
}

// spend lets the weekend pass with a cycle of the scheduler in each half hour, and counts the wakes that the
// sessions take.
func (f *weekendFleet) spend(t *testing.T, scheduler *orchestrator.Engine) (wakes int) {
	t.Helper()
	f.halfHour(t)
	for began := time.Now(); time.Since(began) <= 60*time.Hour; f.halfHour(t) {
		_, err := scheduler.WakeCycle(f.Ctx)
		kit.OK(t, err)
		for id := range f.sessions {
			wakes += f.takeWakes(t, id)
		}
	}
	return wakes
}

// pass moves both clocks on: that of the wall, and store time, which nobody ticks here.
func (f *weekendFleet) pass(t *testing.T, d time.Duration) {
	t.Helper()
	time.Sleep(d)
	f.JumpStoreTime(t, d)
}

// halfHour lets half an hour pass, in which the agents stay healthy.
func (f *weekendFleet) halfHour(t *testing.T) {
	t.Helper()
	for range 22 {
		f.pass(t, 80*time.Second)
		for id, n := range f.of {
			_, err := f.Heartbeat(f.Ctx, kit.Operator, id, picket.Heartbeat{Status: picket.AgentActive,
				ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
			kit.OK(t, err)
		}
	}
	for id, list := range f.sessions {
		kit.OK(t, f.report(id, f.of[id], list...))
	}
	f.pass(t, 40*time.Second)
}

// takeWakes answers the wakes of an agent at once.
func (f *weekendFleet) takeWakes(t *testing.T, id string) (wakes int) {
	t.Helper()
	got, err := f.PendingCommands(f.Ctx, kit.Operator, id, picket.PendingQuery{Incarnation: f.of[id]})
	kit.OK(t, err)
	for _, c := range got.Sessions {
		for _, state := range []picket.PromptState{picket.PromptAccepted, picket.PromptAnswered} {
			kit.OK(t, kit.SendResult(f.Ctx, f, kit.Operator, id, c.CommandID,
				picket.CommandResult{Incarnation: f.of[id], State: state, CapabilityHash: capabilityOf(state)}))
			if state == picket.PromptAccepted && f.cost != "" {
				f.callModel(t, c.CommandID)
			}
		}
	}
	return len(got.Sessions)
}

// capabilityOf is the hash of the capability that an adapter makes when it accepts a wake.
func capabilityOf(state picket.PromptState) string {
	if state == picket.PromptAccepted {
		return strings.Repeat("c", 64)
	}
	return ""
}

// callModel calls a model in a wake, if its budget covers that.
func (f *weekendFleet) callModel(t *testing.T, prompt string) {
	t.Helper()
	held := picket.LeaseCredential{Namespace: "default", PromptID: prompt, Secret: capabilityOf(picket.PromptAccepted)}
	r, err := f.Reserve(f.Ctx, held, modelCall(f.cost))
	if err != nil {
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		return
	}
	f.MustSettle(t, kit.DoneSettlement(r, f.cost))
	_, err = f.CountSpending(f.Ctx)
	kit.OK(t, err)
}

// An idle fleet makes no call over a weekend. With when_idle it makes as many as its back-off allows.
func TestAnIdleFleetSleepsOverTheWeekend(t *testing.T) {
	rig.SkipShort(t)
	onTheVirtualClock(t, func(t *testing.T, f *fixture) {
		each := rig.Rounds(10, 50)
		fleet := f.newWeekendFleet(t, 2, each)
		if got := fleet.spend(t, f.Engine); got != 0 {
			t.Errorf("%d idle sessions were woken %d times", 2*each, got)
		}
	})
}

// Each session is woken after three times 30 minutes, three times 1 hour, three times 2 hours and from then on
// every 4 hours, which are 21 wakes in 60 hours.
func TestAFleetThatIsWokenIdleBacksOff(t *testing.T) {
	rig.SkipShort(t)
	onTheVirtualClock(t, func(t *testing.T, f *fixture) {
		sessions := rig.Rounds(4, 10)
		fleet := f.newWeekendFleet(t, 1, sessions)
		whenIdle := heartbeat.Defaults()
		whenIdle.WhenIdle = true
		second := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: t.TempDir(), Wake: whenIdle,
			Unmetered: map[string]bool{"ann": true}})
		if got := fleet.spend(t, second.Engine("default")); got != sessions*21 {
			t.Errorf("%d sessions were woken %d times", sessions, got)
		}
	})
}

// unchangedByWakes are the kinds of keys that a wake does not write.
func unchangedByWakes(key string) bool {
	for _, kind := range []string{"prompt:", "kept-prompts:", "kept-bytes:", "session-prompts:", "open-prompts:",
		"ready-prompts:", "session-wake:", "wake-due", "wake-cycle", "wakes:", "wakes-in-cycle:", "events", "meta",
		"sums", "asession:", "pulse",
		"env:prompt_", "env:wake:", "env:sessions:", "children:wake:", "children:sessions:", "houses"} {
		if strings.HasPrefix(strings.TrimPrefix(key, "pk:{default}:"), kind) {
			return false
		}
	}
	return true
}

// A wake changes no task, lease or token. All of the store is compared, apart from what is a wake's own.
func TestAWakeChangesNoTaskAndNoLease(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, n := f.wakeable(t)
		f.MustSubmit(t, picket.TaskSpec{})
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"})
		f.MustRenew(t, l)
		all := func() (text string) {
			keys, err := f.Raw.Keys(f.Ctx, "*").Result()
			kit.OK(t, err)
			slices.Sort(keys)
			for _, key := range keys {
				switch {
				case !unchangedByWakes(key):
				case f.Raw.Type(f.Ctx, key).Val() == "hash": // Redis moves the fields of a hash as it likes
					text += fmt.Sprintln(key, f.Raw.HGetAll(f.Ctx, key).Val())
				default:
					text += key + " " + f.Raw.Dump(f.Ctx, key).Val() + "\n"
				}
			}
			return text
		}
		before := all()
		if !strings.Contains(before, "deadlines") || !strings.Contains(before, "run:") {
			t.Fatal("the store has no lease")
		}
		d, err := f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		kit.OK(t, f.result(n, d.WakeID, picket.PromptAnswered, ""))
		if after := all(); after != before {
			t.Errorf("the store was\n%q\nand is\n%q", before, after)
		}
	})
}
