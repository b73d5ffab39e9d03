package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// tourRevoked takes the branches of keys that are revoked while they have
// leases.
func tourRevoked(t *testing.T, f *fixture) {
	f.clear(t)
	key := f.apiKey(t, picket.ScopeAgent)
	f.submit(t, picket.TaskSpec{})
	f.submit(t, picket.TaskSpec{})
	kept := f.leaseWith(t, key)
	for i := range 100 { // as many as one step ends, none of which is a lease
		f.score(t, "leases-of:"+key, fmt.Sprint("task_", i), -1)
	}
	f.revoke(t, key, ptr(true))
	_, err := f.Acquire(f.ctx, withKey(key), picket.AcquireRequest{AgentID: "a1"})
	refused(t, err, picket.CodeUnauthenticated)
	f.revoke(t, key, ptr(false))
	_, err = f.Renew(f.ctx, f.held(t, kept))
	refused(t, err, picket.CodeLeaseExpired)
	refused(t, f.RunEvidence(f.ctx, f.held(t, kept), diffOf("+late")), picket.CodeLeaseExpired)
	f.score(t, "leases-of:"+key, "task_x", -1)
	_, err = f.Chore(f.ctx, 1) // one of two
	ok(t, err)
	_, err = f.Chore(f.ctx, 100)
	ok(t, err)
	f.revoke(t, key, nil)
	f.clear(t)
}

// tourRunKeys takes the branches of run keys.
func tourRunKeys(t *testing.T, f *fixture) {
	f.clear(t)
	parent := f.apiKey(t, picket.ScopeOperator)
	by := once("r")
	by.Key = parent
	made, err := f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	ok(t, err)
	_, err = f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	ok(t, err)
	by.Once.Body = strings.Repeat("c", 64)
	_, err = f.CreateRunKey(f.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeIdempotencyConflict)
	f.submit(t, picket.TaskSpec{})
	f.leaseWith(t, made.KeyID)
	ok(t, f.EndRunKey(f.ctx, made.KeyID)) // kept for its lease
	_, err = f.RenewRunKey(f.ctx, made.KeyID)
	refused(t, err, picket.CodeUnauthenticated)
	_, err = f.RenewRunKey(f.ctx, parent)
	refused(t, err, picket.CodeUnauthenticated)
	ok(t, f.EndRunKey(f.ctx, parent))
	free := f.runKey(t, parent)
	_, err = f.RenewRunKey(f.ctx, free.KeyID)
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+parent, "expires", "4000000000000").Err()) // a parent that expires
	_, err = f.RenewRunKey(f.ctx, free.KeyID)
	ok(t, err)
	ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+parent, "expires", "0").Err())
	ok(t, f.EndRunKey(f.ctx, free.KeyID))
	for i := range picket.MaxRunKeys {
		f.score(t, "run-keys-of:"+parent, fmt.Sprint("key_", i), 4e12)
	}
	_, err = f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeQuota)
	for i := range picket.MaxRunKeys {
		ok(t, f.raw.ZRem(f.ctx, "pk:{default}:run-keys-of:"+parent, fmt.Sprint("key_", i)).Err())
	}
	f.runKey(t, parent)
	f.revoke(t, parent, ptr(true))
	f.revoke(t, parent, ptr(false))
	f.revoke(t, parent, ptr(false))
	_, err = f.CreateRunKey(f.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	refused(t, err, picket.CodeUnauthenticated)
	f.clear(t)
}
