package branches

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverPushes takes every way of push configurations.
func coverPushes(t *testing.T, f *fixture) {
	f.CancelAll(t)
	client := kit.WithKey("key_push")
	config := func(taskID, id string) picket.PushConfig {
		return picket.PushConfig{TaskID: taskID, ID: id, URL: "https://hooks.test/"}
	}
	put := func(taskID, id string) error {
		_, err := f.PutPushConfig(f.Ctx, client, config(taskID, id))
		return err
	}
	begin := config("", "c0")
	spec := picket.TaskSpec{Title: "pushed", Role: "pushed", Review: picket.ReviewByNone,
		Client: &picket.ClientTask{Role: "pushed", ContextID: "c1", MessageID: "m1", Push: &begin}}
	task, err := f.Submit(f.Ctx, client, spec)
	kit.OK(t, err)
	kit.Refused(t, put(kit.NoTask, "c1"), picket.CodeNotFound)
	for i := range picket.MaxTaskPushes - 1 {
		kit.OK(t, put(task.TaskID, fmt.Sprint("c", i+1)))
	}
	kit.Refused(t, put(task.TaskID, "c9"), picket.CodeQuota)
	for _, id := range []string{"c4", "c3", "c2", "c1", "c1"} {
		kit.OK(t, f.DeletePushConfig(f.Ctx, client, task.TaskID, id))
	}
	kit.Refused(t, f.DeletePushConfig(f.Ctx, client, kit.NoTask, "c1"), picket.CodeNotFound)
	for i := range picket.MaxClientPushes {
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:client-pushes:key_push", kit.ZMember(1, fmt.Sprint("x", i))).Err())
	}
	kit.Refused(t, put(task.TaskID, "c9"), picket.CodeQuota)
	_, err = f.Submit(f.Ctx, client, spec)
	kit.Refused(t, err, picket.CodeQuota)
	for i := range picket.MaxClientPushes {
		kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:client-pushes:key_push", fmt.Sprint("x", i)).Err())
	}
	_, err = f.PushConfigs(f.Ctx, client, task.TaskID)
	kit.OK(t, err)
	_, err = f.PushConfigs(f.Ctx, client, kit.NoTask)
	kit.Refused(t, err, picket.CodeNotFound)
	_, err = f.PushConfig(f.Ctx, client, task.TaskID, "c0")
	kit.OK(t, err)
	_, err = f.PushConfig(f.Ctx, client, task.TaskID, "none")
	kit.Refused(t, err, picket.CodeNotFound)
	f.coverPushTurns(t, task.TaskID, put)
	_, err = f.Submit(f.Ctx, client, spec)
	kit.OK(t, err)
	f.coverPushOfARevokedKey(t, spec)
	f.CancelAll(t)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:key_push", "revoked", 1, "expires", 0).Err())
	_, err = f.TakePushTurn(f.Ctx, "after the key", 0)
	kit.OK(t, err)
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:key:key_push").Err())
	f.MoveStoreTime(t, time.Second)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Millisecond}, 1000)
	kit.OK(t, err)
}

// coverPushTurns takes every way of a claimed configuration.
func (f *fixture) coverPushTurns(t *testing.T, taskID string, put func(taskID, id string) error) {
	t.Helper()
	delays := map[picket.PushOutcome]time.Duration{picket.PushFailed: time.Minute}
	n := 0
	claim := func() picket.PushTurn {
		t.Helper()
		n++
		turn, err := f.TakePushTurn(f.Ctx, fmt.Sprint("push_", n), 0)
		kit.OK(t, err)
		return turn
	}
	step := func(turn picket.PushTurn, to int64, outcome picket.PushOutcome) error {
		_, err := f.AdvancePush(f.Ctx, picket.PushStep{TaskID: taskID, ID: "c0", TurnID: turn.TurnID,
			From: turn.Cursor, To: to, Outcome: outcome, Delay: delays[outcome]})
		return err
	}
	claim() // nothing to be sent
	held := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "pushed"}))
	_, err := f.EmitStatus(f.Ctx, held, "", picket.StatusMessage{Message: "half"})
	kit.OK(t, err)
	turn := claim()
	again, err := f.TakePushTurn(f.Ctx, turn.TurnID, 0)
	kit.OK(t, err)
	if again.ID != "c0" {
		t.Fatalf("the same claim: %+v", again)
	}
	claim() // it is claimed
	f.CallTwice(t, func() error { return step(turn, 1, picket.PushTaken) })
	kit.Refused(t, step(turn, 2, picket.PushReleased), picket.CodeStateConflict) // from where it was
	turn.Cursor = 1
	f.CallTwice(t, func() error { return step(turn, 1, picket.PushReleased) })
	turn = claim()
	f.CallTwice(t, func() error { return step(turn, 1, picket.PushFailed) })
	claim()                      // it waits
	kit.OK(t, put(taskID, "c0")) // replaced, it is due at once
	turn = claim()
	kit.OK(t, step(turn, 2, picket.PushTaken))
	kit.OK(t, put(taskID, "c0"))
	_, err = f.RequestHelp(f.Ctx, held, picket.HelpRequest{Question: "Which?"})
	kit.OK(t, err)
	turn = claim()
	kit.OK(t, step(turn, turn.Cursor, picket.PushGone))
	kit.Refused(t, step(turn, turn.Cursor, picket.PushGone), picket.CodeNotFound)
	kit.OK(t, put(taskID, "c0"))
	asked, err := f.Task(f.Ctx, taskID)
	kit.OK(t, err)
	_, err = f.Answer(f.Ctx, kit.Operator, asked.Handoff.HandoffID,
		picket.AnswerRequest{Answer: picket.RawJSON(`"it"`)})
	kit.OK(t, err)
	for n := range 20 {
		kit.OK(t, step(claim(), 0, picket.PushFailed))
		f.JumpStoreTime(t, 61*time.Second)
		if n == 0 {
			f.JumpStoreTime(t, 24*time.Hour)
		}
	}
	kit.OK(t, put(taskID, "c0"))
	held = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "pushed"}))
	_, err = f.Complete(f.Ctx, held, picket.Completion{Output: picket.RawJSON(`"x"`), Summary: "done"})
	kit.OK(t, err)
	turn = claim()
	kit.OK(t, step(turn, turn.Cursor+int64(len(turn.Updates)), picket.PushTaken)) // the end of the task
}

// coverPushOfARevokedKey deletes a configuration whose client has no key any more.
func (f *fixture) coverPushOfARevokedKey(t *testing.T, spec picket.TaskSpec) {
	t.Helper()
	key := f.MustCreateClientKey(t, spec.Role)
	task, err := f.Submit(f.Ctx, kit.WithKey(key.KeyID), spec)
	kit.OK(t, err)
	f.MustRevokeKey(t, key.KeyID, nil)
	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "over")
	kit.OK(t, err)
	turn, err := f.TakePushTurn(f.Ctx, "push_revoked", 0)
	kit.OK(t, err)
	if turn.ID != "" {
		t.Errorf("a client without a key is told %+v", turn.Updates)
	}
}
