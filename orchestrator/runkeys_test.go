package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// mustCreateRunKey makes a run key of a parent for the agent a1.
func (f *fixture) mustCreateRunKey(t *testing.T, parent string) picket.NewRunKey {
	t.Helper()
	k, err := f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	ok(t, err)
	return k
}

// expireRunKey moves the end of a run key into the past.
func (f *fixture) expireRunKey(t *testing.T, parent, id string) {
	t.Helper()
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+id, "expires", 1).Err())
	f.setScore(t, "run-keys", id, 1)
	f.setScore(t, "run-keys-of:"+parent, id, 1)
}

func (f *fixture) keyIsAccepted(t *testing.T, key picket.Secret) bool {
	t.Helper()
	who, err := f.Authenticate(f.ctx, key)
	if picket.CodeOf(err) == picket.CodeUnauthenticated {
		return false
	}
	ok(t, err)
	if !who.IsRunKey() || who.May(picket.ScopeOperator, picket.ScopeReviewer) {
		t.Errorf("the run key speaks for %+v", who)
	}
	return true
}

// A run key ends with the key that made it, in the same step, and its leases
// end even when it had expired before.
func TestARunKeyEndsWithTheKeyThatMadeIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent, other := f.mustCreateKey(t, picket.ScopeOperator), f.mustCreateKey(t, picket.ScopeOperator)
		live, old, foreign := f.mustCreateRunKey(t, parent), f.mustCreateRunKey(t, parent), f.mustCreateRunKey(t, other)
		var held []picket.LeaseCredential
		for _, k := range []picket.NewRunKey{live, old, foreign} {
			f.mustSubmit(t, picket.TaskSpec{})
			held = append(held, f.openLease(t, f.acquireWithKey(t, k.KeyID)))
			if !f.keyIsAccepted(t, k.Key) {
				t.Error("a new run key is not valid")
			}
		}
		f.expireRunKey(t, parent, old.KeyID)
		_, err := f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1 << 30},
			100)
		ok(t, err)
		for _, h := range held { // an expiry ends no lease
			_, err := f.Renew(f.ctx, h)
			ok(t, err)
		}
		f.mustRevokeKey(t, parent, nil)
		said := f.auditLog(t, picket.EventKeyRevoked)
		if data := string(said[len(said)-1].Data); !strings.Contains(data,
			`"runKeys":2,"runKeyLeases":"ended","liveRunKeyLeases":2`) {
			t.Errorf("the audit log says %s", data)
		}
		for _, h := range held[:2] {
			_, err := f.Renew(f.ctx, h)
			refused(t, err, picket.CodeLeaseExpired)
		}
		_, err = f.Renew(f.ctx, held[2])
		ok(t, err)
		if f.keyIsAccepted(t, live.Key) || f.keyIsAccepted(t, old.Key) || !f.keyIsAccepted(t, foreign.Key) {
			t.Error("the wrong run keys hold after the revocation")
		}
		_, err = f.Acquire(f.ctx, withKey(live.KeyID), picket.AcquireRequest{AgentID: "a1"})
		refused(t, err, picket.CodeUnauthenticated)
		_, err = f.RenewRunKey(f.ctx, live.KeyID)
		refused(t, err, picket.CodeUnauthenticated)
		_, err = f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
		refused(t, err, picket.CodeUnauthenticated)
		if n, err := f.RunChores(f.ctx, 100); err != nil || n == 0 {
			t.Errorf("nothing ended the leases of the run keys: %d, %v", n, err)
		}
	})
}

// The leases are kept when the person confirms it, and the run key ends all the same.
func TestKeptLeasesOfARunKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.mustCreateKey(t, picket.ScopeOperator)
		k := f.mustCreateRunKey(t, parent)
		f.mustSubmit(t, picket.TaskSpec{})
		h := f.openLease(t, f.acquireWithKey(t, k.KeyID))
		f.mustRevokeKey(t, parent, ptr(true))
		_, err := f.Renew(f.ctx, h)
		ok(t, err)
		if f.keyIsAccepted(t, k.Key) {
			t.Error("the run key of a revoked key holds")
		}
		f.mustRevokeKey(t, parent, ptr(false))
		_, err = f.Renew(f.ctx, h)
		refused(t, err, picket.CodeLeaseExpired)
	})
}

