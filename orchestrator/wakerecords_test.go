package orchestrator_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The records and the events of a wake name no person, and have no text of a prompt, a policy or a message, no
// token and no absolute path.
func TestWakeRecordsNameNobody(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, n := f.wakeable(t)
		f.mustWritePolicy(t, "ann", "---\nsummary: canary-summary\npreferences: {context: {include: [self, task]}}\n---\n"+
			"canary-policy /home/canary\n")
		task := f.MustSubmit(t, picket.TaskSpec{Title: "canary-title"})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", WorkspaceRoot: "/srv/canary"})
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "canary-message"})
		kit.OK(t, err)
		done := make(chan picket.WakeDecision, 1)
		go func() {
			d, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			kit.OK(t, err)
			done <- d
		}()
		kit.OK(t, f.result(n, f.nextCommand(t, n).CommandID, picket.PromptAccepted, ""))
		d := <-done
		kit.OK(t, kit.SendResult(f.Ctx, f, kit.Operator, "a1", d.WakeID,
			picket.CommandResult{Incarnation: n, State: picket.PromptAnswered, Output: "canary-answer"}))
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonCooldownActive)
		rows, err := f.Raw.ZRange(f.Ctx, "pk:{default}:wakes:ann", 0, -1).Result()
		kit.OK(t, err)
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventSessionWaking,
			picket.EventSessionWoken}, Limit: 100})
		kit.OK(t, err)
		text := strings.Join(rows, "\n")
		for _, e := range page.Events {
			text += "\n" + e.Actor + " " + string(e.Data)
		}
		if len(rows) != 2 || len(page.Events) != 2 {
			t.Errorf("%d rows, %d events", len(rows), len(page.Events))
		}
		for _, canary := range []string{"canary", kit.OtherOperator.Actor, l.LeaseToken.Reveal(), "pks_", "/srv",
			task.TaskID} {
			if strings.Contains(text, canary) {
				t.Errorf("the records of a wake have %q:\n%s", canary, text)
			}
		}
	})
}

// A wake that no adapter has accepted is not given back to a later cycle, in which others were sent.
func TestAWakeIsGivenBackToItsOwnCycle(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		other := newSessionID()
		kit.OK(t, f.report("a1", n, idleSession(id), idleSession(other)))
		ctx, kill := context.WithCancel(f.Ctx)
		left := make(chan error, 2)
		for _, session := range []string{id, other} {
			go func() {
				_, err := f.Wake(ctx, kit.OtherOperator, "ann", picket.WakeRequest{SessionID: session})
				left <- err
			}()
			kit.WaitFor(t, "the wake is under way", func() bool {
				page, err := f.SessionPrompts(f.Ctx, session, 0, 1)
				kit.OK(t, err)
				return len(page.Prompts) == 1
			})
			if session == id {
				f.JumpStoreTime(t, 30*time.Second)
			}
		}
		_, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
		kit.OK(t, err)
		if got := f.Raw.HGet(f.Ctx, "pk:{default}:wakes-in-cycle:ann:"+kit.Operator.Actor, "count").Val(); got != "1" {
			t.Errorf("%s wakes count", got)
		}
		kill()
		for range 2 {
			<-left
		}
	})
}

// A wake that was decided before the last one of a cycle went out is decided again.
func TestACycleHasNoMoreWakesThanAllowed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		facts, err := f.Records().Run(f.Ctx, "wake_facts", "ann", id, kit.SessionLimitsArgument, "")
		kit.OK(t, err)
		args := make([]any, 24)
		for i := range args {
			args[i] = "1"
		}
		args[0], args[1], args[2], args[4], args[21] = "ann", id, "", "prompt_01JZZZZZZZZZZZZZZZZZZZZZZZ", 0
		args[22], args[23] = kit.SessionLimitsArgument, ""
		list := facts.([]any)
		for i := 0; i < len(list); i += 2 {
			if list[i] == "stamp" {
				args[13] = list[i+1]
			}
		}
		_, err = f.Records().Run(f.Ctx, "record_wake", args...)
		kit.OK(t, err)
		if got := f.pendingWakes(t, n); len(got) != 0 {
			t.Errorf("commands %+v", got)
		}
	})
}
