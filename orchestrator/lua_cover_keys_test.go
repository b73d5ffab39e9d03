package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// coverRevokedKeys takes the branches of keys that are revoked while they have
// leases.
func coverRevokedKeys(t *testing.T, f *fixture) {
	f.cancelAll(t)
	key := f.mustCreateKey(t, picket.ScopeAgent)
	f.mustSubmit(t, picket.TaskSpec{})
	f.mustSubmit(t, picket.TaskSpec{})
	kept := f.acquireWithKey(t, key)
	for i := range 100 { // as many as one step ends, none of which is a lease
		f.setScore(t, "leases-of:"+key, fmt.Sprint("task_", i), -1)
	}
	f.mustRevokeKey(t, key, ptr(true))
	_, err := f.Acquire(f.ctx, withKey(key), picket.AcquireRequest{AgentID: "a1"})
	refused(t, err, picket.CodeUnauthenticated)
	f.mustRevokeKey(t, key, ptr(false))
	_, err = f.Renew(f.ctx, f.openLease(t, kept))
	refused(t, err, picket.CodeLeaseExpired)
	refused(t, f.RunEvidence(f.ctx, f.openLease(t, kept), evidenceWithDiff("+late")), picket.CodeLeaseExpired)
	f.setScore(t, "leases-of:"+key, "task_x", -1)
	_, err = f.RunChores(f.ctx, 1) // one of two
	ok(t, err)
	_, err = f.RunChores(f.ctx, 100)
	ok(t, err)
	f.mustRevokeKey(t, key, nil)
	f.cancelAll(t)
}

// coverRunKeys takes the branches of run keys.
func coverRunKeys(t *testing.T, f *fixture) {
	f.cancelAll(t)
	parent := f.mustCreateKey(t, picket.ScopeOperator)
	by := idempotent("r")
	by.Key = parent
	made, err := f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	ok(t, err)
	_, err = f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	ok(t, err)
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeIdempotencyConflict)
	f.mustSubmit(t, picket.TaskSpec{})
	f.acquireWithKey(t, made.KeyID)
	ok(t, f.EndRunKey(f.ctx, made.KeyID)) // kept for its lease
	_, err = f.RenewRunKey(f.ctx, made.KeyID)
	refused(t, err, picket.CodeUnauthenticated)
	_, err = f.RenewRunKey(f.ctx, parent)
	refused(t, err, picket.CodeUnauthenticated)
	ok(t, f.EndRunKey(f.ctx, parent))
	free := f.mustCreateRunKey(t, parent)
	_, err = f.RenewRunKey(f.ctx, free.KeyID)
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+parent, "expires", "4000000000000").Err()) // a parent that expires
	_, err = f.RenewRunKey(f.ctx, free.KeyID)
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+parent, "expires", "0").Err())
	ok(t, f.EndRunKey(f.ctx, free.KeyID))
	for i := range picket.MaxRunKeys {
		f.setScore(t, "run-keys-of:"+parent, fmt.Sprint("key_", i), 4e12)
	}
	_, err = f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeQuota)
	for i := range picket.MaxRunKeys {
		ok(t, f.raw.ZRem(f.ctx, "pk:{default}:run-keys-of:"+parent, fmt.Sprint("key_", i)).Err())
	}
	f.mustCreateRunKey(t, parent)
	f.mustRevokeKey(t, parent, ptr(true))
	f.mustRevokeKey(t, parent, ptr(false))
	f.mustRevokeKey(t, parent, ptr(false))
	_, err = f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeUnauthenticated)
	f.cancelAll(t)
}
