package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// looks are the free tools that change nothing.
func (f leasedTask) looks(child string) map[string]func() (*picket.Nudge, error) {
	return map[string]func() (*picket.Nudge, error){
		"get_task": func() (*picket.Nudge, error) {
			task, err := f.HeldTask(f.Ctx, f.held, "")
			return task.Nudge, err
		},
		"await_subtask": func() (*picket.Nudge, error) {
			s, err := f.AwaitSubtask(f.Ctx, f.held, child, 0)
			return s.Nudge, err
		},
		"find_agents": func() (*picket.Nudge, error) {
			found, err := f.FindAgents(f.Ctx, f.held, "", picket.AgentSearch{})
			return found.Nudge, err
		},
		"read_messages": func() (*picket.Nudge, error) {
			got, err := f.ReadMessages(f.Ctx, f.held, ulid.Make().String(), picket.ReadMessages{}, 0)
			return got.Nudge, err
		},
		"await_top_up": func() (*picket.Nudge, error) {
			funds, err := f.AwaitTopUp(f.Ctx, f.held, 0)
			return funds.Nudge, err
		},
	}
}

// An agent that looks every second waits for something. It is in no loop, however long it does so.
func TestPollingIsNoLoop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3 * 3600)})
		child := p.delegateMany(t, 1)[0]
		for name, look := range p.looks(child.lease.TaskID) {
			for second := range 600 {
				nudge, err := look()
				if err != nil || nudge != nil {
					t.Fatalf("%s, second %d: nudge %+v, %v", name, second, nudge, err)
				}
				f.JumpStoreTime(t, time.Second)
			}
		}
	})
}

// Calls that an agent makes once a second arrive a little earlier or later. They are not a loop
// either, even if the time between many of them in a row is shorter than a second.
func TestPollingWithJitterIsNoLoop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{})
		for name, look := range p.looks(p.delegateMany(t, 1)[0].lease.TaskID) {
			for n := range 12 {
				if nudge, err := look(); err != nil || nudge != nil {
					t.Fatalf("%s, call %d: nudge %+v, %v", name, n+1, nudge, err)
				}
				f.JumpStoreTime(t, 900*time.Millisecond)
			}
		}
	})
}

// The same on the clock of the server, with a wait of a second.
func TestWaitingAgainAndAgainIsNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, stop := rig.Memory()
		defer stop()
		f := openFixture(t, store)
		defer f.Close()
		p := f.leaseTask(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(3600)})
		child := p.delegateMany(t, 1)[0]
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			s, err := p.AwaitSubtask(f.Ctx, p.held, child.lease.TaskID, time.Second)
			if err != nil || s.Nudge != nil {
				t.Fatalf("after %s: nudge %+v, %v", time.Since(began), s.Nudge, err)
			}
			funds, err := p.AwaitTopUp(f.Ctx, p.held, time.Second)
			if err != nil || funds.Nudge != nil {
				t.Fatalf("after %s: nudge %+v, %v", time.Since(began), funds.Nudge, err)
			}
		}
	})
}

// Looks that come at once are a loop: the fifth is told, and the tenth ends the run.
func TestLooksAtOnceAreALoop(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, name := range []string{"get_task", "await_subtask", "await_top_up", "find_agents",
			"read_messages"} {
			p := f.leaseTask(t, picket.TaskSpec{})
			look := p.looks(p.delegateMany(t, 1)[0].lease.TaskID)[name]
			for n := range 9 {
				nudge, err := look()
				if kit.OK(t, err); (nudge != nil) != (n >= 4) {
					t.Fatalf("%s, call %d: nudge %+v", name, n+1, nudge)
				}
			}
			if _, err := look(); picket.CodeOf(err) != picket.CodeLeaseReleased {
				t.Fatalf("%s: the tenth call answers %v", name, err)
			}
			if task := f.WantState(t, p.lease.TaskID, picket.TaskHandoff); task.Handoff == nil {
				t.Errorf("%s: nobody is asked: %+v", name, task)
			}
		}
	})
}

