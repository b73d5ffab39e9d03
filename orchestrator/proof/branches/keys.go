package branches

import (
	"fmt"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverRevokedKeys takes the branches of keys that are revoked while they have
// leases.
func coverRevokedKeys(t *testing.T, f *fixture) {
	f.CancelAll(t)
	key := f.MustCreateKey(t, picket.ScopeAgent)
	f.MustSubmit(t, picket.TaskSpec{})
	f.MustSubmit(t, picket.TaskSpec{})
	kept := f.AcquireWithKey(t, key)
	for i := range 100 { // as many as one step ends, none of which is a lease
		f.SetScore(t, "leases-of:"+key, fmt.Sprint("task_", i), -1)
	}
	f.MustRevokeKey(t, key, kit.Ptr(true))
	_, err := f.Acquire(f.Ctx, kit.WithKey(key), picket.AcquireRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeUnauthenticated)
	f.MustRevokeKey(t, key, kit.Ptr(false))
	_, err = f.Renew(f.Ctx, f.OpenLease(t, kept))
	kit.Refused(t, err, picket.CodeLeaseExpired)
	kit.Refused(t, f.RunEvidence(f.Ctx, f.OpenLease(t, kept), kit.EvidenceWithDiff("+late")), picket.CodeLeaseExpired)
	f.SetScore(t, "leases-of:"+key, "task_x", -1)
	_, err = f.RunChores(f.Ctx, 1) // one of two
	kit.OK(t, err)
	_, err = f.RunChores(f.Ctx, 100)
	kit.OK(t, err)
	f.MustRevokeKey(t, key, nil)
	f.CancelAll(t)
}

// coverRunKeys takes the branches of run keys.
func coverRunKeys(t *testing.T, f *fixture) {
	f.CancelAll(t)
	parent := f.MustCreateKey(t, picket.ScopeOperator)
	by := kit.Idempotent("r")
	by.Key = parent
	made, err := f.CreateRunKey(f.Ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	kit.OK(t, err)
	_, err = f.CreateRunKey(f.Ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	kit.OK(t, err)
	by.Idempotency.Body = strings.Repeat("c", 64)
	_, err = f.CreateRunKey(f.Ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)
	client := f.MustCreateClientKey(t, picket.AnyRole)
	_, err = f.CreateRunKey(f.Ctx, kit.WithKey(client.KeyID), picket.RunKeyRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeForbidden)
	f.MustSubmit(t, picket.TaskSpec{})
	f.AcquireWithKey(t, made.KeyID)
	kit.OK(t, f.EndRunKey(f.Ctx, made.KeyID)) // kept for its lease
	_, err = f.RenewRunKey(f.Ctx, made.KeyID)
	kit.Refused(t, err, picket.CodeUnauthenticated)
	_, err = f.RenewRunKey(f.Ctx, parent)
	kit.Refused(t, err, picket.CodeUnauthenticated)
	kit.OK(t, f.EndRunKey(f.Ctx, parent))
	free := f.MustCreateRunKey(t, parent)
	_, err = f.RenewRunKey(f.Ctx, free.KeyID)
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+parent, "expires", "4000000000000").Err()) // a parent that expires
	_, err = f.RenewRunKey(f.Ctx, free.KeyID)
	kit.OK(t, err)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+parent, "expires", "0").Err())
	kit.OK(t, f.EndRunKey(f.Ctx, free.KeyID))
	for i := range picket.MaxRunKeys {
		f.SetScore(t, "run-keys-of:"+parent, fmt.Sprint("key_", i), 4e12)
	}
	_, err = f.CreateRunKey(f.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeQuota)
	for i := range picket.MaxRunKeys {
		kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:run-keys-of:"+parent, fmt.Sprint("key_", i)).Err())
	}
	f.MustCreateRunKey(t, parent)
	f.MustRevokeKey(t, parent, kit.Ptr(true))
	f.MustRevokeKey(t, parent, kit.Ptr(false))
	f.MustRevokeKey(t, parent, kit.Ptr(false))
	_, err = f.CreateRunKey(f.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	kit.Refused(t, err, picket.CodeUnauthenticated)
	f.CancelAll(t)
}
