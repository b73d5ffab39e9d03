package calls

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

var policyCases = []Case{
	{Name: "change_policy", Setup: func(*Env) {}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.WritePolicy(w.Ctx, Asked("p"), "ann", picket.PolicyWrite{Body: "Look at your inbox.\n"})
	}},
}
