package kit

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// AcquireWithNewKey acquires n leases with a new key.
func (f *Fixture) AcquireWithNewKey(t *testing.T, n int) (key string) {
	t.Helper()
	k, err := f.CreateKey(f.Ctx, Operator, picket.KeyRequest{Name: "many", Scopes: []picket.Scope{picket.ScopeAgent}})
	OK(t, err)
	by := picket.Caller{Actor: k.KeyID, Key: k.KeyID}
	for i := range n {
		f.MustSubmit(t, picket.TaskSpec{Role: "many"})
		l, err := f.Acquire(f.Ctx, by, picket.AcquireRequest{AgentID: fmt.Sprint("many-", i), Role: "many"})
		OK(t, err)
		if len(l) != 1 {
			t.Fatalf("leased %+v", l)
		}
	}
	return k.KeyID
}

// AddOrphanLeases puts tasks that are gone into the list of a key, behind its leases.
func (f *Fixture) AddOrphanLeases(t *testing.T, key string, n int) {
	t.Helper()
	for i := range n {
		OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:leases-of:"+key,
			redis.Z{Score: 1e15, Member: fmt.Sprint("task_gone", i)}).Err())
	}
}

// LoginHost is the host name of the logins in these tests.
const LoginHost = "one.localhost"

// MustCreateKey makes a key and returns its id.
func (f *Fixture) MustCreateKey(t *testing.T, scopes ...picket.Scope) string {
	t.Helper()
	k, err := f.CreateKey(f.Ctx, Operator, picket.KeyRequest{Name: "worker", Scopes: scopes})
	OK(t, err)
	return k.KeyID
}

// MustCreateClientKey makes a client key with a rate of its own.
func (f *Fixture) MustCreateClientKey(t *testing.T, roles ...string) picket.NewKey {
	t.Helper()
	k, err := f.CreateKey(f.Ctx, Operator, picket.KeyRequest{
		Name:   "partner",
		Scopes: []picket.Scope{picket.ScopeClient},
		Client: &picket.ClientLimits{Roles: roles, MaxOpen: 20, RatePerMinute: 60},
	})
	OK(t, err)
	return k
}

func WithKey(id string) picket.Caller { return picket.Caller{Actor: id, Key: id} }

// AcquireWithKey acquires one lease with a key and confirms it.
func (f *Fixture) AcquireWithKey(t *testing.T, key string) picket.Lease {
	t.Helper()
	leases, err := f.Acquire(f.Ctx, WithKey(key), picket.AcquireRequest{AgentID: "a1"})
	OK(t, err)
	if len(leases) != 1 {
		t.Fatalf("acquired %d leases, want 1", len(leases))
	}
	f.MustRenew(t, leases[0])
	return leases[0]
}

func (f *Fixture) MustRevokeKey(t *testing.T, key string, keep *bool) picket.APIKey {
	t.Helper()
	k, err := f.RevokeKeyWith(f.Ctx, Operator, key, picket.KeyRevocation{KeepLeases: keep})
	OK(t, err)
	return k
}

// MustCreateRunKey makes a run key of a parent for the agent a1.
func (f *Fixture) MustCreateRunKey(t *testing.T, parent string) picket.NewRunKey {
	t.Helper()
	k, err := f.CreateRunKey(f.Ctx, WithKey(parent), picket.RunKeyRequest{AgentID: "a1"})
	OK(t, err)
	return k
}
