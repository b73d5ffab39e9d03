package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// expireRunKey moves the end of a run key into the past.
func (f *fixture) expireRunKey(t *testing.T, parent, id string) {
	t.Helper()
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+id, "expires", 1).Err())
	f.SetScore(t, "run-keys", id, 1)
	f.SetScore(t, "run-keys-of:"+parent, id, 1)
}

func (f *fixture) keyIsAccepted(t *testing.T, key picket.Secret) bool {
	t.Helper()
	who, err := f.Authenticate(f.Ctx, key)
	if picket.CodeOf(err) == picket.CodeUnauthenticated {
		return false
	}
	kit.OK(t, err)
	if !who.IsRunKey() || who.May(picket.ScopeOperator, picket.ScopeReviewer) {
		t.Errorf("the run key speaks for %+v", who)
	}
	return true
}

// A run key ends with the key that made it, in the same step, and its leases
// end even when it had expired before.
func TestARunKeyEndsWithTheKeyThatMadeIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent, other := f.MustCreateKey(t, picket.ScopeOperator), f.MustCreateKey(t, picket.ScopeOperator)
		live, old, foreign := f.MustCreateRunKey(t, parent), f.MustCreateRunKey(t, parent), f.MustCreateRunKey(t, other)
		var held []picket.LeaseCredential
		for _, k := range []picket.NewRunKey{live, old, foreign} {
			f.MustSubmit(t, picket.TaskSpec{})
			held = append(held, f.OpenLease(t, f.AcquireWithKey(t, k.KeyID)))
			if !f.keyIsAccepted(t, k.Key) {
				t.Error("a new run key is not valid")
			}
		}
		f.expireRunKey(t, parent, old.KeyID)
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1 << 30},
			100)
		kit.OK(t, err)
		for _, h := range held { // an expiry ends no lease
			_, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
		}
		f.MustRevokeKey(t, parent, nil)
		said := f.AuditLog(t, picket.EventKeyRevoked)
		if data := string(said[len(said)-1].Data); !strings.Contains(data,
			`"runKeys":2,"runKeyLeases":"ended","liveRunKeyLeases":2`) {
			t.Errorf("the audit log says %s", data)
		}
		for _, h := range held[:2] {
			_, err := f.Renew(f.Ctx, h)
			kit.Refused(t, err, picket.CodeLeaseExpired)
		}
		_, err = f.Renew(f.Ctx, held[2])
		kit.OK(t, err)
		if f.keyIsAccepted(t, live.Key) || f.keyIsAccepted(t, old.Key) || !f.keyIsAccepted(t, foreign.Key) {
			t.Error("the wrong run keys hold after the revocation")
		}
		_, err = f.Acquire(f.Ctx, kit.WithKey(live.KeyID), picket.AcquireRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
		_, err = f.RenewRunKey(f.Ctx, live.KeyID)
		kit.Refused(t, err, picket.CodeUnauthenticated)
		_, err = f.CreateRunKey(f.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeUnauthenticated)
		if n, err := f.RunChores(f.Ctx, 100); err != nil || n == 0 {
			t.Errorf("nothing ended the leases of the run keys: %d, %v", n, err)
		}
	})
}

// The leases are kept when the person confirms it, and the run key ends all the same.
func TestKeptLeasesOfARunKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.MustCreateKey(t, picket.ScopeOperator)
		k := f.MustCreateRunKey(t, parent)
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireWithKey(t, k.KeyID))
		f.MustRevokeKey(t, parent, kit.Ptr(true))
		_, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		if f.keyIsAccepted(t, k.Key) {
			t.Error("the run key of a revoked key holds")
		}
		f.MustRevokeKey(t, parent, kit.Ptr(false))
		_, err = f.Renew(f.Ctx, h)
		kit.Refused(t, err, picket.CodeLeaseExpired)
	})
}

// A run key that has expired leaves nothing behind, whether the sweep, the next run key of the same
// parent or its own adapter finds it first.
func TestARunKeyLeavesNothingBehind(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.MustCreateKey(t, picket.ScopeOperator)
		before, err := f.Raw.DBSize(f.Ctx).Result()
		kit.OK(t, err)
		keys := func(want int64) {
			t.Helper()
			if n, err := f.Raw.DBSize(f.Ctx).Result(); err != nil || n != before+want {
				t.Errorf("%d keys of the store are left over, want %d (%v)", n-before, want, err)
			}
		}
		first := f.MustCreateRunKey(t, parent)
		keys(4)
		f.expireRunKey(t, parent, first.KeyID)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1 << 30}, 100)
		kit.OK(t, err)
		keys(0)
		second := f.MustCreateRunKey(t, parent)
		f.expireRunKey(t, parent, second.KeyID)
		third := f.MustCreateRunKey(t, parent)
		keys(4)
		for range 2 { // the answer of the first may be lost
			kit.OK(t, f.EndRunKey(f.Ctx, third.KeyID))
		}
		keys(0)
		if f.keyIsAccepted(t, third.Key) {
			t.Error("a run key that its adapter has ended is valid")
		}
	})
}

func TestARunKeyLivesADayAfterItsRenewal(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{
				Name:      "p",
				Scopes:    []picket.Scope{picket.ScopeOperator},
				ExpiresAt: picket.InstantOf(time.Now().Add(time.Hour)),
			})
		kit.OK(t, err)
		short, long := f.MustCreateRunKey(t, k.KeyID), f.MustCreateRunKey(t, f.MustCreateKey(t, picket.ScopeOperator))
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+long.KeyID, "expires", time.Now().Add(time.Minute).UnixMilli()).
			Err())
		for id, want := range map[string]time.Duration{short.KeyID: time.Hour, long.KeyID: picket.RunKeyLifetime} {
			got, err := f.RenewRunKey(f.Ctx, id)
			kit.OK(t, err)
			if left := time.Until(got.ExpiresAt.Time()); left > want || left < want-2*time.Minute {
				t.Errorf("lives for %s, want %s", left, want)
			}
		}
	})
}

// One key can have so many run keys; those that ended make room.
func TestRunKeysAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		parent := f.MustCreateKey(t, picket.ScopeOperator)
		end := f.MustCreateRunKey(t, parent)
		for i := range picket.MaxRunKeys - 1 {
			f.SetScore(t, "run-keys-of:"+parent, fmt.Sprint("key_", i), float64(time.Now().Add(time.Hour).UnixMilli()))
		}
		_, err := f.CreateRunKey(f.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "a1"})
		kit.Refused(t, err, picket.CodeQuota)
		kit.OK(t, f.EndRunKey(f.Ctx, end.KeyID))
		f.MustCreateRunKey(t, parent)
	})
}

// A request that is repeated makes one run key, and shows its secret again.
func TestARunKeyIsMadeOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		by := kit.Idempotent("k")
		by.Key = f.MustCreateKey(t, picket.ScopeOperator)
		req := picket.RunKeyRequest{AgentID: "a1"}
		first, err := f.CreateRunKey(f.Ctx, by, req)
		kit.OK(t, err)
		again, err := f.CreateRunKey(f.Ctx, by, req)
		kit.OK(t, err)
		if first != again || !f.keyIsAccepted(t, again.Key) {
			t.Errorf("first %+v, again %+v", first, again)
		}
		f.MustRevokeKey(t, first.KeyID, nil)
		_, err = f.CreateRunKey(f.Ctx, by, req)
		kit.Refused(t, err, picket.CodeStateConflict)
	})
}
