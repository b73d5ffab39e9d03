package orchestrator_test

import (
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// attackLogins begins logins and shows their codes again, too late, and after the
// key was revoked.
func attackLogins(h *attacker) {
	k, err := h.CreateKey(h.ctx, operator, picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	h.ok(err)
	begin := func() picket.Secret {
		code, _, err := h.BeginLogin(h.ctx, k.Key, loginHost, "loopback")
		h.ok(err)
		return code
	}
	refuse := func(what string, err error) {
		if picket.CodeOf(err) != picket.CodeUnauthenticated {
			h.Fatalf("%s: %v", what, err)
		}
	}

	code := begin()
	token, _, err := h.OpenLogin(h.ctx, code, loginHost)
	h.ok(err)
	_, err = h.Login(h.ctx, token, loginHost)
	h.ok(err)
	second, _, err := h.OpenLogin(h.ctx, code, loginHost)
	refuse("a code that was used", err)
	_, err = h.Login(h.ctx, token, loginHost)
	refuse("a session whose code was shown again "+second.Reveal(), err)

	code = begin()
	for range 2 { // a lost answer
		h.ok(orchestrator.OpenLoginAs(h.ctx, h.Engine, "default.x", code, loginHost))
	}
	page, err := h.Events(h.ctx,
		picket.EventQuery{Types: []string{picket.EventLoginOpened, picket.EventLoginClosed}})
	h.ok(err)
	if len(page.Events) != 3 {
		h.Fatalf("%d events of two sessions, one of which has ended", len(page.Events))
	}

	late := begin()
	h.ok(h.raw.HIncrBy(h.ctx, h.prefix+"meta", "now", 60_000).Err())
	_, _, err = h.OpenLogin(h.ctx, late, loginHost)
	refuse("a code of a minute ago", err)

	orphan := begin()
	_, err = h.RevokeKey(h.ctx, operator, k.KeyID)
	h.ok(err)
	_, _, err = h.OpenLogin(h.ctx, orphan, loginHost)
	refuse("a code of a revoked key", err)
	_, _, err = h.BeginLogin(h.ctx, k.Key, loginHost, "loopback")
	refuse("a revoked key", err)
}

// What logins promise holds without a planted bug.
func TestLoginAttacks(t *testing.T) {
	if v := attackPhase(attackLogins)(t, &noPatch); v.found {
		t.Error(v.said)
	}
}

// loginMutants are the planted bugs of logins.
var loginMutants = []mutant{
	{"a login code opens one session after another",
		[]edit{{"session_open", "if c[4] and not at then", "if false then"}}},
	{"a code that is shown again ends nothing",
		[]edit{{"session_open", "if call('EXISTS', K('session:', c[4])) == 1 then", "if false then"}}},
	{"a login code is not marked as used", []edit{{"session_open", "call('HSET', code, 'session', ARGV[1])", ""}}},
	{"a login code holds for ever", []edit{{"session_open", "now - num(c[3]) >= CODE_LIFE", "false"}}},
	{"a login code outlives its key", []edit{{"session_open", " or not key_is_live(id) then", " then"}}},
	{"a revoked key begins a login",
		[]edit{{"login_begin", "if not id or not key_is_live(id) then", "if not id then"}}},
	{"a repeated request opens a second session", []edit{{"session_open", "if not at then", "if true then"}}},
}
