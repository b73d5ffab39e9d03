package orchestrator_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// execIDs are the ids that commands carry.
func execIDs(commands []picket.Command) (ids []string) {
	for _, c := range commands {
		if c.Command == "exec" {
			ids = append(ids, c.Exec.CallID)
		}
	}
	return ids
}

func TestAProcessIsOrderedAndItsResultTaken(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.LeaseWithExec(t)
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")))
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1"))) // its answer was lost

		// Both ways tell it until the adapter knows it.
		for range 2 {
			w, changed, err := f.Watch(f.Ctx, h, 0)
			kit.OK(t, err)
			if got := execIDs(w.Commands); !changed || len(got) != 1 || got[0] != "c1" {
				t.Fatalf("the watch told %v (changed %v)", got, changed)
			}
			o := w.Commands[0].Exec
			if o.TTLMs <= 0 || o.TTLMs > 30_000 || o.Stdin != "é" || strings.Join(o.Argv, " ") != "go vet" ||
				o.TimeoutSeconds != 20 {
				t.Fatalf("the order is %+v", o)
			}
		}
		r, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		if got := execIDs(r.Commands); len(got) != 1 {
			t.Fatalf("the renewal told %v", got)
		}
		if w, changed, err := f.Watch(f.Ctx, h, 0, "c0", "c1"); changed || err != nil {
			t.Fatalf("a process that is known was told again: %+v %v", w, err)
		}

		if _, done, err := f.AwaitExec(f.Ctx, h, "c1", 0); done || err != nil {
			t.Fatalf("there is a result already (%v)", err)
		}
		result := picket.ExecResult{Code: kit.Ptr(3), Stdout: "ok\n", DurationMs: 12}
		kit.OK(t, f.ExecResult(f.Ctx, h, "c1", result))
		kit.OK(t, f.ExecResult(f.Ctx, h, "c1", picket.ExecResult{Code: kit.Ptr(4)})) // the first one counts
		got, done, err := f.AwaitExec(f.Ctx, h, "c1", time.Minute)
		kit.OK(t, err)
		if !done || *got.Code != 3 || got.Stdout != "ok\n" || got.DurationMs != 12 {
			t.Fatalf("the result is %+v (%v)", got, done)
		}
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1"))) // a late repetition orders nothing
		if r, err = f.Renew(f.Ctx, h); err != nil || len(execIDs(r.Commands)) != 0 {
			t.Fatalf("an order with a result was told again: %v %v", r.Commands, err)
		}
	})
}

// The call waits at one server process, the result comes to another.
func TestAResultWakesItsCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.RigStore)
		defer other.Close()
		_, h := f.LeaseWithExec(t)
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			got, done, err := f.AwaitExec(f.Ctx, h, "c1", 25*time.Second)
			if err != nil || !done || got.Stdout != "out" {
				t.Errorf("the call got %+v %v %v", got, done, err)
			}
		})
		kit.OK(t, other.ExecResult(f.Ctx, h, "c1", picket.ExecResult{Code: kit.Ptr(0), Stdout: "out"}))
		began := time.Now()
		waiting.Wait()
		if f.Virtual && time.Since(began) > time.Second {
			t.Errorf("it was woken after %v only", time.Since(began))
		}
	})
}

func TestAnOrderWakesTheWatch(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.LeaseWithExec(t)
		told := make(chan []string, 1)
		go func() {
			w, _, err := f.Watch(f.Ctx, h, time.Minute)
			if err != nil {
				t.Error(err)
			}
			told <- execIDs(w.Commands)
		}()
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")))
		if got := <-told; len(got) != 1 {
			t.Errorf("the watch told %v", got)
		}
	})
}

func TestAnOrderEndsWithItsCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.LeaseWithExec(t)
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")))
		f.RunReaperFor(t, 31*time.Second)
		if r, err := f.Renew(f.Ctx, h); err != nil || len(r.Commands) != 0 {
			t.Fatalf("an order past its deadline was told: %v %v", r.Commands, err)
		}
		if _, done, err := f.AwaitExec(f.Ctx, h, "c1", time.Hour); done || err != nil {
			t.Fatalf("waiting for it answered %v %v", done, err)
		}
		kit.Refused(t, f.ExecResult(f.Ctx, h, "c1", picket.ExecResult{Code: kit.Ptr(0)}), picket.CodeStateConflict)
		kit.Refused(t, f.ExecResult(f.Ctx, h, "c2", picket.ExecResult{Code: kit.Ptr(0)}), picket.CodeStateConflict)
		for i := range 16 { // what is over takes no room
			kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("d"+string(rune('a'+i)))))
		}
		kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("one-too-many")), picket.CodeRateLimited)
		kit.OK(t, f.ExecResult(f.Ctx, h, "da", picket.ExecResult{Failed: "no such program"}))
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("now-there-is-room")))
	})
}

func TestWhoMayOrderAProcess(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		l := f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		h := f.OpenLease(t, l)
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
		if can, err := f.CanExec(f.Ctx, h); can || err != nil {
			t.Fatalf("the adapter starts processes: %v %v", can, err)
		}
		kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")), picket.CodeNotAvailable)
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
		if can, err := f.CanExec(f.Ctx, h); !can || err != nil {
			t.Fatalf("the adapter starts no processes: %v %v", can, err)
		}
		kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("a,b")), picket.CodeValidation)
		kit.OK(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c1")))

		foreign := h
		foreign.Secret = strings.Repeat("0", 64)
		kit.Refused(t, f.OrderExec(f.Ctx, foreign, kit.ExecOrder("c2")), picket.CodeLeaseExpired)
		kit.Refused(t, f.ExecResult(f.Ctx, foreign, "c1", picket.ExecResult{}), picket.CodeLeaseExpired)
		_, _, err := f.AwaitExec(f.Ctx, foreign, "c1", 0)
		kit.Refused(t, err, picket.CodeLeaseExpired)

		// The end of the lease is the end of ordering, not of knowing.
		_, err = f.Release(f.Ctx, h, picket.Exit{Class: picket.ExitReleased})
		kit.OK(t, err)
		kit.Refused(t, f.OrderExec(f.Ctx, h, kit.ExecOrder("c2")), picket.CodeLeaseReleased)
		kit.OK(t, f.ExecResult(f.Ctx, h, "c1", picket.ExecResult{Signal: kit.Ptr("SIGKILL")}))
		if _, done, err := f.AwaitExec(f.Ctx, h, "c1", 0); !done || err != nil {
			t.Fatalf("the result of an ended lease's process: %v %v", done, err)
		}
	})
}
