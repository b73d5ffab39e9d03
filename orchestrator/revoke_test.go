package orchestrator_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Every acquire that waits with a key ends with its revocation, without a
// lease; those of other keys wait on and get the task.
func TestARevocationEndsTheWaitsOfTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		stolen, good := f.MustCreateKey(t, picket.ScopeAgent), f.MustCreateKey(t, picket.ScopeAgent)
		var wg sync.WaitGroup
		for _, agent := range []string{"a1", "a2", "a3"} {
			wg.Go(func() {
				_, err := f.Acquire(f.Ctx, kit.WithKey(stolen),
					picket.AcquireRequest{AgentID: agent, WaitSeconds: kit.Ptr(50)})
				if picket.CodeOf(err) != picket.CodeUnauthenticated {
					t.Errorf("%s, with a key that is revoked, got %v", agent, err)
				}
			})
		}
		f.waitForWaiters(t, 3)
		got := make(chan []picket.Lease, 1)
		go func() {
			leases, err := f.Acquire(f.Ctx, kit.WithKey(good),
				picket.AcquireRequest{AgentID: "a4", WaitSeconds: kit.Ptr(50)})
			if err != nil {
				t.Errorf("another key: %v", err)
			}
			got <- leases
		}()
		f.waitForWaiters(t, 4)
		start := time.Now()
		f.MustRevokeKey(t, stolen, nil)
		wg.Wait()
		if waited := time.Since(start); waited > 20*time.Second {
			t.Errorf("they waited %s after the revocation", waited)
		}
		f.MustSubmit(t, picket.TaskSpec{})
		if leases := <-got; len(leases) != 1 {
			t.Errorf("the other key got %d leases, want 1", len(leases))
		}
	})
}

// The grant itself asks for the key: one that was revoked or has expired after
// its request was let in gets no lease, nor those of a request before.
func TestTheGrantChecksTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		f.MustSubmit(t, picket.TaskSpec{})
		key := f.MustCreateKey(t, picket.ScopeAgent)
		by := kit.WithKey(key)
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)}
		first, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "a1"})
		kit.OK(t, err)
		f.MustRevokeKey(t, key, kit.Ptr(true))
		_, err = f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
		_, err = f.Acquire(f.Ctx, kit.WithKey(key), picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
		_, err = f.Acquire(f.Ctx, kit.WithKey("key_01ARZ3NDEKTSV4RRFFQ69G5FAV"), picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
		f.MustRenew(t, first[0]) // it was kept

		past, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "late", Scopes: []picket.Scope{picket.ScopeAgent}, ExpiresAt: 1})
		kit.OK(t, err)
		_, err = f.Acquire(f.Ctx, kit.WithKey(past.KeyID), picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
	})
}

// The expiry of a key ends no lease.
func TestAnExpiredKeyKeepsItsLeases(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		key := f.MustCreateKey(t, picket.ScopeAgent)
		l := f.AcquireWithKey(t, key)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+key, "expires", 1).Err())
		f.MustRenew(t, l)
	})
}

// Advance completes what the lease is good for, and grants nothing with a key
// that was revoked, whether it is asked for the first time or again.
func TestAdvanceGrantsNothingWithARevokedKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for range 3 {
			f.MustSubmit(t, picket.TaskSpec{})
		}
		key := f.MustCreateKey(t, picket.ScopeAgent)
		l := f.AcquireWithKey(t, key)
		by := kit.WithKey(key)
		by.Idempotency = picket.Idempotency{Key: strings.Repeat("a", 64), Body: strings.Repeat("b", 64)}
		req := picket.AdvanceRequest{Output: picket.RawJSON(`"one"`), Acquire: picket.AcquireRequest{AgentID: "a1"}}
		got, err := f.Advance(f.Ctx, f.OpenLease(t, l), by, req)
		kit.OK(t, err)
		if len(got.Leases) != 1 {
			t.Fatalf("%d leases, want 1", len(got.Leases))
		}
		f.MustRevokeKey(t, key, kit.Ptr(true))
		for range 2 {
			again, err := f.Advance(f.Ctx, f.OpenLease(t, l), by, req)
			kit.OK(t, err)
			if again.State != picket.TaskReview || len(again.Leases) != 0 {
				t.Errorf("a repeat answered %s with %d leases", again.State, len(again.Leases))
			}
		}
		next, err := f.Advance(f.Ctx, f.OpenLease(t, got.Leases[0]), kit.WithKey(key), req)
		kit.OK(t, err)
		if next.State != picket.TaskReview || len(next.Leases) != 0 {
			t.Errorf("advance answered %s with %d leases", next.State, len(next.Leases))
		}
	})
}

