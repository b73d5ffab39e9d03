package kit

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/moves"
	"github.com/picket-dev/picket/orchestrator"
)

// SumActivity adds up the slots of the last hour.
func SumActivity(slots []picket.ActivitySlot) picket.ActivitySlot {
	sum := picket.ActivitySlot{Refused: map[picket.Code]int64{}}
	for _, s := range slots {
		sum.Ended, sum.Failed, sum.Asked = sum.Ended+s.Ended, sum.Failed+s.Failed, sum.Asked+s.Asked
		for code, n := range s.Refused {
			sum.Refused[code] += n
		}
	}
	return sum
}

// activityFromEvents is the activity of the hour up to now, counted from the event log.
func activityFromEvents(ctx context.Context, t *testing.T, e *orchestrator.Engine,
	now picket.Instant) map[picket.Instant]picket.ActivitySlot {
	t.Helper()
	slots := map[picket.Instant]picket.ActivitySlot{}
	for after := int64(0); ; {
		page, err := e.Events(ctx, picket.EventQuery{After: after, Limit: 1000})
		OK(t, err)
		for _, ev := range page.Events {
			after = ev.Seq
			at := ev.At - ev.At%picket.ActivitySlotMs
			s := slots[at]
			var said struct {
				State picket.TaskState `json:"state"`
				Code  picket.Code      `json:"code"`
				Count int64            `json:"count"`
			}
			OK(t, json.Unmarshal(ev.Data, &said))
			switch ev.Type {
			case picket.EventTaskReview, picket.EventTaskCompleted, picket.EventTaskFinished:
				s.Ended++
			case picket.EventLeaseFailed, picket.EventLeaseExpired, picket.EventLeaseReleased:
				s.Failed++
				if said.State == picket.TaskHandoff {
					s.Asked++
				}
			case picket.EventTaskHandoff:
				s.Asked++
			case picket.EventWriteRefused:
				if s.Refused == nil {
					s.Refused = map[picket.Code]int64{}
				}
				s.Refused[said.Code] += said.Count
			default:
				continue
			}
			if now/picket.ActivitySlotMs-ev.At/picket.ActivitySlotMs < picket.ActivitySlots {
				slots[at] = s
			}
		}
		if len(page.Events) == 0 {
			return slots
		}
	}
}

// CheckActivity holds the activity counters against the log of events.
func CheckActivity(ctx context.Context, t *testing.T, e *orchestrator.Engine) picket.ActivitySlot {
	t.Helper()
	s, err := e.Stats(ctx)
	OK(t, err)
	want := activityFromEvents(ctx, t, e, s.LastTick+picket.Instant(s.SinceTickMs))
	for i, slot := range s.Activity {
		if i > 0 && slot.At <= s.Activity[i-1].At {
			t.Errorf("slot %v comes after %v", slot.At, s.Activity[i-1].At)
		}
		w := want[slot.At]
		w.At = slot.At
		if got, should := fmt.Sprintf("%+v", slot), fmt.Sprintf("%+v", w); got != should {
			t.Errorf("the counters have %s, the log %s", got, should)
		}
	}
	if len(s.Activity) != len(want) {
		t.Errorf("the counters have %d slots, the log %d: %+v, %+v", len(s.Activity), len(want), s.Activity, want)
	}
	return SumActivity(s.Activity)
}

// BelongsInAudit reports whether the audit log has to have a copy of the event. No agent
// of the model is named like a key.
func BelongsInAudit(ev picket.Event) bool {
	rule := moves.Audited[ev.Type]
	return rule == moves.AuditAlways || rule == moves.AuditPerson && strings.HasPrefix(ev.Actor, "key_")
}

// AuditDiffers says how the audit log differs from what the event log says it has
// to be. Neither may have been shortened by retention.
func AuditDiffers(ctx context.Context, raw redis.UniversalClient) string {
	events, err := raw.XRange(ctx, "pk:{default}:events", "-", "+").Result()
	if err != nil {
		return err.Error()
	}
	if events, err = EventEntries(events); err != nil {
		return err.Error()
	}
	copies, err := raw.XRange(ctx, "pk:{default}:audit", "-", "+").Result()
	if err != nil {
		return err.Error()
	}
	want := slices.DeleteFunc(events, func(row redis.XMessage) bool {
		return !BelongsInAudit(picket.Event{
			Type:  fmt.Sprint(row.Values["type"]),
			Actor: fmt.Sprint(row.Values["actor"]),
		})
	})
	for i := range max(len(want), len(copies)) {
		if i == len(want) || i == len(copies) || !reflect.DeepEqual(copies[i], want[i]) {
			return fmt.Sprintf("of %d audited events the audit log has %d, and number %d differs: %v, %v", len(want),
				len(copies), i,
				copies[min(i, len(copies)):min(i+1, len(copies))], want[min(i, len(want)):min(i+1, len(want))])
		}
	}
	return ""
}

// AuditLog reads the whole audit log.
func (f *Fixture) AuditLog(t *testing.T, types ...string) []picket.Event {
	t.Helper()
	var all []picket.Event
	for q := (picket.EventQuery{Audit: true, Limit: 1000, Types: types}); ; q.After = all[len(all)-1].Seq {
		page, err := f.Events(f.Ctx, q)
		OK(t, err)
		if len(page.Events) == 0 {
			return all
		}
		all = append(all, page.Events...)
	}
}

// CheckInvariants runs a whole pass of the invariant scanner, which may find nothing.
// Every random test ends with it, so the scanner raises no false alarms.
func CheckInvariants(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *orchestrator.Engine) {
	t.Helper()
	found, err := InspectAll(context.Background(), e, false)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	if len(found) > 0 {
		t.Fatalf("%d invariants are violated, the first: %+v", len(found), found[0])
	}
}

// InspectAll inspects a namespace from its beginning to its end.
func InspectAll(ctx context.Context, e *orchestrator.Engine, repair bool) ([]picket.Violation, error) {
	var all []picket.Violation
	for cursor := ""; ; {
		part, err := e.Inspect(ctx, Operator, picket.InspectRequest{Repair: repair, Cursor: cursor})
		if err != nil {
			return all, err
		}
		all = append(all, part.Violations...)
		if cursor = part.Next; cursor == "" {
			return all, nil
		}
	}
}

// FencedEvents are written by what the holder of a lease does.
var FencedEvents = map[string]bool{
	picket.EventTaskProgress:  true,
	picket.EventTaskArtifact:  true,
	picket.EventTaskStatus:    true,
	picket.EventTaskReview:    true,
	picket.EventTaskCompleted: true,
	picket.EventTaskHandoff:   true,
	picket.EventLeaseReleased: true,
	picket.EventLeaseFailed:   true,
	picket.EventRunLaunched:   true,
}

var EveryEvent = picket.WebhookSpec{
	Name:  "ops",
	URL:   "https://hooks.example.test/a/secret",
	Types: []string{picket.EventTaskSubmitted},
}
