package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// pushTo is a push configuration of a task with secrets.
func pushTo(taskID, id string) picket.PushConfig {
	return picket.PushConfig{TaskID: taskID, ID: id, URL: picket.Secret("https://hooks.test/path-" + id),
		Token: "tok-" + picket.Secret(id), Scheme: "Bearer", Credentials: "cred-" + picket.Secret(id)}
}

// pushed submits a task of the client key_a with one push configuration.
func (f *fixture) pushed(t *testing.T) picket.Task {
	t.Helper()
	task := f.submitAs(t, "key_a", clientTask("builder", "c1"))
	f.putPush(t, pushTo(task.TaskID, "c1"))
	return task
}

func (f *fixture) putPush(t *testing.T, c picket.PushConfig) {
	t.Helper()
	_, err := f.PutPushConfig(f.Ctx, kit.WithKey("key_a"), c)
	kit.OK(t, err)
}

// claimPush claims what is due, at once.
func (f *fixture) claimPush(t *testing.T, claim string) picket.PushTurn {
	t.Helper()
	turn, err := f.TakePushTurn(f.Ctx, claim, 0)
	kit.OK(t, err)
	return turn
}

// step advances a configuration under a claim.
func (f *fixture) step(turn picket.PushTurn, to int64, outcome picket.PushOutcome) (picket.PushState, error) {
	s := picket.PushStep{TaskID: turn.TaskID, ID: turn.ID, TurnID: turn.TurnID, From: turn.Cursor, To: to,
		Outcome: outcome}
	if outcome == picket.PushFailed {
		s.Delay = time.Minute
	}
	return f.AdvancePush(f.Ctx, s)
}

func (f *fixture) mustStep(t *testing.T, turn picket.PushTurn, to int64, outcome picket.PushOutcome,
	want picket.PushState) {
	t.Helper()
	got, err := f.step(turn, to, outcome)
	kit.OK(t, err)
	if got != want {
		t.Errorf("%s to %d leaves it %s, want %s", outcome, to, got, want)
	}
}

// updates are the updates of a turn in words.
func updates(turn picket.PushTurn) (words []string) {
	for _, u := range turn.Updates {
		switch {
		case u.Emission > 0:
			words = append(words, fmt.Sprint("emission ", u.Emission))
		case u.Result:
			words = append(words, "result")
		default:
			words = append(words, string(u.From)+" "+string(u.To))
		}
	}
	return words
}

// wantNoPush expects that nothing of push configurations is left in the store.
func (f *fixture) wantNoPush(t *testing.T) {
	t.Helper()
	keys, err := f.Raw.Keys(f.Ctx, "pk:{default}:*push*").Result()
	kit.OK(t, err)
	more, err := f.Raw.Keys(f.Ctx, "pk:{default}:updates:*").Result()
	kit.OK(t, err)
	for _, key := range append(keys, more...) {
		if !strings.HasPrefix(key, "pk:{default}:push-claim:") { // which ends with its claim
			t.Errorf("%s is left", key)
		}
	}
}

// A configuration is told each change of its task and each emission in order, from its creation to the end of the task.
func TestUpdatesOfATaskAreKeptForPush(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		held := f.pushLease(t, "builder")
		_, err := f.EmitStatus(f.Ctx, held, "", picket.StatusMessage{Message: "half"})
		kit.OK(t, err)
		f.putPush(t, pushTo(task.TaskID, "late"))
		_, err = f.RequestHelp(f.Ctx, held, picket.HelpRequest{Question: "Which?", Options: []string{"a", "b"}})
		kit.OK(t, err)
		asked, err := f.Task(f.Ctx, task.TaskID)
		kit.OK(t, err)
		option := "a"
		_, err = f.Answer(f.Ctx, kit.Operator, asked.Handoff.HandoffID, picket.AnswerRequest{Option: &option})
		kit.OK(t, err)
		held = f.pushLease(t, "builder")
		_, err = f.Complete(f.Ctx, held, picket.Completion{Output: picket.RawJSON(`"x"`), Summary: "done"})
		kit.OK(t, err)
		want := map[string][]string{
			"c1": {"queued leased", "emission 1", "leased handoff", "handoff queued", "queued leased", "result",
				"leased completed"},
			"late": {"leased handoff", "handoff queued", "queued leased", "result", "leased completed"},
		}
		for _, claim := range []string{"one", "two"} {
			turn := f.claimPush(t, claim)
			if got := updates(turn); !slices.Equal(got, want[turn.ID]) {
				t.Errorf("%s is told %q, want %q", turn.ID, got, want[turn.ID])
			}
			if len(turn.Updates) == 0 {
				t.Fatal("nothing is told")
			}
			end := len(turn.Updates) - 1
			if last := turn.Updates[end]; last.Seq != 7 || last.At == 0 {
				t.Errorf("the last update is %+v", last)
			}
			for _, u := range turn.Updates {
				of := u.From == picket.TaskHandoff || u.To == picket.TaskHandoff
				if of != (u.Handoff != nil) || of && (u.Handoff.Question != "Which?" || len(u.Handoff.Options) != 2 ||
					u.Handoff.Kind != picket.HandoffQuestion || u.Handoff.HandoffID != asked.Handoff.HandoffID) {
					t.Errorf("the hand-off of %s %s is %+v", u.From, u.To, u.Handoff)
				}
			}
			if turn.URL.Reveal() != "https://hooks.test/path-"+turn.ID || turn.Token.Reveal() != "tok-"+turn.ID ||
				turn.Credentials.Reveal() != "cred-"+turn.ID || turn.Scheme != "Bearer" || turn.Sealed {
				t.Errorf("the turn has other secrets: %q", turn.URL.Reveal())
			}
			f.mustStep(t, turn, 7, picket.PushTaken, picket.PushDone)
		}
		f.wantNoPush(t)
	})
}

