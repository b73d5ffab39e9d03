package orchestrator_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// runKeyAttacks try to keep a run key, or what it holds, beyond what its parent
// allows.
var runKeyAttacks = []func(*attacker){runKeyOutlivesParent, runKeyWithKeptLeases, runKeyExpires, runKeyLivesLonger,
	runKeyMakesAnother, runKeysWithoutEnd}

// parent makes a key of an operator that ends after a time, or never for 0.
func (h *attacker) parent(life time.Duration) string {
	h.Helper()
	req := picket.KeyRequest{Name: "person", Scopes: []picket.Scope{picket.ScopeOperator}}
	if life > 0 {
		req.ExpiresAt = picket.InstantOf(time.Now().Add(life))
	}
	k, err := h.CreateKey(h.ctx, operator, req)
	h.ok(err)
	return k.KeyID
}

func (h *attacker) runKey(parent string) picket.NewRunKey {
	h.Helper()
	k, err := h.CreateRunKey(h.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "greedy"})
	h.ok(err)
	return k
}

// leaseOf leases a new task with a key.
func (h *attacker) leaseOf(key string) picket.LeaseCredential {
	h.Helper()
	_, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "a task"})
	h.ok(err)
	leases, err := h.Acquire(h.ctx, withKey(key), picket.AcquireRequest{AgentID: "greedy"})
	h.ok(err)
	if len(leases) != 1 {
		h.Fatalf("%d leases", len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	h.ok(err)
	return held
}

// wantLease wants that a lease is renewed, or that it has ended.
func (h *attacker) wantLease(held picket.LeaseCredential, want bool) {
	h.Helper()
	_, err := h.Renew(h.ctx, held)
	if want {
		h.ok(err)
	} else if picket.CodeOf(err) != picket.CodeLeaseExpired {
		h.Fatalf("a lease of a revoked run key: %v", err)
	}
}

// wantKey wants that a key is accepted, can be renewed and acquires, or none of these.
func (h *attacker) wantKey(k picket.NewRunKey, want bool) {
	h.Helper()
	who, err := h.Authenticate(h.ctx, k.Key)
	_, renewed := h.RenewRunKey(h.ctx, k.KeyID)
	_, acquired := h.Acquire(h.ctx, withKey(k.KeyID), picket.AcquireRequest{AgentID: "greedy"})
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
func (h *attacker) expireRunKey(parent string, k picket.NewRunKey) {
	h.Helper()
	h.ok(h.raw.HSet(h.ctx, h.prefix+"key:"+k.KeyID, "expires", 1).Err())
	for _, index := range []string{"run-keys", "run-keys-of:" + parent} {
		// An index that does not list the key is left as it is.
		h.ok(h.raw.ZAddXX(h.ctx, h.prefix+index, redis.Z{Score: 1, Member: k.KeyID}).Err())
	}
}

func (h *attacker) retain() {
	h.Helper()
	_, err := h.ApplyRetention(h.ctx, picket.Retention{Tasks: time.Hour, Events: time.Hour, MaxEvents: 1e6}, 100)
	h.ok(err)
}

// remainingKeys names the keys of the store that tell of a run key or its parent's list.
func (h *attacker) remainingKeys(parent string, k picket.NewRunKey) (left []string) {
	h.Helper()
	if n, err := h.raw.Exists(h.ctx, h.prefix+"key:"+k.KeyID).Result(); err != nil || n > 0 {
		left = append(left, fmt.Sprint("its row ", err))
	}
	for _, index := range []string{"keys", "run-keys", "run-keys-of:" + parent} {
		if h.raw.ZScore(h.ctx, h.prefix+index, k.KeyID).Err() == nil {
			left = append(left, index)
		}
	}
	sum := sha256.Sum256([]byte(k.Key.Reveal()))
	if h.raw.Get(h.ctx, h.prefix+"keyhash:"+hex.EncodeToString(sum[:])).Err() == nil {
		left = append(left, "its hash")
	}
	return left
}

// runKeyOutlivesParent uses run keys, and leases of theirs, after the key that
// made them was revoked. Those of another key go on.
func runKeyOutlivesParent(h *attacker) {
	parent, other := h.parent(0), h.parent(0)
	live, old, foreign := h.runKey(parent), h.runKey(parent), h.runKey(other)
	h.wantKey(live, true)
	held := []picket.LeaseCredential{h.leaseOf(live.KeyID), h.leaseOf(old.KeyID), h.leaseOf(foreign.KeyID)}
	h.expireRunKey(parent, old)
	h.retain()
	_, err := h.RevokeKey(h.ctx, operator, parent)
	h.ok(err)
	h.wantKey(live, false)
	h.wantKey(old, false)
	h.wantLease(held[0], false)
	h.wantLease(held[1], false)
	h.wantLease(held[2], true)
	h.wantKey(foreign, true)
	h.endsByChore(held[:2])
	for _, l := range held {
		h.end(l)
	}
}

// endsByChore wants that the tasks of void leases go back to their lane.
func (h *attacker) endsByChore(held []picket.LeaseCredential) {
	h.Helper()
	_, err := h.RunChores(h.ctx, 100)
	h.ok(err)
	for _, l := range held {
		task, err := h.Task(h.ctx, l.TaskID)
		h.ok(err)
		if task.State != picket.TaskQueued {
			h.Fatalf("the task of a lease that ended with its key is %s", task.State)
		}
	}
}

// runKeyWithKeptLeases has its leases kept by one revocation and ended by a later one.
func runKeyWithKeptLeases(h *attacker) {
	parent := h.parent(0)
	k := h.runKey(parent)
	held := h.leaseOf(k.KeyID)
	keep, end := true, false
	_, err := h.RevokeKeyWith(h.ctx, operator, parent, picket.KeyRevocation{KeepLeases: &keep})
	h.ok(err)
	h.wantKey(k, false)
	h.wantLease(held, true)
	_, err = h.RevokeKeyWith(h.ctx, operator, parent, picket.KeyRevocation{KeepLeases: &end})
	h.ok(err)
	h.wantLease(held, false)
	h.end(held)
}

// runKeyExpires ends by time, or because its adapter ended it. Its leases go on,
// and its row is deleted once it has none.
func runKeyExpires(h *attacker) {
	parent := h.parent(0)
	for _, ended := range []func(k picket.NewRunKey){
		func(k picket.NewRunKey) { h.expireRunKey(parent, k); h.retain() },
		func(k picket.NewRunKey) { h.ok(h.EndRunKey(h.ctx, k.KeyID)) },
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
		h.end(held)
		ended(k)
		if left := h.remainingKeys(parent, k); len(left) > 0 {
			h.Fatalf("a run key that has expired leaves behind %s", strings.Join(left, ", "))
		}
		h.ok(h.EndRunKey(h.ctx, k.KeyID)) // the answer may have been lost
	}
}

// runKeyLivesLonger is made and renewed by a key that ends soon.
func runKeyLivesLonger(h *attacker) {
	for _, life := range []time.Duration{time.Hour, 0} {
		k := h.runKey(h.parent(life))
		want := time.Hour
		if life == 0 {
			want = picket.RunKeyLifetime
		}
		got, err := h.RenewRunKey(h.ctx, k.KeyID)
		h.ok(err)
		for did, ends := range map[string]picket.Instant{"made": k.ExpiresAt, "renewed": got.ExpiresAt} {
			if left := time.Until(ends.Time()); left > want+time.Minute || left < want-2*time.Minute {
				h.Fatalf("a run key that was %s lives for %s, want %s", did, left, want)
			}
		}
	}
	// A renewal makes a life longer that has become short.
	parent := h.parent(0)
	k := h.runKey(parent)
	h.ok(h.raw.HSet(h.ctx, h.prefix+"key:"+k.KeyID, "expires", time.Now().Add(10*time.Minute).UnixMilli()).Err())
	got, err := h.RenewRunKey(h.ctx, k.KeyID)
	h.ok(err)
	if left := time.Until(got.ExpiresAt.Time()); left < time.Hour {
		h.Fatalf("a run key that was renewed lives for %s", left)
	}
}

// runKeyMakesAnother asks for a run key under keys that may not have one.
func runKeyMakesAnother(h *attacker) {
	parent := h.parent(0)
	k := h.runKey(parent)
	_, err := h.CreateRunKey(h.ctx, withKey(k.KeyID), picket.RunKeyRequest{AgentID: "other"})
	if picket.CodeOf(err) != picket.CodeForbidden {
		h.Fatalf("a run key asked for a run key: %v", err)
	}
	if _, err := h.RenewRunKey(h.ctx, parent); picket.CodeOf(err) != picket.CodeUnauthenticated {
		h.Fatalf("a key that is not a run key was renewed: %v", err)
	}
	_, err = h.RevokeKey(h.ctx, operator, parent)
	h.ok(err)
	_, err = h.CreateRunKey(h.ctx, withKey(parent), picket.RunKeyRequest{AgentID: "greedy"})
	if picket.CodeOf(err) != picket.CodeUnauthenticated {
		h.Fatalf("a revoked key has made a run key: %v", err)
	}
}

// runKeysWithoutEnd makes more run keys than one key may have, and repeats one request.
func runKeysWithoutEnd(h *attacker) {
	parent := h.parent(0)
	by := picket.Caller{
		Actor:       parent,
		Key:         parent,
		Idempotency: picket.Idempotency{Key: strings.Repeat("k", 38) + parent[4:], Body: strings.Repeat("b", 64)},
	}
	req := picket.RunKeyRequest{AgentID: "greedy"}
	first, err := h.CreateRunKey(h.ctx, by, req)
	h.ok(err)
	again, err := h.CreateRunKey(h.ctx, by, req)
	h.ok(err)
	if first != again {
		h.Fatalf("a repeated request made %s after %s", again.KeyID, first.KeyID)
	}
	for range picket.MaxRunKeys - 1 {
		h.runKey(parent)
	}
	_, err = h.CreateRunKey(h.ctx, withKey(parent), req)
	h.wantQuotaRefusal(err, "run_keys")
	h.expireRunKey(parent, first)
	h.runKey(parent)
}

// Run keys hold no longer and no more than the keys that made them.
func TestRunKeysAreHeldByTheirParents(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			s, stop := rig.Memory()
			defer stop()
			runAttacks(t, s, "default", smallQuotas, &noPatch, runKeyAttacks...)
		})
	})
	t.Run("Real", func(t *testing.T) { runAttacks(t, rig.Real(t), "default", smallQuotas, &noPatch, runKeyAttacks...) })
}

