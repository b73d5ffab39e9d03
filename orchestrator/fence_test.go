package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestTokensRiseByOneOverReleases(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		for want := int64(1); want <= 5; want++ {
			l := f.AcquireOne(t, picket.AcquireRequest{})
			if l.FencingToken != want || l.Attempt != int(want) {
				t.Fatalf("token %d attempt %d, want %d", l.FencingToken, l.Attempt, want)
			}
			st, err := f.Release(f.Ctx, f.OpenLease(t, l), picket.Exit{Class: picket.ExitReleased})
			kit.OK(t, err)
			if st != picket.TaskQueued {
				t.Fatalf("released into %s", st)
			}
		}
		got := f.WantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 0 || got.Attempts != 5 || len(got.Runs) != 5 {
			t.Fatalf("failures %d attempts %d runs %d", got.Failures, got.Attempts, len(got.Runs))
		}
	})
}

// Every fenced verb, called with a credential that does not hold, is refused
// with the first reason in the order of the design and changes nothing.
func TestRefusals(t *testing.T) {
	verbs := map[string]func(f *fixture, h picket.LeaseCredential) error{
		"renew": func(f *fixture, h picket.LeaseCredential) error { _, err := f.Renew(f.Ctx, h); return err },
		"release": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitCrash})
			return err
		},
		"fail": func(f *fixture, h picket.LeaseCredential) error { _, err := f.Fail(f.Ctx, h, "no", true); return err },
		"report": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: "x"})
			return err
		},
		"reply": func(f *fixture, h picket.LeaseCredential) error {
			text := "hello"
			_, err := f.Reply(f.Ctx, h, picket.Reply{Parts: []picket.Part{{Text: &text}}})
			return err
		},
		"emit": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Emit(f.Ctx, h, "", textChunk("a", "x"))
			return err
		},
		"complete": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
			return err
		},
		"advance": func(f *fixture, h picket.LeaseCredential) error {
			got, err := f.Advance(f.Ctx, h, kit.Operator, picket.AdvanceRequest{Output: picket.RawJSON(`1`)})
			if len(got.Leases) > 0 {
				return fmt.Errorf("leases were granted: %v (%w)", got.Leases, err)
			}
			return err
		},
		"request_help": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
			return err
		},
		"find_agents": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.FindAgents(f.Ctx, h, "", picket.AgentSearch{})
			return err
		},
		"send_message": func(f *fixture, h picket.LeaseCredential) error {
			m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: "x"}}
			_, err := f.SendMessage(f.Ctx, h, "", m)
			return err
		},
		"read_messages": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.ReadMessages(f.Ctx, h, "r", picket.ReadMessages{}, 0)
			return err
		},
		"deliver": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.DeliverMessages(f.Ctx, h)
			return err
		},
		"get_task": func(f *fixture, h picket.LeaseCredential) error { _, err := f.HeldTask(f.Ctx, h, ""); return err },
	}
	onBothStores(t, func(t *testing.T, f *fixture) {
		old := f.MustSubmit(t, picket.TaskSpec{})
		first := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.Ctx, kit.Operator, old.TaskID, "test")
		kit.OK(t, err)
		expired := first // the task is queued: not superseded yet
		for name, call := range verbs {
			if err := call(f, expired); picket.CodeOf(err) != picket.CodeLeaseExpired {
				t.Errorf("%s under an expired lease: %v", name, err)
			}
		}
		second := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		other := f.MustSubmit(t, picket.TaskSpec{})
		for name, call := range verbs {
			if err := call(f, first); picket.CodeOf(err) != picket.CodeStaleFence {
				t.Errorf("%s under a superseded lease: %v", name, err)
			}
			low, high, foreign, unknown, secret := second, second, second, second, second
			low.Fence, high.Fence = 1, 3
			foreign.TaskID = other.TaskID
			unknown.RunID = "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"
			secret.Secret = first.Secret
			for code, h := range map[picket.Code][]picket.LeaseCredential{
				picket.CodeStaleFence: {low}, picket.CodeUnknownFence: {high}, picket.CodeTaskMismatch: {foreign},
				picket.CodeLeaseExpired: {unknown, secret}, picket.CodeUnauthenticated: {{}},
			} {
				for _, h := range h {
					if err := call(f, h); picket.CodeOf(err) != code {
						t.Errorf("%s: %v, want %s", name, err, code)
					}
				}
			}
		}
		got := f.WantState(t, old.TaskID, picket.TaskLeased)
		if got.LastReport != nil || got.Attempts != 2 || got.Failures != 0 {
			t.Fatalf("a refused call changed the task: %+v", got)
		}
		own := second
		own.Fence = 2
		_, err = f.Report(f.Ctx, own, "", picket.Progress{Summary: "mine"})
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, old.TaskID, "stop")
		kit.OK(t, err)
		for name, call := range verbs {
			if err := call(f, second); picket.CodeOf(err) != picket.CodeTaskCancelled {
				t.Errorf("%s after cancel: %v", name, err)
			}
		}
	})
}

