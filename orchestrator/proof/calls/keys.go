package calls

import (
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// keyLeased is a set-up with a lease that was acquired with a key of scope agent.
func keyLeased(w *Env) {
	w.T.Helper()
	k, err := w.Direct.CreateKey(w.Ctx, Asked("7"),
		picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	kit.OK(w.T, err)
	w.key = k.KeyID
	w.Submitted(picket.TaskSpec{})
	leases, err := w.Direct.Acquire(w.Ctx, kit.WithKey(w.key), picket.AcquireRequest{AgentID: "a1"})
	kit.OK(w.T, err)
	w.run = leases[0].RunID
	w.Held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(w.T, err)
	_, err = w.Direct.Renew(w.Ctx, w.Held)
	kit.OK(w.T, err)
}

// runKeyed is a set-up with a run key of a key of scope operator.
func runKeyed(w *Env) {
	w.T.Helper()
	k, err := w.Direct.CreateKey(w.Ctx, Asked("7"),
		picket.KeyRequest{Name: "person", Scopes: []picket.Scope{picket.ScopeOperator}})
	kit.OK(w.T, err)
	w.parent = k.KeyID
	by := Asked("8")
	by.Key = k.KeyID
	run, err := w.Direct.CreateRunKey(w.Ctx, by, picket.RunKeyRequest{AgentID: "a1"})
	kit.OK(w.T, err)
	w.key = run.KeyID
}

var keyCases = []Case{
	{Name: "key_revoke/leases", Setup: keyLeased,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RevokeKey(w.Ctx, kit.Operator, w.key) }},
	{Name: "key_revoke/later", Setup: func(w *Env) {
		keyLeased(w)
		_, err := w.Direct.RevokeKeyWith(w.Ctx, kit.Operator, w.key, picket.KeyRevocation{KeepLeases: kit.Ptr(true)})
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.RevokeKeyWith(w.Ctx, kit.Operator, w.key, picket.KeyRevocation{KeepLeases: kit.Ptr(false)})
	}},
	{
		Name:  "key_revoke/runs",
		Setup: runKeyed,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.RevokeKey(w.Ctx, kit.Operator, w.parent)
		},
	},
	{Name: "run_key_create", Setup: runKeyed,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			by := Asked("1")
			by.Key = w.parent
			return e.CreateRunKey(w.Ctx, by, picket.RunKeyRequest{AgentID: "a2"})
		}},
	{Name: "run_key_renew", Setup: func(w *Env) { // as if the key were older
		runKeyed(w)
		kit.OK(w.T, w.Raw.HIncrBy(w.Ctx, "pk:{default}:key:"+w.key, "expires", -60000).Err())
	},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RenewRunKey(w.Ctx, w.key) }},
	{Name: "run_key_renew/end", Setup: runKeyed,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return nil, e.EndRunKey(w.Ctx, w.key) }},
	{Name: "chore/key", AnswerVaries: whyFewer, Setup: func(w *Env) { // as if a step had not ended all its leases
		keyLeased(w)
		kit.OK(w.T, w.Raw.HSet(w.Ctx, "pk:{default}:key:"+w.key, "leases", "ended").Err())
		kit.OK(w.T, w.Raw.ZAdd(w.Ctx, "pk:{default}:chores", redis.Z{Member: "key:" + w.key}).Err())
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RunChores(w.Ctx, 100) }},
}