// runKeyMutants are the planted bugs of run keys.
var runKeyMutants = []mutant{
	{"a run key outlives the revocation of its parent",
		[]edit{{"key_revoke", "local run_keys, run_leases = revoke_run_keys(ARGV[1], with_runs)",
			"local run_keys, run_leases = 0, 0"}}},
	{"a revocation marks no run key", []edit{{"_runkey", "'revoked', RAW, 'leases', 'kept')", "'leases', 'kept')"}}},
	{"leases of run keys survive the revocation",
		[]edit{{"_runkey", "if ends and k[3] ~= 'ended' then", "if false then"}}},
	{"leases of run keys that were to be kept end", []edit{{"_runkey", "if ends and k[3]", "if k[3]"}}},
	{"leases of run keys that were kept never end",
		[]edit{{"_runkey", "if ends and k[3] ~= 'ended' then", "if ends and k[1] == '0' then"}}},
	{"nothing ends the leases of run keys", []edit{{"_runkey", "call('ZADD', K('chores'), '0', 'key:' .. id)", ""}}},
	{"the end of a run key ends its leases",
		[]edit{{"run_key_renew", "set_run_key_expiry(id, parent, RAW)",
			"set_run_key_expiry(id, parent, RAW)\n    call('HSET', K('key:', id), 'leases', 'ended')"}}},
	{"an expired run key with leases is forgotten",
		[]edit{{"_runkey", "if call('ZCARD', K('leases-of:', id)) > 0 then", "if false then"}}},
	{"an ended run key lives on", []edit{{"run_key_renew", "set_run_key_expiry(id, parent, RAW)", ""}}},
	{"an ended run key is renewed",
		[]edit{{"run_key_renew", "if not parent or not key_is_live(id) then", "if not parent then"}}},
	{"a key that is not a run key is renewed",
		[]edit{{"run_key_renew", "if not parent or not key_is_live(id) then return",
			"parent = parent or ''\nif not key_is_live(id) then return"}}},
	{"a run key lives longer than its parent",
		[]edit{{"_runkey", "if last > 0 then ends = math.min(ends, last) end", ""}}},
	{"a run key never ends",
		[]edit{{"_runkey", "call('HSET', K('key:', id), 'expires', ends)",
			"call('HSET', K('key:', id), 'expires', '0')"}}},
	{"a renewal changes nothing",
		[]edit{{"run_key_renew", "set_run_key_expiry(id, parent, run_key_expiry(parent, life))", ""}}},
	{"the row of a run key is not deleted",
		[]edit{{"_runkey", "call('DEL', K('key:', id), K('keyhash:', k[1]))", "call('DEL', K('keyhash:', k[1]))"}}},
	{"the hash of a run key is not deleted",
		[]edit{{"_runkey", "call('DEL', K('key:', id), K('keyhash:', k[1]))", "call('DEL', K('key:', id))"}}},
	{"a deleted run key stays listed", []edit{{"_runkey", "call('ZREM', K('keys'), id)", ""}}},
	{"a deleted run key stays with its parent", []edit{{"_runkey", "call('ZREM', K('run-keys-of:', k[2]), id)", ""}}},
	{"expired run keys are never deleted",
		[]edit{{"retain", "n = n + delete_expired_run_keys(K('run-keys'), limit)", ""}}},
	{"a new run key deletes no expired one", []edit{{"run_key_create", "delete_expired_run_keys(of, 10)", ""}}},
	{"a run key makes another run key",
		[]edit{{"run_key_create", "if call('HGET', K('key:', parent), 'parent') then", "if false then"}}},
	{"a revoked key makes run keys", []edit{{"run_key_create", "if not key_is_live(parent) then", "if false then"}}},
	{"run keys have no bound", []edit{{"run_key_create", ">= most then", ">= most + 1 then"}}},
	{"expired run keys count", []edit{{"run_key_create", "'(' .. RAW", "'-inf'"}}},
	{"a run key has the scope of its parent",
		[]edit{{"run_key_create", "'scopes', 'agent', 'created'", "'scopes', 'agent,operator', 'created'"}}},
	{"a run key is for any agent",
		[]edit{{"run_key_create", "'parent', parent, 'agent', ARGV[5])", "'parent', parent)"}}},
}
