package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverNotices takes what events say about long and short texts, with and without a timeout.
func coverNotices(t *testing.T, f *fixture) {
	labels, hour := map[string]string{}, 3600
	for i := range 9 {
		labels[fmt.Sprint("l", i)] = "v"
	}
	_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: strings.Repeat("é", 500), Labels: labels, Assignee: "ada",
		TimeoutSeconds: &hour})
	idle := 1.0
	kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{
		{Type: picket.EventAgentTimeoutWarning, Containment: "group"},
		{Type: picket.EventRunStalled, IdleSeconds: &idle},
	}))
	// The adapter sets a timeout, and another one later. A run whose task has none keeps it.
	f.MustRegister(t, picket.Registration{AgentID: "named", Name: "Ada"})
	f.MustSubmit(t, picket.TaskSpec{Title: "a task", Agent: "named"})
	leases, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: "named", PinnedOnly: true})
	kit.OK(t, err)
	limited := f.OpenLease(t, leases[0])
	for _, seconds := range []float64{0, 90, 90, 100} {
		kit.OK(t, f.RunEvents(f.Ctx, limited, []picket.RunEvent{{
			Type:           picket.EventAgentHeartbeat,
			LauncherFields: picket.LauncherFields{ElapsedSeconds: &idle, TimeoutSeconds: &seconds},
		}}))
	}
	kit.OK(t, f.RunEvents(f.Ctx, limited, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: &idle}}))
	_, err = f.FindLeases(f.Ctx, picket.LeaseQuery{Order: picket.LeasesByNeed})
	kit.OK(t, err)
	_, err = f.Cancel(f.Ctx, kit.Operator, limited.TaskID, "r")
	kit.OK(t, err)
	_, err = f.Deregister(f.Ctx, kit.AgentOwner, "named", nil)
	kit.OK(t, err)
	_, err = f.Delegate(f.Ctx, h, "k1", picket.Subtask{Title: "a part"}) // inherits the assignee
	kit.OK(t, err)
	_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Kind: picket.HandoffBudget, Question: "More?"})
	kit.OK(t, err)
	page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{Assignee: "ada"})
	kit.OK(t, err)
	hid := page.Handoffs[0].HandoffID
	for range 2 {
		_, err = f.Claim(f.Ctx, kit.Operator, hid, picket.ClaimRequest{Assignee: "ben"})
		kit.OK(t, err)
	}
	for _, name := range []string{"ada", "ben"} {
		_, err = f.Handoffs(f.Ctx, picket.HandoffQuery{Assignee: name})
		kit.OK(t, err)
	}
	_, err = f.Cancel(f.Ctx, kit.Operator, h.TaskID, "r")
	kit.OK(t, err)
}

// coverReminders takes rules that select and that do not, damaged queues and a clock that was
// set back.
func coverReminders(t *testing.T, f *fixture) {
	ask := func(spec picket.TaskSpec) (picket.LeaseCredential, string) {
		_, h := f.SubmitAndLease(t, spec)
		got, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
		kit.OK(t, err)
		return h, got.HandoffID
	}
	age := func(set string, members ...string) {
		for _, m := range members {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:"+set, redis.Z{Score: 1e6, Member: m}).Err())
		}
	}
	spec := picket.TaskSpec{Title: "a task", Labels: map[string]string{"team": "a"}}
	_, first := ask(spec)
	_, second := ask(picket.TaskSpec{Title: "a task"})
	below, third := ask(spec)
	_, r := f.SubmitAndLease(t, spec)
	_, err := f.Complete(f.Ctx, r, picket.Completion{Output: picket.RawJSON(`1`)})
	kit.OK(t, err)
	_, other := f.SubmitAndLease(t, spec)
	age("handoffs:open", first, second, third, kit.NoHelp)
	age("in-review", r.TaskID, other.TaskID) // one is not in review
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:handoff:"+kit.NoHelp, "state", "answered").Err())
	// The tree of the third one was cancelled.
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:task:"+below.TaskID, "root", kit.NoTask, "parent", kit.NoTask).Err())
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:tree:"+kit.NoTask, kit.NoTask, "1 key_test").Err())
	remind := func(limit int, rules ...picket.ReminderRule) {
		t.Helper()
		for n := limit; n == limit; {
			n, err = f.RemindPeople(f.Ctx, rules, limit)
			kit.OK(t, err)
		}
	}
	remind(1, picket.ReminderRule{Name: "all", After: time.Hour},
		picket.ReminderRule{Name: "label", After: time.Hour, Label: "team=a"},
		picket.ReminderRule{Name: "role", After: time.Hour, Role: "nobody"})
	back := fmt.Sprint("1 ", time.Now().Add(24*time.Hour).UnixMilli(), " ", first) // the clock was set back
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:reminders", "handoff all  ", back).Err())
	remind(1, picket.ReminderRule{Name: "all", After: time.Hour})
	kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:reminders", "handoff all  ", "review all  ").Err())
	ask(spec)                                                     // has not waited
	remind(1, picket.ReminderRule{Name: "all", After: time.Hour}) // finds what was reminded of before
	for i := range 35 {
		remind(100, picket.ReminderRule{Name: fmt.Sprint("r", i), After: time.Hour})
	}
	kit.OK(t, f.Raw.HDel(f.Ctx, "pk:{default}:task:"+below.TaskID, "root", "parent").Err())
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:tree:"+kit.NoTask, "pk:{default}:handoff:"+kit.NoHelp,
		"pk:{default}:reminders").Err())
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:handoffs:open", kit.NoHelp).Err())
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:in-review", other.TaskID).Err())
	f.CancelAll(t)
}