// The completion of an advance counts although its key is revoked while it waits
// for more: the answer reports it, and is not a refusal.
func TestAdvanceAnswersWhenTheKeyIsRevokedWhileItWaits(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		key := f.MustCreateKey(t, picket.ScopeAgent)
		l := f.AcquireWithKey(t, key)
		type result struct {
			got picket.Advanced
			err error
		}
		done := make(chan result, 1)
		go func() {
			got, err := f.completeAndAcquire(f.OpenLease(t, l), kit.WithKey(key),
				picket.AcquireRequest{AgentID: "a1", WaitSeconds: kit.Ptr(50)})
			done <- result{got, err}
		}()
		f.waitForWaiters(t, 1)
		f.MustRevokeKey(t, key, nil)
		r := <-done
		kit.OK(t, r.err)
		if r.got.State != picket.TaskReview || len(r.got.Leases) != 0 {
			t.Errorf("advance answered %s with %d leases", r.got.State, len(r.got.Leases))
		}
		f.WantState(t, task.TaskID, picket.TaskReview)
	})
}

// A revocation makes all leases of the key void in its own step, however many
// there are; their records end in batches, and no task counts a failure.
func TestARevocationEndsTheLeasesOfTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key, other := f.MustCreateKey(t, picket.ScopeAgent), f.MustCreateKey(t, picket.ScopeAgent)
		const n = 105
		var leases []picket.Lease
		for range n {
			f.MustSubmit(t, picket.TaskSpec{LeaseWindowSeconds: kit.Ptr(600)})
		}
		for len(leases) < n {
			got, err := f.Acquire(f.Ctx, kit.WithKey(key), picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(20)})
			kit.OK(t, err)
			leases = append(leases, got...)
		}
		f.MustSubmit(t, picket.TaskSpec{})
		spared := f.AcquireWithKey(t, other)
		last := f.OpenLease(t, leases[n-1])
		_, err := f.Renew(f.Ctx, last)
		kit.OK(t, err)

		if k := f.MustRevokeKey(t, key, nil); k.Leases != picket.KeyLeasesEnded || k.RevokedAt.IsZero() {
			t.Errorf("revoked: %+v", k)
		}
		f.WantState(t, leases[0].TaskID, picket.TaskQueued)
		f.WantState(t, leases[n-1].TaskID, picket.TaskLeased) // its record ends with the chore
		_, err = f.Renew(f.Ctx, last)
		kit.Refused(t, err, picket.CodeLeaseExpired)
		_, err = f.Report(f.Ctx, last, "", picket.Progress{Summary: "still here"})
		kit.Refused(t, err, picket.CodeLeaseExpired)
		w, ended, err := f.Watch(f.Ctx, last, 0)
		kit.OK(t, err)
		if !ended || w.State != picket.WatchLost {
			t.Errorf("watch: %+v, ended %v", w, ended)
		}
		for {
			done, err := f.RunChores(f.Ctx, 3)
			kit.OK(t, err)
			if done < 3 {
				break
			}
		}
		for _, l := range leases {
			task := f.WantState(t, l.TaskID, picket.TaskQueued)
			if task.Failures != 0 {
				t.Errorf("%s counts %d failures", l.TaskID, task.Failures)
			}
		}
		f.MustRenew(t, spared)
		if got := reasons(t, f, picket.EventLeaseExpired); got["key_revoked"] != n {
			t.Errorf("lease.expired by reason: %v, want %d times key_revoked", got, n)
		}
		if left := f.Raw.ZCard(f.Ctx, "pk:{default}:leases-of:"+key).Val(); left != 0 {
			t.Errorf("%d leases are still listed with the key", left)
		}
	})
}

func reasons(t *testing.T, f *fixture, kind string) map[string]int {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	kit.OK(t, err)
	n := map[string]int{}
	for _, e := range page.Events {
		n[e.Reason]++
	}
	return n
}

