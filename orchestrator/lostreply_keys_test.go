package orchestrator_test

import (
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// keyLeased is a set-up with a lease that was acquired with a key of scope agent.
func keyLeased(w *replyEnv) {
	w.t.Helper()
	k, err := w.direct.CreateKey(w.ctx, asked("7"),
		picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	ok(w.t, err)
	w.key = k.KeyID
	w.submitted(picket.TaskSpec{})
	leases, err := w.direct.Acquire(w.ctx, withKey(w.key), picket.AcquireRequest{AgentID: "a1"})
	ok(w.t, err)
	w.run = leases[0].RunID
	w.held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	ok(w.t, err)
	_, err = w.direct.Renew(w.ctx, w.held)
	ok(w.t, err)
}

// runKeyed is a set-up with a run key of a key of scope operator.
func runKeyed(w *replyEnv) {
	w.t.Helper()
	k, err := w.direct.CreateKey(w.ctx, asked("7"),
		picket.KeyRequest{Name: "person", Scopes: []picket.Scope{picket.ScopeOperator}})
	ok(w.t, err)
	w.parent = k.KeyID
	by := asked("8")
	by.Key = k.KeyID
	run, err := w.direct.CreateRunKey(w.ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	ok(w.t, err)
	w.key = run.KeyID
}

var keyCases = []replyCase{
	{name: "key_revoke/leases", setup: keyLeased,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RevokeKey(w.ctx, operator, w.key) }},
	{name: "key_revoke/later", setup: func(w *replyEnv) {
		keyLeased(w)
		_, err := w.direct.RevokeKeyWith(w.ctx, operator, w.key, picket.KeyRevocation{KeepLeases: ptr(true)})
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.RevokeKeyWith(w.ctx, operator, w.key, picket.KeyRevocation{KeepLeases: ptr(false)})
	}},
	{
		name:  "key_revoke/runs",
		setup: runKeyed,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.RevokeKey(w.ctx, operator, w.parent)
		},
	},
	{name: "run_key_create", setup: runKeyed,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			by := asked("1")
			by.Key = w.parent
			return e.CreateRunKey(w.ctx, by, picket.RunKeyRequest{AgentID: "a2"})
		}},
	{name: "run_key_renew", setup: func(w *replyEnv) { // as if the key were older
		runKeyed(w)
		ok(w.t, w.raw.HIncrBy(w.ctx, "pk:{default}:key:"+w.key, "expires", -60000).Err())
	},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RenewRunKey(w.ctx, w.key) }},
	{name: "run_key_renew/end", setup: runKeyed,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return nil, e.EndRunKey(w.ctx, w.key) }},
	{name: "chore/key", answerVaries: whyFewer, setup: func(w *replyEnv) { // as if a step had not ended all its leases
		keyLeased(w)
		ok(w.t, w.raw.HSet(w.ctx, "pk:{default}:key:"+w.key, "leases", "ended").Err())
		ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores", redis.Z{Member: "key:" + w.key}).Err())
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RunChores(w.ctx, 100) }},
}