// pushLease leases the next task of a role.
func (f *fixture) pushLease(t *testing.T, role string) picket.LeaseCredential {
	t.Helper()
	return f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: role}))
}

// A late result of a superseded lease adds no update.
func TestALateResultIsNoUpdate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		held := f.pushLease(t, "builder")
		_, err := f.Expire(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		before := updates(f.claimPush(t, "one"))
		_, err = f.Complete(f.Ctx, held, picket.Completion{Output: picket.RawJSON(`"x"`), Summary: "done"})
		if err == nil {
			t.Error("a late result is taken")
		}
		_, err = f.EmitStatus(f.Ctx, held, "", picket.StatusMessage{Message: "late"})
		if err == nil {
			t.Error("a late emission is taken")
		}
		if after := updates(f.claimPush(t, "one")); !slices.Equal(before, after) {
			t.Errorf("the updates are %q, and were %q", after, before)
		}
	})
}

// A configuration that a task begins with is there in the same step. One of a closed task is told nothing, and stays
// when the others have ended with the task.
func TestATaskBeginsWithAPushConfiguration(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		spec := clientTask("builder", "c1")
		c := pushTo("", "")
		spec.Client.Push = &c
		task := f.submitAs(t, "key_a", spec)
		list, err := f.PushConfigs(f.Ctx, kit.WithKey("key_a"), task.TaskID)
		kit.OK(t, err)
		if len(list) != 1 || !strings.HasPrefix(list[0].ID, "push-") {
			t.Fatalf("%+v", list)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		_, err = f.PutPushConfig(f.Ctx, kit.WithKey("key_a"), pushTo(task.TaskID, "x"))
		kit.OK(t, err)
		turn := f.claimPush(t, "one")
		if got := updates(turn); !slices.Equal(got, []string{"queued cancelled"}) {
			t.Errorf("told %q", got)
		}
		f.mustStep(t, turn, 1, picket.PushTaken, picket.PushDone)
		list, err = f.PushConfigs(f.Ctx, kit.WithKey("key_a"), task.TaskID)
		kit.OK(t, err)
		if len(list) != 1 || list[0].ID != "x" {
			t.Errorf("after the end: %+v", list)
		}
		kit.OK(t, f.DeletePushConfig(f.Ctx, kit.WithKey("key_a"), task.TaskID, "x"))
		f.wantNoPush(t)
	})
}

// The list of a task has its configurations in the order of their creation, whatever their ids are.
func TestPushConfigurationsAreListedOldestFirst(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.submitAs(t, "key_a", clientTask("builder", "c1"))
		want := []string{"c", "b", "a"}
		for _, id := range want {
			f.putPush(t, pushTo(task.TaskID, id))
		}
		list, err := f.PushConfigs(f.Ctx, kit.WithKey("key_a"), task.TaskID)
		kit.OK(t, err)
		var got []string
		for _, c := range list {
			got = append(got, c.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("the list is %q, want %q", got, want)
		}
	})
}

// One deliverer has a configuration at a time, and a claim that is over changes nothing.
func TestOneDelivererHasAPushConfiguration(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		f.pushLease(t, "builder")
		turn := f.claimPush(t, "one")
		if again := f.claimPush(t, "one"); again.ID != "c1" {
			t.Error("the same claim gets nothing")
		}
		if second := f.claimPush(t, "two"); second.ID != "" {
			t.Error("two deliverers have it")
		}
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		f.mustStep(t, turn, 1, picket.PushTaken, picket.PushMore)
		f.mustStep(t, turn, 1, picket.PushTaken, picket.PushMore) // the same step again
		f.JumpStoreTime(t, picket.PushTurnTTL+time.Second)
		other := f.claimPush(t, "two")
		if got := updates(other); !slices.Equal(got, []string{"leased cancelled"}) || other.Cursor != 1 {
			t.Errorf("the next deliverer gets %q from %d", got, other.Cursor)
		}
		turn.Cursor = 1
		_, err = f.step(turn, 2, picket.PushTaken)
		kit.Refused(t, err, picket.CodeStateConflict)
		f.mustStep(t, other, 1, picket.PushReleased, picket.PushIdle)
		third := f.claimPush(t, "three")
		f.endsPush(t, third)
	})
}

