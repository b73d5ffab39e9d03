package attacks

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// RunKeyAttacks try to keep a run key, or what it holds, beyond what its parent
// allows.
var RunKeyAttacks = []func(*Attacker){runKeyOutlivesParent, runKeyWithKeptLeases, runKeyExpires, runKeyLivesLonger,
	runKeyMakesAnother, runKeysWithoutEnd, clientKeyMakesRunKey}

// parent makes a key of an operator that ends after a time, or never for 0.
func (h *Attacker) parent(life time.Duration) string {
	h.Helper()
	req := picket.KeyRequest{Name: "person", Scopes: []picket.Scope{picket.ScopeOperator}}
	if life > 0 {
		req.ExpiresAt = picket.InstantOf(time.Now().Add(life))
	}
	k, err := h.CreateKey(h.Ctx, kit.Operator, req)
	h.OK(err)
	return k.KeyID
}

func (h *Attacker) runKey(parent string) picket.NewRunKey {
	h.Helper()
	k, err := h.CreateRunKey(h.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "greedy"})
	h.OK(err)
	return k
}

// leaseOf leases a new task with a key.
func (h *Attacker) leaseOf(key string) picket.LeaseCredential {
	h.Helper()
	_, err := h.Submit(h.Ctx, kit.Operator, picket.TaskSpec{Title: "a task"})
	h.OK(err)
	leases, err := h.Acquire(h.Ctx, kit.WithKey(key), picket.AcquireRequest{AgentID: "greedy"})
	h.OK(err)
	if len(leases) != 1 {
		h.Fatalf("%d leases", len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.OK(err)
	return held
}

// wantLease wants that a lease is renewed, or that it has ended.
func (h *Attacker) wantLease(held picket.LeaseCredential, want bool) {
	h.Helper()
	_, err := h.Renew(h.Ctx, held)
	if want {
		h.OK(err)
	} else if picket.CodeOf(err) != picket.CodeLeaseExpired {
		h.Fatalf("a lease of a revoked run key: %v", err)
	}
}

// wantKey wants that a key is accepted, can be renewed and acquires, or none of these.
func (h *Attacker) wantKey(k picket.NewRunKey, want bool) {
	h.Helper()
	who, err := h.Authenticate(h.Ctx, k.Key)
	_, renewed := h.RenewRunKey(h.Ctx, k.KeyID)
	_, acquired := h.Acquire(h.Ctx, kit.WithKey(k.KeyID), picket.AcquireRequest{AgentID: "greedy"})
	for did, err := range map[string]error{"authenticates": err, "is renewed": renewed, "acquires": acquired} {
		if want && err != nil || !want && picket.CodeOf(err) != picket.CodeUnauthenticated {
			h.Fatalf("a run key %s: %v", did, err)
		}
	}
	if want && (!who.IsRunKey() || who.AgentID != "greedy" ||
		who.May(picket.ScopeOperator, picket.ScopeReviewer, picket.ScopeAdmin)) {
		h.Fatalf("a run key speaks for %+v", who)
	}
}

// expireRunKey moves the end of a run key into the past.
func (h *Attacker) expireRunKey(parent string, k picket.NewRunKey) {
	h.Helper()
	h.OK(h.Raw.HSet(h.Ctx, h.Prefix+"key:"+k.KeyID, "expires", 1).Err())
	for _, index := range []string{"run-keys", "run-keys-of:" + parent} {
		// An index that does not list the key is left as it is.
		h.OK(h.Raw.ZAddXX(h.Ctx, h.Prefix+index, redis.Z{Score: 1, Member: k.KeyID}).Err())
	}
}

func (h *Attacker) retain() {
	h.Helper()
	_, err := h.ApplyRetention(h.Ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1e6}, 100)
	h.OK(err)
}

// remainingKeys names the keys of the store that belong to a run key or to its parent's list.
func (h *Attacker) remainingKeys(parent string, k picket.NewRunKey) (left []string) {
	h.Helper()
	if n, err := h.Raw.Exists(h.Ctx, h.Prefix+"key:"+k.KeyID).Result(); err != nil || n > 0 {
		left = append(left, fmt.Sprint("its row ", err))
	}
	for _, index := range []string{"keys", "run-keys", "run-keys-of:" + parent} {
		if h.Raw.ZScore(h.Ctx, h.Prefix+index, k.KeyID).Err() == nil {
			left = append(left, index)
		}
	}
	sum := sha256.Sum256([]byte(k.Key.Reveal()))
	if h.Raw.Get(h.Ctx, h.Prefix+"keyhash:"+hex.EncodeToString(sum[:])).Err() == nil {
		left = append(left, "its hash")
	}
	return left
}

// runKeyOutlivesParent uses run keys, and leases of theirs, after the key that
// made them was revoked. Those of another key go on.
func runKeyOutlivesParent(h *Attacker) {
	parent, other := h.parent(0), h.parent(0)
	live, old, foreign := h.runKey(parent), h.runKey(parent), h.runKey(other)
	h.wantKey(live, true)
	held := []picket.LeaseCredential{h.leaseOf(live.KeyID), h.leaseOf(old.KeyID), h.leaseOf(foreign.KeyID)}
	h.expireRunKey(parent, old)
	h.retain()
	_, err := h.RevokeKey(h.Ctx, kit.Operator, parent)
	h.OK(err)
	h.wantKey(live, false)
	h.wantKey(old, false)
	h.wantLease(held[0], false)
	h.wantLease(held[1], false)
	h.wantLease(held[2], true)
	h.wantKey(foreign, true)
	h.endsByChore(held[:2])
	for _, l := range held {
		h.End(l)
	}
}

// endsByChore wants that the tasks of void leases go back to their lane.
func (h *Attacker) endsByChore(held []picket.LeaseCredential) {
	h.Helper()
	_, err := h.RunChores(h.Ctx, 100)
	h.OK(err)
	for _, l := range held {
		task, err := h.Task(h.Ctx, l.TaskID)
		h.OK(err)
		if task.State != picket.TaskQueued {
			h.Fatalf("the task of a lease that ended with its key is %s", task.State)
		}
	}
}

// runKeyWithKeptLeases has its leases kept by one revocation and ended by a later one.
func runKeyWithKeptLeases(h *Attacker) {
	parent := h.parent(0)
	k := h.runKey(parent)
	held := h.leaseOf(k.KeyID)
	keep, end := true, false
	_, err := h.RevokeKeyWith(h.Ctx, kit.Operator, parent, picket.KeyRevocation{KeepLeases: &keep})
	h.OK(err)
	h.wantKey(k, false)
	h.wantLease(held, true)
	_, err = h.RevokeKeyWith(h.Ctx, kit.Operator, parent, picket.KeyRevocation{KeepLeases: &end})
	h.OK(err)
	h.wantLease(held, false)
	h.End(held)
}

// runKeyExpires ends by time, or because its adapter ended it. Its leases go on,
// and its row is deleted once it has none.
func runKeyExpires(h *Attacker) {
	parent := h.parent(0)
	for _, ended := range []func(k picket.NewRunKey){
		func(k picket.NewRunKey) { h.expireRunKey(parent, k); h.retain() },
		func(k picket.NewRunKey) { h.OK(h.EndRunKey(h.Ctx, k.KeyID)) },
		func(k picket.NewRunKey) { h.expireRunKey(parent, k); h.runKey(parent) },
	} {
		k := h.runKey(parent)
		held := h.leaseOf(k.KeyID)
		ended(k)
		h.wantKey(k, false)
		h.wantLease(held, true)
		if left := h.remainingKeys(parent, k); len(left) != 5 {
			h.Fatalf("of a run key with a lease there is %v", left)
		}
		h.End(held)
		ended(k)
		if left := h.remainingKeys(parent, k); len(left) > 0 {
			h.Fatalf("a run key that has expired leaves behind %s", strings.Join(left, ", "))
		}
		h.OK(h.EndRunKey(h.Ctx, k.KeyID)) // the answer may have been lost
	}
}

// runKeyLivesLonger is made and renewed by a key that ends soon.
func runKeyLivesLonger(h *Attacker) {
	for _, life := range []time.Duration{time.Hour, 0} {
		k := h.runKey(h.parent(life))
		want := time.Hour
		if life == 0 {
			want = picket.RunKeyLifetime
		}
		got, err := h.RenewRunKey(h.Ctx, k.KeyID)
		h.OK(err)
		for did, ends := range map[string]picket.Instant{"made": k.ExpiresAt, "renewed": got.ExpiresAt} {
			if left := time.Until(ends.Time()); left > want+time.Minute || left < want-2*time.Minute {
				h.Fatalf("a run key that was %s lives for %s, want %s", did, left, want)
			}
		}
	}
	// A renewal makes a life longer that has become short.
	parent := h.parent(0)
	k := h.runKey(parent)
	h.OK(h.Raw.HSet(h.Ctx, h.Prefix+"key:"+k.KeyID, "expires", time.Now().Add(10*time.Minute).UnixMilli()).Err())
	got, err := h.RenewRunKey(h.Ctx, k.KeyID)
	h.OK(err)
	if left := time.Until(got.ExpiresAt.Time()); left < time.Hour {
		h.Fatalf("a run key that was renewed lives for %s", left)
	}
}

// runKeyMakesAnother asks for a run key under keys that may not have one.
func runKeyMakesAnother(h *Attacker) {
	parent := h.parent(0)
	k := h.runKey(parent)
	_, err := h.CreateRunKey(h.Ctx, kit.WithKey(k.KeyID), picket.RunKeyRequest{AgentID: "other"})
	if picket.CodeOf(err) != picket.CodeForbidden {
		h.Fatalf("a run key asked for a run key: %v", err)
	}
	if _, err := h.RenewRunKey(h.Ctx, parent); picket.CodeOf(err) != picket.CodeUnauthenticated {
		h.Fatalf("a key that is not a run key was renewed: %v", err)
	}
	_, err = h.RevokeKey(h.Ctx, kit.Operator, parent)
	h.OK(err)
	_, err = h.CreateRunKey(h.Ctx, kit.WithKey(parent), picket.RunKeyRequest{AgentID: "greedy"})
	if picket.CodeOf(err) != picket.CodeUnauthenticated {
		h.Fatalf("a revoked key has made a run key: %v", err)
	}
}

// clientKeyMakesRunKey asks for a run key, which has the scope agent, under a client key.
func clientKeyMakesRunKey(h *Attacker) {
	k, err := h.CreateKey(h.Ctx, kit.Operator, picket.KeyRequest{Name: "partner",
		Scopes: []picket.Scope{picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{picket.AnyRole}}})
	h.OK(err)
	_, err = h.CreateRunKey(h.Ctx, kit.WithKey(k.KeyID), picket.RunKeyRequest{AgentID: "greedy"})
	if picket.CodeOf(err) != picket.CodeForbidden {
		h.Fatalf("a client key asked for a run key: %v", err)
	}
}

// runKeysWithoutEnd makes more run keys than one key may have, and repeats one request.
func runKeysWithoutEnd(h *Attacker) {
	parent := h.parent(0)
	by := picket.Caller{
		Actor:       parent,
		Key:         parent,
		Idempotency: picket.Idempotency{Key: strings.Repeat("k", 38) + parent[4:], Body: strings.Repeat("b", 64)},
	}
	req := picket.RunKeyRequest{AgentID: "greedy"}
	first, err := h.CreateRunKey(h.Ctx, by, req)
	h.OK(err)
	again, err := h.CreateRunKey(h.Ctx, by, req)
	h.OK(err)
	if first != again {
		h.Fatalf("a repeated request made %s after %s", again.KeyID, first.KeyID)
	}
	for range picket.MaxRunKeys - 1 {
		h.runKey(parent)
	}
	_, err = h.CreateRunKey(h.Ctx, kit.WithKey(parent), req)
	h.wantQuotaRefusal(err, "run_keys")
	h.expireRunKey(parent, first)
	h.runKey(parent)
}