// A run key that has expired leaves nothing behind, no matter who comes by first: the
// sweep, the next run key of the same parent, or its own adapter.
func TestARunKeyLeavesNothingBehind(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.mustCreateKey(t, picket.ScopeOperator)
		before, err := f.raw.DBSize(f.ctx).Result()
		ok(t, err)
		keys := func(want int64) {
			t.Helper()
			if n, err := f.raw.DBSize(f.ctx).Result(); err != nil || n != before+want {
				t.Errorf("%d keys of the store are left over, want %d (%v)", n-before, want, err)
			}
		}
		first := f.mustCreateRunKey(t, parent)
		keys(4)
		f.expireRunKey(t, parent, first.KeyID)
		_, err = f.ApplyRetention(f.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1 << 30}, 100)
		ok(t, err)
		keys(0)
		second := f.mustCreateRunKey(t, parent)
		f.expireRunKey(t, parent, second.KeyID)
		third := f.mustCreateRunKey(t, parent)
		keys(4)
		for range 2 { // the answer of the first may be lost
			ok(t, f.EndRunKey(f.ctx, third.KeyID))
		}
		keys(0)
		if f.keyIsAccepted(t, third.Key) {
			t.Error("a run key that its adapter has ended is valid")
		}
	})
}

func TestARunKeyLivesADayAfterItsRenewal(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.ctx, operator,
			picket.KeyRequest{
				Name:      "p",
				Scopes:    []picket.Scope{picket.ScopeOperator},
				ExpiresAt: picket.InstantOf(time.Now().Add(time.Hour)),
			})
		ok(t, err)
		short, long := f.mustCreateRunKey(t, k.KeyID), f.mustCreateRunKey(t, f.mustCreateKey(t, picket.ScopeOperator))
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+long.KeyID, "expires", time.Now().Add(time.Minute).UnixMilli()).
			Err())
		for id, want := range map[string]time.Duration{short.KeyID: time.Hour, long.KeyID: picket.RunKeyLifetime} {
			got, err := f.RenewRunKey(f.ctx, id)
			ok(t, err)
			if left := time.Until(got.ExpiresAt.Time()); left > want || left < want-2*time.Minute {
				t.Errorf("lives for %s, want %s", left, want)
			}
		}
	})
}

// One key can have so many run keys; those that ended make room.
func TestRunKeysAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.mustCreateKey(t, picket.ScopeOperator)
		end := f.mustCreateRunKey(t, parent)
		for i := range picket.MaxRunKeys - 1 {
			f.setScore(t, "run-keys-of:"+parent, fmt.Sprint("key_", i), float64(time.Now().Add(time.Hour).UnixMilli()))
		}
		_, err := f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
		refused(t, err, picket.CodeQuota)
		ok(t, f.EndRunKey(f.ctx, end.KeyID))
		f.mustCreateRunKey(t, parent)
	})
}

// A request that is repeated makes one run key, and shows its secret again.
func TestARunKeyIsMadeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by := idempotent("k")
		by.Key = f.mustCreateKey(t, picket.ScopeOperator)
		req := picket.RunKeyRequest{AgentID: "a1"}
		first, err := f.CreateRunKey(f.ctx, by, req)
		ok(t, err)
		again, err := f.CreateRunKey(f.ctx, by, req)
		ok(t, err)
		if first != again || !f.keyIsAccepted(t, again.Key) {
			t.Errorf("first %+v, again %+v", first, again)
		}
		f.mustRevokeKey(t, first.KeyID, nil)
		_, err = f.CreateRunKey(f.ctx, by, req)
		refused(t, err, picket.CodeStateConflict)
	})
}
