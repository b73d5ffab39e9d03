package heartbeat

import (
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// plan writes when a session is woken, as "occasion due", with what speaks against it.
func plan(s Schedule, now picket.Instant) string {
	if s.DueAt.IsZero() {
		return "never"
	}
	text := string(s.Occasion) + " " + s.DueAt.Time().Format("02T15:04:05")
	if s.Unchanged {
		text += " unchanged"
	}
	if s.BackingOff {
		text += " backing off"
	}
	if s.Due(now) {
		text += " now"
	}
	return text
}

func TestPlans(t *testing.T) {
	now := instant(t, "2026-05-01T12:00:00Z")
	minute := picket.Instant(60_000)
	for _, c := range []struct {
		what, source string
		change       func(*ScheduleFacts)
		want         string
	}{
		{"half an hour after it was reported", plain, func(f *ScheduleFacts) { f.Since = now - 10*minute },
			"time 01T12:20:00"},
		{"after its last wake", plain, func(f *ScheduleFacts) { f.LastWake = now - 5*minute }, "time 01T12:25:00"},
		{"after its last activity", plain, func(f *ScheduleFacts) { f.LastActivity = now - minute },
			"time 01T12:29:00"},
		{"a longer interval of the file", own2h, func(f *ScheduleFacts) { f.LastWake = now - 30*minute },
			"time 01T13:30:00"},
		{"a shorter one", "---\npreferences: {min_interval: 10m}\n---\n", func(f *ScheduleFacts) { f.LastWake = now },
			"time 01T12:30:00"},
		{"exactly due", plain, func(f *ScheduleFacts) { f.LastWake = now - 30*minute }, "time 01T12:00:00 now"},
		{"overdue for a day", plain, func(f *ScheduleFacts) { f.LastWake = now - 24*60*minute },
			"time 30T12:30:00 now"},
		{"overdue and unchanged", plain, func(f *ScheduleFacts) { f.LastWake, f.Changed = now-60*minute, false },
			"time 01T11:30:00 unchanged"},
		{"left out lately", plain, func(f *ScheduleFacts) {
			f.LastWake, f.LastUnchanged, f.Changed = now-60*minute, now-10*minute, false
		}, "time 01T12:20:00"},
		{"unchanged, when_idle", plain, func(f *ScheduleFacts) {
			f.LastWake, f.Changed, f.Settings.WhenIdle = now-60*minute, false, true
		}, "time 01T11:30:00 now"},
		{"a message", plain, func(f *ScheduleFacts) { f.LastWake, f.News.Messages = now-5*minute, 1 },
			"message 01T12:00:00 now"},
		{"a message to one that was never woken", plain,
			func(f *ScheduleFacts) { f.News.Messages, f.Changed = 1, false }, "message 01T12:00:00 now"},
		{"a message in the cooldown", plain, func(f *ScheduleFacts) { f.LastWake, f.News.Messages = now-minute/2, 1 },
			"message 01T12:00:30"},
		{"a message in the interval of the file", own2h,
			func(f *ScheduleFacts) { f.LastWake, f.News.Messages = now-30*minute, 1 }, "message 01T13:30:00"},
		{"a hand-off", plain, func(f *ScheduleFacts) { f.News.AnsweredHandoffs = 1 }, "handoff 01T12:00:00 now"},
		{"a subtask", plain, func(f *ScheduleFacts) { f.News.SettledSubtasks = 1 }, "subtask 01T12:00:00 now"},
		{"work", plain, func(f *ScheduleFacts) { f.News.UnattendedWork = 1 }, "work 01T12:00:00 now"},
		{"a message of an agent", plain,
			func(f *ScheduleFacts) { f.News = News{AgentMessages: 1, AgentMessageWakes: 3} },
			"message 01T12:00:00 now"},
		{"the fifth in an hour", plain, func(f *ScheduleFacts) {
			f.LastWake, f.News.AgentMessages, f.News.AgentMessageWakes = now-15*minute, 9, 4
		}, "time 01T12:15:00"},
		{"two wakes without a call", plain, func(f *ScheduleFacts) { f.LastWake, f.IdleWakes = now, 2 },
			"time 01T12:30:00"},
		{"three", plain, func(f *ScheduleFacts) { f.LastWake, f.IdleWakes = now, 3 }, "time 01T13:00:00 backing off"},
		{"six", plain, func(f *ScheduleFacts) { f.LastWake, f.IdleWakes = now, 6 }, "time 01T14:00:00 backing off"},
		{"nine", plain, func(f *ScheduleFacts) { f.LastWake, f.IdleWakes = now, 9 }, "time 01T16:00:00 backing off"},
		{"a thousand", plain, func(f *ScheduleFacts) { f.LastWake, f.IdleWakes = now, 1000 },
			"time 01T16:00:00 backing off"},
		{"news end no back-off", plain, func(f *ScheduleFacts) {
			f.LastWake, f.IdleWakes, f.News.Messages = now-5*minute, 9, 1
		}, "message 01T12:00:00 backing off now"},
		{"a long cooldown", plain, func(f *ScheduleFacts) {
			f.LastWake, f.Settings.WakeCooldown = now-30*minute, time.Hour
		}, "time 01T12:30:00"},
		{"quiet now", quiet, func(f *ScheduleFacts) { f.LastWake = now - 30*minute }, "time 01T13:00:00"},
		{"quiet when it was due and now", quiet, func(f *ScheduleFacts) { f.LastWake = now - 24*60*minute },
			"time 01T13:00:00"},
		{"due in the next quiet window", quiet, func(f *ScheduleFacts) { f.Since = now - minute }, "time 01T13:00:00"},
		{"never allowed", never, func(f *ScheduleFacts) {}, "never"},
		{"no policy", plain, func(f *ScheduleFacts) { f.Policy = nil }, "never"},
		{"invalid", "# Tools", func(f *ScheduleFacts) {}, "never"},
		{"off in the file", "---\nenabled: false\n---\n", func(f *ScheduleFacts) {}, "never"},
		{"off", plain, func(f *ScheduleFacts) { f.Settings.Enabled = false }, "never"},
	} {
		p, _ := parse(c.source)
		f := ScheduleFacts{Now: now, Settings: Defaults(), Policy: p, Since: now - 7*24*60*minute, Changed: true}
		c.change(&f)
		s := Plan(f)
		if got := plan(s, now); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if !s.DueAt.IsZero() && !slices.Contains(Occasions(), s.Occasion) {
			t.Errorf("%s: unknown occasion %s", c.what, s.Occasion)
		}
	}
}

// A scheduler that looks every 30 seconds delivers an overdue wake once, and then keeps the interval.
func TestOverdueWakesAreDeliveredOnce(t *testing.T) {
	p, _ := parse(plain)
	now := instant(t, "2026-05-01T12:00:00Z")
	f := ScheduleFacts{Settings: Defaults(), Policy: p, LastWake: now - 24*3600*1000, Changed: true}
	var wakes []string
	for f.Now = now; f.Now <= now+65*60_000; f.Now += 30_000 {
		if Plan(f).Due(f.Now) {
			wakes = append(wakes, f.Now.Time().Format("15:04"))
			f.LastWake = f.Now
		}
	}
	if want := []string{"12:00", "12:30", "13:00"}; !slices.Equal(wakes, want) {
		t.Errorf("wakes at %v, want %v", wakes, want)
	}
}

// What is due is not refused for its interval, so the scheduler does not ask again and again.
func TestDueWakesPassTheInterval(t *testing.T) {
	for _, source := range []string{plain, own2h} {
		f := wakeable(t, source)
		f.Source = picket.WakeSourceScheduler
		for ago := picket.Instant(0); ago < 3*3600*1000; ago += 30_000 {
			f.LastWake = f.Now - ago
			s := Plan(ScheduleFacts{Now: f.Now, Settings: f.Settings, Policy: f.Policy, LastWake: f.LastWake,
				News: News{Messages: 1}})
			if d := Decide(f); s.Due(f.Now) != d.MayDeliver() {
				t.Fatalf("%d ms after the last wake: due %v, decision %s", ago, s.Due(f.Now), decision(d))
			}
		}
	}
}
