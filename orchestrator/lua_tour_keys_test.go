package orchestrator_test

import (
	"fmt"
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
	f.score(t, "leases-of:"+key, "task_x", -1)
	_, err = f.Chore(f.ctx, 1) // one of two
	ok(t, err)
	_, err = f.Chore(f.ctx, 100)
	ok(t, err)
	f.revoke(t, key, nil)
	f.clear(t)
}
