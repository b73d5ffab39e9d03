package orchestrator_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func TestTokensRiseByOneOverReleases(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		for want := int64(1); want <= 5; want++ {
			l := f.acquireOne(t, picket.AcquireRequest{})
			if l.FencingToken != want || l.Attempt != int(want) {
				t.Fatalf("token %d attempt %d, want %d", l.FencingToken, l.Attempt, want)
			}
			st, err := f.Release(f.ctx, f.openLease(t, l), picket.Exit{Class: picket.ExitReleased})
			ok(t, err)
			if st != picket.TaskQueued {
				t.Fatalf("released into %s", st)
			}
		}
		got := f.wantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 0 || got.Attempts != 5 || len(got.Runs) != 5 {
			t.Fatalf("failures %d attempts %d runs %d", got.Failures, got.Attempts, len(got.Runs))
		}
	})
}

// Every fenced verb, called with a credential that does not hold, is refused
// with the first reason in the order of the design and changes nothing.
func TestRefusals(t *testing.T) {
	verbs := map[string]func(f *fixture, h picket.LeaseCredential) error{
		"renew": func(f *fixture, h picket.LeaseCredential) error { _, err := f.Renew(f.ctx, h); return err },
		"release": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Release(f.ctx, h, picket.Exit{Class: picket.ExitCrash})
			return err
		},
		"fail": func(f *fixture, h picket.LeaseCredential) error { _, err := f.Fail(f.ctx, h, "no", true); return err },
		"report": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Report(f.ctx, h, "", picket.Progress{Summary: "x"})
			return err
		},
		"complete": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
			return err
		},
		"advance": func(f *fixture, h picket.LeaseCredential) error {
			got, err := f.Advance(f.ctx, h, operator, picket.AdvanceRequest{Output: picket.RawJSON(`1`)})
			if len(got.Leases) > 0 {
				return fmt.Errorf("leases were granted: %v (%w)", got.Leases, err)
			}
			return err
		},
		"request_help": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
			return err
		},
		"get_task": func(f *fixture, h picket.LeaseCredential) error { _, err := f.HeldTask(f.ctx, h, ""); return err },
	}
	onBothStores(t, func(t *testing.T, f *fixture) {
		old := f.mustSubmit(t, picket.TaskSpec{})
		first := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err := f.Expire(f.ctx, operator, old.TaskID, "test")
		ok(t, err)
		expired := first // the task is queued: not superseded yet
		for name, call := range verbs {
			if err := call(f, expired); picket.CodeOf(err) != picket.CodeLeaseExpired {
				t.Errorf("%s under an expired lease: %v", name, err)
			}
		}
		second := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		other := f.mustSubmit(t, picket.TaskSpec{})
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
		got := f.wantState(t, old.TaskID, picket.TaskLeased)
		if got.LastReport != nil || got.Attempts != 2 || got.Failures != 0 {
			t.Fatalf("a refused call changed the task: %+v", got)
		}
		own := second
		own.Fence = 2
		_, err = f.Report(f.ctx, own, "", picket.Progress{Summary: "mine"})
		ok(t, err)
		_, err = f.Cancel(f.ctx, operator, old.TaskID, "stop")
		ok(t, err)
		for name, call := range verbs {
			if err := call(f, second); picket.CodeOf(err) != picket.CodeTaskCancelled {
				t.Errorf("%s after cancel: %v", name, err)
			}
		}
	})
}

func TestLeaseExpiresByStoreTime(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(60)})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		_, err := f.Renew(f.ctx, h)
		ok(t, err)
		f.runReaperFor(t, 59*time.Second)
		_, err = f.Renew(f.ctx, h)
		ok(t, err)
		f.runReaperFor(t, 59*time.Second)
		f.wantState(t, task.TaskID, picket.TaskLeased)
		f.runReaperFor(t, 2*time.Second)
		got := f.wantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 1 || got.Runs[0].Exit.Class != picket.ExitLeaseExpired ||
			got.Runs[0].State != picket.RunExpired {
			t.Fatalf("after expiry: %+v", got)
		}
		_, err = f.Renew(f.ctx, h)
		refused(t, err, picket.CodeLeaseExpired)
	})
}

// A lease is over at its deadline even when no reaper has come by.
func TestDeadlineCountsWithoutReaper(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: ptr(2)})
		h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
		for range 30 {
			f.moveStoreTime(t, 100*time.Millisecond)
			ok(t, f.Tick(f.ctx)) // time passes, nothing is expired
		}
		_, err := f.Complete(f.ctx, h, picket.Completion{Output: picket.RawJSON(`1`)})
		refused(t, err, picket.CodeLeaseExpired)
		w, changed, err := f.Watch(f.ctx, h, time.Second)
		ok(t, err)
		if !changed || w.State != picket.WatchLost {
			t.Fatalf("watch %+v", w)
		}
	})
}

func TestUnconfirmedGrantComesBackWithoutFailure(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		f.acquireOne(t, picket.AcquireRequest{})
		f.runReaperFor(t, 31*time.Second)
		got := f.wantState(t, task.TaskID, picket.TaskQueued)
		if got.Failures != 0 || got.Runs[0].Exit.Class != picket.ExitUndelivered {
			t.Fatalf("%+v", got)
		}
	})
}

func TestUndeliverOnlyWhileUnconfirmed(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{})
		ok(t, f.Undeliver(f.ctx, l.RunID, "run_01ARZ3NDEKTSV4RRFFQ69G5FAV"))
		f.wantState(t, task.TaskID, picket.TaskQueued)
		l = f.acquireOne(t, picket.AcquireRequest{})
		_, err := f.HeldTask(f.ctx, f.openLease(t, l), "")
		ok(t, err)
		ok(t, f.Undeliver(f.ctx, l.RunID))
		got := f.wantState(t, task.TaskID, picket.TaskLeased)
		if got.FencingToken != 2 {
			t.Fatalf("token %d", got.FencingToken)
		}
	})
}

func TestWatchWakesWithItsState(t *testing.T) {
	ends := map[picket.WatchState]func(f *fixture, h picket.LeaseCredential) error{
		picket.WatchCompleted: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Complete(f.ctx, h, picket.Completion{})
			return err
		},
		picket.WatchHandoff: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
			return err
		},
		picket.WatchCancelled: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Cancel(f.ctx, operator, h.TaskID, "")
			return err
		},
		picket.WatchLost: func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Expire(f.ctx, operator, h.TaskID, "")
			return err
		},
	}
	for want, end := range ends {
		onBothStores(t, func(t *testing.T, f *fixture) {
			f.mustSubmit(t, picket.TaskSpec{})
			h := f.openLease(t, f.acquireOne(t, picket.AcquireRequest{}))
			_, changed, err := f.Watch(f.ctx, h, 10*time.Millisecond)
			ok(t, err)
			if changed {
				t.Fatal("nothing has changed yet")
			}
			got := make(chan picket.Watch, 1)
			go func() {
				w, _, err := f.Watch(f.ctx, h, 50*time.Second)
				if err != nil {
					t.Error(err)
				}
				got <- w
			}()
			ok(t, end(f, h))
			if w := <-got; w.State != want {
				t.Fatalf("watch says %s, want %s", w.State, want)
			}
		})
	}
}