// A call of a language model, and a question for the money that is left, do not count as
// calls of tools, and end no row.
func TestWhatIsNoToolCallChangesNoRow(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{})
		for n := range 10 {
			_, err := f.HeldTask(f.Ctx, p.held, "")
			if n == 9 {
				kit.Refused(t, err, picket.CodeLeaseReleased)
				return
			}
			kit.OK(t, err)
			model := kit.PaidCall("0")
			model.Tool = "llm_messages"
			f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, p.held, model), "0"))
			_, err = f.Funds(f.Ctx, p.held)
			kit.OK(t, err)
		}
	})
}

// sameCall is a call without a key of which each has the same arguments.
func sameCall(hash string) picket.CallRequest {
	c := kit.PaidCall("0.01")
	c.Hash = hash
	return c
}

// callRefused checks the refusal of the eleventh call.
func callRefused(t *testing.T, err error) {
	t.Helper()
	kit.Refused(t, err, picket.CodeCallRepeated)
	var refusal *picket.Error
	if !errors.As(err, &refusal) || fmt.Sprint(refusal.Facts["limit"]) != "10" || refusal.Remedy == "" {
		t.Errorf("refused with %+v", refusal)
	}
}

// Ten calls of the same kind are admitted, with a nudge from the fifth on. The eleventh is refused
// until another tool was called, and the run goes on.
func TestTheSamePaidCallIsRefusedFromTheEleventhOn(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		child := p.delegateMany(t, 1)[0].lease.TaskID
		for name, between := range map[string]func() error{
			"report_progress": func() error {
				_, err := f.Report(f.Ctx, p.held, "", picket.Progress{Summary: "stuck"})
				return err
			},
			"get_task":      func() error { _, err := f.HeldTask(f.Ctx, p.held, ""); return err },
			"await_subtask": func() error { _, err := f.AwaitSubtask(f.Ctx, p.held, child, 0); return err },
			"await_top_up":  func() error { _, err := f.AwaitTopUp(f.Ctx, p.held, 0); return err },
			"a paid call":   func() error { _, err := f.Reserve(f.Ctx, p.held, sameCall("other")); return err },
		} {
			for n := range 10 {
				r, err := f.Reserve(f.Ctx, p.held, sameCall("h"))
				if kit.OK(t, err); (r.Nudge != nil) != (n >= 4) || r.Nudge != nil && r.Nudge.Cause != picket.NudgeLoop {
					t.Fatalf("%s, call %d: nudge %+v", name, n+1, r.Nudge)
				}
				f.MustSettle(t, kit.DoneSettlement(r, "0"))
			}
			for range 3 {
				_, err := f.Reserve(f.Ctx, p.held, sameCall("h"))
				callRefused(t, err)
			}
			f.WantState(t, p.lease.TaskID, picket.TaskLeased)
			kit.OK(t, between())
			r := f.MustReserve(t, p.held, sameCall("h"))
			f.MustSettle(t, kit.DoneSettlement(r, "0"))
			_, err := f.Report(f.Ctx, p.held, "", picket.Progress{Summary: name})
			kit.OK(t, err) // the next begins a row of its own, and has no nudge left
		}
		f.wantNoViolations(t)
	})
}

// A wait that began before the calls starts no new count, however often something wakes it: the nudge of
// the fifth call does.
func TestAWaitUnderWayStartsNoNewCount(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			store, stop := rig.Memory()
			defer stop()
			f := openFixture(t, store)
			defer f.Close()
			p := f.leaseTask(t, picket.TaskSpec{
				LeaseWindowSeconds: kit.Ptr(3600),
				BudgetEnvelope:     kit.Worth(1000, "1"),
			})
			var waits sync.WaitGroup
			ctx, cancel := context.WithCancel(f.Ctx)
			waits.Go(func() { _, _ = p.AwaitTopUp(ctx, p.held, time.Minute) })
			synctest.Wait()
			for range 10 {
				f.MustSettle(t, kit.DoneSettlement(f.MustReserve(t, p.held, sameCall("h")), "0"))
				synctest.Wait()
			}
			_, err := f.Reserve(f.Ctx, p.held, sameCall("h"))
			callRefused(t, err)
			cancel()
			waits.Wait()
		})
	})
}

