package attacks

import (
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// AttackLogins begins logins and shows their codes again, too late, and after the
// key was revoked.
func AttackLogins(h *Attacker) {
	k, err := h.CreateKey(h.Ctx, kit.Operator, picket.KeyRequest{Name: "Ada",
		Scopes: []picket.Scope{picket.ScopeReviewer}})
	h.OK(err)
	begin := func() picket.Secret {
		code, _, err := h.BeginLogin(h.Ctx, k.Key, kit.LoginHost, "loopback")
		h.OK(err)
		return code
	}
	refuse := func(what string, err error) {
		if picket.CodeOf(err) != picket.CodeUnauthenticated {
			h.Fatalf("%s: %v", what, err)
		}
	}

	code := begin()
	token, _, err := h.OpenLogin(h.Ctx, code, kit.LoginHost)
	h.OK(err)
	_, err = h.Login(h.Ctx, token, kit.LoginHost)
	h.OK(err)
	second, _, err := h.OpenLogin(h.Ctx, code, kit.LoginHost)
	refuse("a code that was used", err)
	_, err = h.Login(h.Ctx, token, kit.LoginHost)
	refuse("a session whose code was shown again "+second.Reveal(), err)

	code = begin()
	for range 2 { // a lost answer
		h.OK(kit.OpenLoginAs(h.Ctx, h.Engine, "default.x", code, kit.LoginHost))
	}
	page, err := h.Events(h.Ctx,
		picket.EventQuery{Types: []string{picket.EventLoginOpened, picket.EventLoginClosed}})
	h.OK(err)
	if len(page.Events) != 3 {
		h.Fatalf("%d events of two sessions, one of which has ended", len(page.Events))
	}

	late := begin()
	h.OK(h.Raw.HIncrBy(h.Ctx, h.Prefix+"meta", "now", 60_000).Err())
	_, _, err = h.OpenLogin(h.Ctx, late, kit.LoginHost)
	refuse("a code of a minute ago", err)

	orphan := begin()
	_, err = h.RevokeKey(h.Ctx, kit.Operator, k.KeyID)
	h.OK(err)
	_, _, err = h.OpenLogin(h.Ctx, orphan, kit.LoginHost)
	refuse("a code of a revoked key", err)
	_, _, err = h.BeginLogin(h.Ctx, k.Key, kit.LoginHost, "loopback")
	refuse("a revoked key", err)
}
