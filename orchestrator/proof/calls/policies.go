package calls

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

var policyCases = []Case{
	{Name: "change_policy", Setup: func(*Env) {}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.WritePolicy(w.Ctx, Asked("p"), "ann", picket.PolicyWrite{Body: "Look at your inbox.\n"})
	}},
	{Name: "lock_policies", RepeatCounts: "a renewal lasts from its own time on", Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			_, held, err := e.PolicyStore().Lock(w.Ctx, "a")
			return held, err
		}},
	{Name: "publish_policies", Setup: func(w *Env) {
		_, _, err := w.Direct.PolicyStore().Lock(w.Ctx, "a")
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		gone := mirror.File{Name: "ann", State: mirror.StateRemoved, Digest: mirror.Absent}
		return nil, e.PolicyStore().Publish(w.Ctx, "a", []mirror.File{gone},
			[]mirror.Instructions{{Name: "ann", Path: "ann/AGENT.md", Digest: "sha256:x", Text: "x"}})
	}},
}