// endsPush delivers the end of a task, after which the configuration is gone.
func (f *fixture) endsPush(t *testing.T, turn picket.PushTurn) {
	t.Helper()
	f.mustStep(t, turn, 2, picket.PushTaken, picket.PushDone)
	_, err := f.step(turn, 2, picket.PushTaken)
	kit.Refused(t, err, picket.CodeNotFound)
}

// A configuration that replaces another goes on where that one was, at once, and the claim of the deliverer is over.
func TestAPushConfigurationIsReplaced(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		f.pushLease(t, "builder")
		turn := f.claimPush(t, "one")
		f.mustStep(t, turn, 0, picket.PushFailed, picket.PushIdle)
		if got := f.claimPush(t, "two"); got.ID != "" {
			t.Error("it does not wait after a failure")
		}
		c := pushTo(task.TaskID, "c1")
		c.URL, c.Token = "https://other.test/", ""
		f.putPush(t, c)
		next := f.claimPush(t, "three")
		if next.URL != c.URL || next.Token != "" || next.Cursor != 0 || next.Failures != 0 || next.Name != turn.Name {
			t.Errorf("%+v", next)
		}
		f.putPush(t, c)
		_, err := f.step(next, 1, picket.PushTaken)
		kit.Refused(t, err, picket.CodeStateConflict)
		last := f.claimPush(t, "four")
		f.mustStep(t, last, 1, picket.PushTaken, picket.PushIdle)
		f.putPush(t, c)
		if got := f.claimPush(t, "five"); got.ID != "" {
			t.Error("it is due though it has sent all")
		}
	})
}

// A deliverer that waits is told when a configuration becomes due.
func TestADelivererWaitsForPush(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.pushed(t)
		ctx, cancel := context.WithTimeout(f.Ctx, 20*time.Second)
		defer cancel()
		got := make(chan picket.PushTurn, 1)
		go func() {
			turn, err := f.TakePushTurn(ctx, "one", time.Minute)
			if err != nil {
				t.Error(err)
			}
			got <- turn
		}()
		f.pushLease(t, "builder")
		if turn := <-got; turn.ID != "c1" {
			t.Errorf("%+v", turn)
		}
	})
}

// A receiver that fails for a day is given up, as is one that is gone, and a deleted configuration sends no more.
func TestPushIsGivenUp(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		f.pushLease(t, "builder")
		for n := range 20 {
			state := picket.PushIdle
			if n == 19 {
				f.JumpStoreTime(t, 24*time.Hour)
				state = picket.PushGivenUp
			}
			turn := f.claimPush(t, fmt.Sprint("claim-", n))
			if turn.Failures != n {
				t.Fatalf("%d failures, want %d", turn.Failures, n)
			}
			f.mustStep(t, turn, 0, picket.PushFailed, state)
			f.JumpStoreTime(t, time.Minute+time.Second)
		}
		f.wantNoPush(t)
		f.putPush(t, pushTo(task.TaskID, "c2"))
		f.putPush(t, pushTo(task.TaskID, "c3"))
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		turn := f.claimPush(t, "gone")
		f.mustStep(t, turn, 0, picket.PushGone, picket.PushGivenUp)
		last := f.claimPush(t, "deleted")
		kit.OK(t, f.DeletePushConfig(f.Ctx, kit.WithKey("key_a"), task.TaskID, last.ID))
		_, err = f.step(last, 1, picket.PushTaken)
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantNoPush(t)
	})
}

// Retention deletes the configurations of a task with it.
func TestRetentionForgetsPushConfigurations(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.pushed(t)
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "test")
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 100)
		kit.OK(t, err)
		_, err = f.Task(f.Ctx, task.TaskID)
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantNoPush(t)
		if n, err := f.Raw.Exists(f.Ctx, "pk:{default}:task:"+task.TaskID).Result(); err != nil || n != 0 {
			t.Errorf("the record of the task is back: %d %v", n, err)
		}
	})
}

// A configuration that is given back for a while is due after that while, and has not failed.
func TestAPushConfigurationIsGivenBackForAWhile(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.pushed(t)
		f.pushLease(t, "builder")
		turn := f.claimPush(t, "one")
		if turn.Client != "key_a" {
			t.Errorf("the client is %q", turn.Client)
		}
		_, err := f.AdvancePush(f.Ctx, picket.PushStep{TaskID: turn.TaskID, ID: turn.ID, TurnID: turn.TurnID,
			Outcome: picket.PushReleased, Delay: time.Minute})
		kit.OK(t, err)
		if early := f.claimPush(t, "two"); early.ID != "" {
			t.Error("it is due at once")
		}
		f.JumpStoreTime(t, 61*time.Second)
		if next := f.claimPush(t, "three"); next.ID != turn.ID || next.Failures != 0 {
			t.Errorf("after the while: %+v", next)
		}
	})
}
