package model

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Moves of keys and of the format of the store.

// acquireWithRevokedKey acquires with a key that is revoked right after that: its leases end or
// are kept, and it gets no other.
func (x *machine) acquireWithRevokedKey() {
	k, err := x.e.CreateKey(x.ctx, picket.Caller{Actor: "key_a"},
		picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	x.ok(err)
	x.m.emit(picket.EventKeyCreated, "")
	by := picket.Caller{Actor: "key_a", Key: k.KeyID}
	a := acquirer{id: "a3", role: "coder", caps: []string{"go", "py"}, by: modelCaller{key: "key_a"}}
	req := picket.AcquireRequest{AgentID: a.id, Role: a.role, Capabilities: a.caps, Max: kit.Ptr(2)}
	got, err := x.e.Acquire(x.ctx, by, req)
	want, code := x.m.grant(requestID{}, a, runsOf(got), 2)
	if !x.agree(err, code, "acquire with a key") {
		return
	}
	x.granted(a, got, want)
	keep := x.chance("keep", 30)
	_, err = x.e.RevokeKeyWith(x.ctx, picket.Caller{Actor: "key_a"}, k.KeyID, picket.KeyRevocation{KeepLeases: &keep})
	x.ok(err)
	x.m.emit(picket.EventKeyRevoked, "")
	for _, rid := range want {
		if !keep {
			x.m.expire(x.m.runs[rid], picket.ExitReleased)
			x.m.runs[rid].keyEnded = true
		}
		if x.chance("bundle", 30) {
			x.bundleBy(x.trueCredential(rid))
		}
	}
	_, err = x.e.Acquire(x.ctx, by, req)
	x.agree(err, picket.CodeUnauthenticated, "acquire with a revoked key")
}

// showNewerFormat shows the engine a store of a later version for a moment.
func (x *machine) showNewerFormat() {
	x.ok(x.raw.HSet(x.ctx, x.prefix+"meta", "format", 9).Err())
	_, err := x.e.Stats(x.ctx)
	x.agree(err, picket.CodeUnavailable, "a newer store")
	x.ok(x.raw.HSet(x.ctx, x.prefix+"meta", "format", kit.Format).Err())
}