// Calls at once pass the bound no more than calls one after the other.
func TestParallelPaidCallsDoNotPassTheEleventh(t *testing.T) {
	f := openFixture(t, rig.Real(t))
	defer f.Close()
	p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
	var group sync.WaitGroup
	errs := make([]error, 30)
	for i := range errs {
		group.Go(func() { _, errs[i] = f.Reserve(f.Ctx, p.held, sameCall("h")) })
	}
	group.Wait()
	admitted := 0
	for _, err := range errs {
		if err == nil {
			admitted++
			continue
		}
		callRefused(t, err)
	}
	if admitted != 10 {
		t.Errorf("%d of 30 calls at once were admitted, want 10", admitted)
	}
}

// Calls that failed, calls that never left and repeats under a key do not count.
func TestWhatDoesNotCountAsTheSamePaidCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		end := func(r picket.Reservation, outcome picket.CallOutcome) {
			s := kit.DoneSettlement(r, "0")
			s.Outcome, s.Result = outcome, picket.RawJSON(`{}`)
			f.MustSettle(t, s)
			f.MustSettle(t, s) // the answer was lost
		}
		call := func() picket.Reservation { return f.MustReserve(t, p.held, sameCall("h")) }
		for range 20 {
			end(call(), picket.CallFailed)
			end(call(), picket.CallUndispatched)
		}
		for range 3 {
			end(call(), picket.CallDone)
		}
		keyed := kit.SameCall("1", "h", "0.01")
		end(f.MustReserve(t, p.held, keyed), picket.CallDone) // the fourth
		for range 20 {
			keyed.Nonce += "x"
			if r := f.MustReserve(t, p.held, keyed); r.Replay == nil || r.Nudge != nil {
				t.Fatalf("the repeat under the key answers %+v", r)
			}
		}
		// An outcome that nobody knows counts until it turns out that the call had failed.
		unknown := call()
		if unknown.Nudge == nil {
			t.Fatal("the fifth call has no nudge")
		}
		end(unknown, picket.CallUncertain)
		end(unknown, picket.CallFailed)
		for range 6 {
			r := call() // the fifth to the tenth
			if r.Nudge == nil || r.Nudge.Number != 1 {
				t.Errorf("nudge %+v, want the first", r.Nudge)
			}
			end(r, picket.CallDone)
		}
		_, err := f.Reserve(f.Ctx, p.held, sameCall("h"))
		callRefused(t, err)
		f.wantNoViolations(t)
	})
}

// A call that fails after another row has begun takes nothing off that row.
func TestAFailureCountsInItsOwnRow(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		var before []picket.Reservation
		for range 5 {
			before = append(before, f.MustReserve(t, p.held, sameCall("h")))
		}
		_, err := f.HeldTask(f.Ctx, p.held, "")
		kit.OK(t, err)
		for range 8 {
			f.MustReserve(t, p.held, sameCall("h"))
		}
		for _, r := range before {
			f.MustSettle(t, kit.SettlementAs(r, picket.CallFailed))
		}
		for range 2 {
			f.MustReserve(t, p.held, sameCall("h"))
		}
		_, err = f.Reserve(f.Ctx, p.held, sameCall("h"))
		callRefused(t, err)
	})
}

// A run whose token was superseded changes nothing of what the next run may do.
func TestASupersededRunCountsNoPaidCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		p := f.leaseTask(t, picket.TaskSpec{BudgetEnvelope: kit.Worth(1000, "1")})
		var before []picket.Reservation
		for range 9 {
			before = append(before, f.MustReserve(t, p.held, sameCall("h")))
		}
		_, err := f.Release(f.Ctx, p.held, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		kit.OK(t, f.RunExit(f.Ctx, p.held, picket.Exit{Class: picket.ExitReleased}, ""))
		next := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a2"}))
		for range 9 {
			f.MustReserve(t, next, sameCall("h"))
		}
		for _, r := range before {
			_, err := f.Reserve(f.Ctx, p.held, sameCall("h"))
			kit.Refused(t, err, picket.CodeStaleFence)
			_, err = f.HeldTask(f.Ctx, p.held, "")
			kit.Refused(t, err, picket.CodeStaleFence)
			f.MustSettle(t, kit.SettlementAs(r, picket.CallFailed))
		}
		f.MustReserve(t, next, sameCall("h"))
		_, err = f.Reserve(f.Ctx, next, sameCall("h"))
		callRefused(t, err)
	})
}
