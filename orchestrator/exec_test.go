package orchestrator_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// leaseWithExec is a lease whose adapter starts processes for it.
func (f *fixture) leaseWithExec(t *testing.T) (picket.Lease, picket.LeaseCredential) {
	t.Helper()
	f.mustSubmit(t, picket.TaskSpec{})
	l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
	h := f.openLease(t, l)
	_, err := f.Renew(f.ctx, h)
	ok(t, err)
	ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
	return l, h
}

func execOrder(id string) picket.ExecRequest {
	return picket.ExecRequest{CallID: id, Argv: []string{"go", "vet"}, Stdin: "é", TimeoutSeconds: 20, TTLMs: 30_000}
}

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
		_, h := f.leaseWithExec(t)
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1")))
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1"))) // its answer was lost

		// Both ways tell it until the adapter knows it.
		for range 2 {
			w, changed, err := f.Watch(f.ctx, h, 0)
			ok(t, err)
			if got := execIDs(w.Commands); !changed || len(got) != 1 || got[0] != "c1" {
				t.Fatalf("the watch told %v (changed %v)", got, changed)
			}
			o := w.Commands[0].Exec
			if o.TTLMs <= 0 || o.TTLMs > 30_000 || o.Stdin != "é" || strings.Join(o.Argv, " ") != "go vet" ||
				o.TimeoutSeconds != 20 {
				t.Fatalf("the order is %+v", o)
			}
		}
		r, err := f.Renew(f.ctx, h)
		ok(t, err)
		if got := execIDs(r.Commands); len(got) != 1 {
			t.Fatalf("the renewal told %v", got)
		}
		if w, changed, err := f.Watch(f.ctx, h, 0, "c0", "c1"); changed || err != nil {
			t.Fatalf("a process that is known was told again: %+v %v", w, err)
		}

		if _, done, err := f.AwaitExec(f.ctx, h, "c1", 0); done || err != nil {
			t.Fatalf("there is a result already (%v)", err)
		}
		result := picket.ExecResult{Code: ptr(3), Stdout: "ok\n", DurationMs: 12}
		ok(t, f.ExecResult(f.ctx, h, "c1", result))
		ok(t, f.ExecResult(f.ctx, h, "c1", picket.ExecResult{Code: ptr(4)})) // the first one counts
		got, done, err := f.AwaitExec(f.ctx, h, "c1", time.Minute)
		ok(t, err)
		if !done || *got.Code != 3 || got.Stdout != "ok\n" || got.DurationMs != 12 {
			t.Fatalf("the result is %+v (%v)", got, done)
		}
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1"))) // a late repetition orders nothing
		if r, err = f.Renew(f.ctx, h); err != nil || len(execIDs(r.Commands)) != 0 {
			t.Fatalf("an order with a result was told again: %v %v", r.Commands, err)
		}
	})
}

// The call waits at one server process, the result comes to another.
func TestAResultWakesItsCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		other := openFixture(t, f.rigStore)
		defer other.close()
		_, h := f.leaseWithExec(t)
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1")))
		var waiting sync.WaitGroup
		waiting.Go(func() {
			got, done, err := f.AwaitExec(f.ctx, h, "c1", 25*time.Second)
			if err != nil || !done || got.Stdout != "out" {
				t.Errorf("the call got %+v %v %v", got, done, err)
			}
		})
		ok(t, other.ExecResult(f.ctx, h, "c1", picket.ExecResult{Code: ptr(0), Stdout: "out"}))
		began := time.Now()
		waiting.Wait()
		if f.virtual && time.Since(began) > time.Second {
			t.Errorf("it was woken after %v only", time.Since(began))
		}
	})
}

func TestAnOrderWakesTheWatch(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.leaseWithExec(t)
		told := make(chan []string, 1)
		go func() {
			w, _, err := f.Watch(f.ctx, h, time.Minute)
			if err != nil {
				t.Error(err)
			}
			told <- execIDs(w.Commands)
		}()
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1")))
		if got := <-told; len(got) != 1 {
			t.Errorf("the watch told %v", got)
		}
	})
}

func TestAnOrderEndsWithItsCall(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.leaseWithExec(t)
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1")))
		f.runReaperFor(t, 31*time.Second)
		if r, err := f.Renew(f.ctx, h); err != nil || len(r.Commands) != 0 {
			t.Fatalf("an order past its deadline was told: %v %v", r.Commands, err)
		}
		if _, done, err := f.AwaitExec(f.ctx, h, "c1", time.Hour); done || err != nil {
			t.Fatalf("waiting for it answered %v %v", done, err)
		}
		refused(t, f.ExecResult(f.ctx, h, "c1", picket.ExecResult{Code: ptr(0)}), picket.CodeStateConflict)
		refused(t, f.ExecResult(f.ctx, h, "c2", picket.ExecResult{Code: ptr(0)}), picket.CodeStateConflict)
		for i := range 16 { // what is over takes no room
			ok(t, f.OrderExec(f.ctx, h, execOrder("d"+string(rune('a'+i)))))
		}
		refused(t, f.OrderExec(f.ctx, h, execOrder("one-too-many")), picket.CodeRateLimited)
		ok(t, f.ExecResult(f.ctx, h, "da", picket.ExecResult{Failed: "no such program"}))
		ok(t, f.OrderExec(f.ctx, h, execOrder("now-there-is-room")))
	})
}

func TestWhoMayOrderAProcess(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.mustSubmit(t, picket.TaskSpec{})
		l := f.acquireOne(t, picket.AcquireRequest{AgentID: "a1"})
		h := f.openLease(t, l)
		ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
		if can, err := f.CanExec(f.ctx, h); can || err != nil {
			t.Fatalf("the adapter starts processes: %v %v", can, err)
		}
		refused(t, f.OrderExec(f.ctx, h, execOrder("c1")), picket.CodeNotAvailable)
		ok(t, f.RunEvents(f.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
		if can, err := f.CanExec(f.ctx, h); !can || err != nil {
			t.Fatalf("the adapter starts no processes: %v %v", can, err)
		}
		refused(t, f.OrderExec(f.ctx, h, execOrder("a,b")), picket.CodeValidation)
		ok(t, f.OrderExec(f.ctx, h, execOrder("c1")))

		foreign := h
		foreign.Secret = strings.Repeat("0", 64)
		refused(t, f.OrderExec(f.ctx, foreign, execOrder("c2")), picket.CodeLeaseExpired)
		refused(t, f.ExecResult(f.ctx, foreign, "c1", picket.ExecResult{}), picket.CodeLeaseExpired)
		_, _, err := f.AwaitExec(f.ctx, foreign, "c1", 0)
		refused(t, err, picket.CodeLeaseExpired)

		// The end of the lease is the end of ordering, not of knowing.
		_, err = f.Release(f.ctx, h, picket.Exit{Class: picket.ExitReleased})
		ok(t, err)
		refused(t, f.OrderExec(f.ctx, h, execOrder("c2")), picket.CodeLeaseReleased)
		ok(t, f.ExecResult(f.ctx, h, "c1", picket.ExecResult{Signal: ptr("SIGKILL")}))
		if _, done, err := f.AwaitExec(f.ctx, h, "c1", 0); !done || err != nil {
			t.Fatalf("the result of an ended lease's process: %v %v", done, err)
		}
	})
}
