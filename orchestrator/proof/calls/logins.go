package calls

import (
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// withLogin is a set-up with one session, and with a code that has opened none.
func withLogin(w *Env) {
	k, err := w.Direct.CreateKey(w.Ctx, Asked("9"),
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	kit.OK(w.T, err)
	w.secret = k.Key
	w.token = w.login()
	w.JumpStoreTime(2 * time.Minute)
	w.code = w.beginLogin()
}

func (w *Env) beginLogin() picket.Secret {
	code, _, err := w.Direct.BeginLogin(w.Ctx, w.secret, kit.LoginHost, "loopback")
	kit.OK(w.T, err)
	return code
}

func (w *Env) login() picket.Secret {
	token, _, err := w.Direct.OpenLogin(w.Ctx, w.beginLogin(), kit.LoginHost)
	kit.OK(w.T, err)
	return token
}

var loginCases = []Case{
	{Name: "login_begin", Setup: withLogin,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, kit.BeginLoginAs(w.Ctx, e, "default.x", w.secret, kit.LoginHost)
		}},
	{Name: "session_open", Setup: withLogin, Call: openLogin},
	{Name: "session_open/one too many", Setup: func(w *Env) {
		withLogin(w)
		for range 19 {
			w.login()
		}
	}, Call: openLogin},
	{Name: "session", Setup: withLogin,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.Login(w.Ctx, w.token, kit.LoginHost) }},
	{Name: "session_close", Setup: withLogin,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.CloseLogin(w.Ctx, w.token, kit.LoginHost)
		}},
}

// openLogin repeats the very same request: one with another secret would show
// the code twice.
func openLogin(w *Env, e *orchestrator.Engine) (any, error) {
	return nil, kit.OpenLoginAs(w.Ctx, e, "default.x", w.code, kit.LoginHost)
}
