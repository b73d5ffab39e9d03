package orchestrator_test

import (
	"log/slog"
	"testing"
	"testing/synctest"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// loginHunt shows a planted bug to what logins promise.
func loginHunt(t *testing.T, bug *patch) (v verdict) {
	synctest.Test(t, func(t *testing.T) {
		v = judge(t, func(rt *rapid.T, n int) {
			if n > 1 {
				return // it is the same every time
			}
			s, stop := rig.Memory()
			defer stop()
			holdLogins(t, rt, s, bug)
		})
	})
	return v
}

// holdLogins begins logins and shows their codes again, too late, and after the
// key was revoked.
func holdLogins(t *testing.T, rt *rapid.T, s rig.Store, bug *patch) {
	must := func(err error) {
		if err != nil {
			rt.Fatalf("%v", err)
		}
	}
	ctx := t.Context()
	store, err := orchestrator.Open(ctx, orchestrator.Config{Redis: s.Redis, Memory: s.Memory, Namespaces: []string{"default"}, Sealer: rig.Sealer(),
		Witness: t.TempDir(), Found: true, Log: slog.New(slog.DiscardHandler)})
	must(err)
	defer store.Close()
	bug.to(store, usual)
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	e := store.Engine("default")
	k, err := e.CreateKey(ctx, operator, picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	must(err)
	begin := func() picket.Secret {
		code, _, err := e.BeginLogin(ctx, k.Key, ownHost, "loopback")
		must(err)
		return code
	}
	refuse := func(what string, err error) {
		if picket.CodeOf(err) != picket.CodeUnauthenticated {
			rt.Fatalf("%s: %v", what, err)
		}
	}

	code := begin()
	token, _, err := e.OpenSession(ctx, code, ownHost)
	must(err)
	_, err = e.Session(ctx, token, ownHost)
	must(err)
	second, _, err := e.OpenSession(ctx, code, ownHost)
	refuse("a code that was used", err)
	_, err = e.Session(ctx, token, ownHost)
	refuse("a session whose code was shown again "+second.Reveal(), err)

	code = begin()
	for range 2 { // a lost answer
		must(orchestrator.OpenSessionAs(ctx, e, "default.x", code, ownHost))
	}
	page, err := e.Events(ctx, picket.EventQuery{Types: []string{picket.EventSessionOpened, picket.EventSessionClosed}})
	must(err)
	if len(page.Events) != 3 {
		rt.Fatalf("%d events of two sessions, one of which has ended", len(page.Events))
	}

	late := begin()
	must(raw.HIncrBy(ctx, "pk:{default}:meta", "now", 60_000).Err())
	_, _, err = e.OpenSession(ctx, late, ownHost)
	refuse("a code of a minute ago", err)

	orphan := begin()
	_, err = e.RevokeKey(ctx, operator, k.KeyID)
	must(err)
	_, _, err = e.OpenSession(ctx, orphan, ownHost)
	refuse("a code of a revoked key", err)
	_, _, err = e.BeginLogin(ctx, k.Key, ownHost, "loopback")
	refuse("a revoked key", err)
}

// What logins promise holds without a planted bug.
func TestLoginsHold(t *testing.T) {
	if v := loginHunt(t, &unpatched); v.found {
		t.Error(v.said)
	}
}

// loginMutants are the planted bugs of logins.
var loginMutants = []mutant{
	{"a login code opens one session after another", []edit{{"session_open", "if c[4] and not at then", "if false then"}}},
	{"a code that is shown again ends nothing", []edit{{"session_open", "if call('EXISTS', K('session:', c[4])) == 1 then", "if false then"}}},
	{"a login code is not marked as used", []edit{{"session_open", "call('HSET', code, 'session', ARGV[1])", ""}}},
	{"a login code holds for ever", []edit{{"session_open", "now - num(c[3]) >= CODE_LIFE", "false"}}},
	{"a login code outlives its key", []edit{{"session_open", " or not key_holds(id) then return", " then return"}}},
	{"a revoked key begins a login", []edit{{"login_begin", "if not id or not key_holds(id) then", "if not id then"}}},
	{"a repeated request opens a second session", []edit{{"session_open", "if not at then", "if true then"}}},
}