// Without --keep-leases, the scopes decide whether the leases end. Leases that were kept can be
// ended later, and those that have ended stay ended.
func TestWhatBecomesOfTheLeasesOfAKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for _, c := range []struct {
			scopes []picket.Scope
			keep   *bool
			kept   bool
		}{
			{[]picket.Scope{picket.ScopeAgent}, nil, false},
			{[]picket.Scope{picket.ScopeAgent}, kit.Ptr(true), true},
			{[]picket.Scope{picket.ScopeAgent, picket.ScopeReviewer}, nil, false},
			{[]picket.Scope{picket.ScopeOperator}, nil, true},
			{[]picket.Scope{picket.ScopeOperator}, kit.Ptr(false), false},
		} {
			task := f.MustSubmit(t, picket.TaskSpec{})
			key := f.MustCreateKey(t, c.scopes...)
			l := f.AcquireWithKey(t, key)
			k := f.MustRevokeKey(t, key, c.keep)
			if (k.Leases == picket.KeyLeasesKept) != c.kept {
				t.Errorf("%v, keep %v: leases are %s", c.scopes, c.keep, k.Leases)
			}
			if c.kept {
				f.MustRenew(t, l)
				f.MustRevokeKey(t, key, nil)
				f.MustRenew(t, l)
				if k := f.MustRevokeKey(t, key, kit.Ptr(false)); k.Leases != picket.KeyLeasesEnded {
					t.Errorf("%v: ended later, leases are %s", c.scopes, k.Leases)
				}
			}
			_, err := f.Renew(f.Ctx, f.OpenLease(t, l))
			kit.Refused(t, err, picket.CodeLeaseExpired)
			if k := f.MustRevokeKey(t, key, kit.Ptr(true)); k.Leases != picket.KeyLeasesEnded {
				t.Errorf("%v: leases that had ended are %s", c.scopes, k.Leases)
			}
			_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
			kit.OK(t, err)
		}
	})
}

// A context that lasts as long as the key holds ends with the revocation, in
// another process too.
func TestAContextEndsWithTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		elsewhere := f.OpenProcess(t, f.RigStore, orchestrator.Config{}).Engine("default")
		key, other := f.MustCreateKey(t, picket.ScopeReviewer), f.MustCreateKey(t, picket.ScopeReviewer)
		held, stop := elsewhere.KeyContext(f.Ctx, key)
		defer stop()
		on, end := elsewhere.KeyContext(f.Ctx, other)
		f.MustRevokeKey(t, key, nil)
		<-held.Done()
		if err := on.Err(); err != nil {
			t.Errorf("the context of another key has ended: %v", err)
		}
		end()
	})
}

// A context that is asked for after the key was revoked, although the request was authenticated
// before, ends as well, because the revocation is not announced again.
func TestAContextOfARevokedKeyEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key := f.MustCreateKey(t, picket.ScopeReviewer)
		f.MustRevokeKey(t, key, nil)
		held, stop := f.KeyContext(f.Ctx, key)
		defer stop()
		select {
		case <-held.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the context goes on with a revoked key")
		}
		if err := context.Cause(held); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("the context ended with %v", err)
		}
	})
}

// A context ends soon after its key has expired, and goes on with a key that has not.
func TestAContextEndsWhenTheKeyExpires(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		made, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: "short",
			Scopes: []picket.Scope{picket.ScopeReviewer}, ExpiresAt: picket.InstantOf(time.Now().Add(2 * time.Second))})
		kit.OK(t, err)
		long, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: "long",
			Scopes: []picket.Scope{picket.ScopeReviewer}, ExpiresAt: picket.InstantOf(time.Now().Add(time.Hour))})
		kit.OK(t, err)
		held, stop := f.KeyContext(f.Ctx, made.KeyID)
		defer stop()
		on, end := f.KeyContext(f.Ctx, long.KeyID)
		defer end()
		select {
		case <-held.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the context goes on with an expired key")
		}
		if err := context.Cause(held); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("the context ended with %v", err)
		}
		if err := on.Err(); err != nil {
			t.Errorf("the context of another key has ended: %v", err)
		}
	})
}