func TestLeaseExpiresByStoreTime(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(60)})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		f.RunReaperFor(t, 59*time.Second)
		_, err = f.Renew(f.Ctx, h)
		kit.OK(t, err)
		f.RunReaperFor(t, 59*time.Second)
		f.WantState(t, task.TaskID, picket.TaskLeased)
		f.RunReaperFor(t, 2*time.Second)
		got := f.WantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 1 || got.Runs[0].Exit.Class != picket.ExitLeaseExpired ||
			got.Runs[0].State != picket.RunExpired {
			t.Fatalf("after expiry: %+v", got)
		}
		_, err = f.Renew(f.Ctx, h)
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

// The remedy of a lease that has expired promises no other run: the task can be with a person.
func TestALeaseThatExpiredPromisesNoOtherRun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		once := &picket.Retry{MaxAttempts: kit.Ptr(1)}
		task := f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(60), Retry: once})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		_, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		f.RunReaperFor(t, 61*time.Second)
		f.WantState(t, task.TaskID, picket.TaskHandoff)
		_, err = f.Renew(f.Ctx, h)
		kit.Refused(t, err, picket.CodeLeaseExpired)
		if remedy := refusalOf(err).Remedy; strings.Contains(remedy, "another run") ||
			!strings.Contains(remedy, "under this lease") {
			t.Errorf("the remedy is %q", remedy)
		}
	})
}

// A lease is over at its deadline even when no reaper has come by.
func TestDeadlineCountsWithoutReaper(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(2)})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
		for range 30 {
			f.MoveStoreTime(t, 100*time.Millisecond)
			kit.OK(t, f.Tick(f.Ctx)) // time passes, nothing is expired
		}
		_, err := f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.Refused(t, err, picket.CodeLeaseExpired)
		w, changed, err := f.Watch(f.Ctx, h, time.Second)
		kit.OK(t, err)
		if !changed || w.State != picket.WatchLost {
			t.Fatalf("watch %+v", w)
		}
	})
}

func TestUnconfirmedGrantComesBackWithoutFailure(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		f.AcquireOne(t, picket.AcquireRequest{})
		f.RunReaperFor(t, 31*time.Second)
		got := f.WantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 0 || got.Runs[0].Exit.Class != picket.ExitUndelivered {
			t.Fatalf("%+v", got)
		}
	})
}

func TestUndeliverOnlyWhileUnconfirmed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{})
		kit.OK(t, f.Undeliver(f.Ctx, l.RunID, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
		f.WantState(t, task.TaskID, picket.TaskQueued)
		l = f.AcquireOne(t, picket.AcquireRequest{})
		_, err := f.HeldTask(f.Ctx, f.OpenLease(t, l), "")
		kit.OK(t, err)
		kit.OK(t, f.Undeliver(f.Ctx, l.RunID))
		got := f.WantState(t, task.TaskID, picket.TaskLeased)
		if got.FencingToken != 2 {
			t.Fatalf("token %d", got.FencingToken)
		}
	})
}

func TestWatchWakesWithItsState(t *testing.T) {
	ends := map[picket.WatchState]func(f *fixture, h picket.LeaseCredential) error{
		picket.WatchCompleted: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Complete(f.Ctx, h, picket.Completion{})
			return err
		},
		picket.WatchHandoff: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
			return err
		},
		picket.WatchCancelled: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
			return err
		},
		picket.WatchLost: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Expire(f.Ctx, kit.Operator, h.TaskID, "")
			return err
		},
	}
	for want, end := range ends {
		onBothStores(t, func(t *testing.T, f *fixture) {
			f.MustSubmit(t, picket.TaskSpec{})
			h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{}))
			_, changed, err := f.Watch(f.Ctx, h, 10*time.Millisecond)
			kit.OK(t, err)
			if changed {
				t.Fatal("nothing has changed yet")
			}
			got := make(chan picket.Watch, 1)
			go func() {
				w, _, err := f.Watch(f.Ctx, h, 50*time.Second)
				if err != nil {
					t.Error(err)
				}
				got <- w
			}()
			kit.OK(t, end(f, h))
			if w := <-got; w.State != want {
				t.Fatalf("watch says %s, want %s", w.State, want)
			}
		})
	}
}
