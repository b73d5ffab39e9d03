package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// person makes a key and logs in with it.
func (f *fixture) person(t *testing.T, expires picket.Instant) (picket.NewKey, picket.Secret) {
	t.Helper()
	k, err := f.CreateKey(f.ctx, operator,
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}, ExpiresAt: expires})
	ok(t, err)
	return k, f.login(t, k.Key)
}

func (f *fixture) login(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	token, _, err := f.OpenSession(f.ctx, f.code(t, key), ownHost)
	ok(t, err)
	return token
}

// ownHost is the host name of the logins in these tests.
const ownHost = "one.localhost"

// code begins a login with a key.
func (f *fixture) code(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	code, _, err := f.BeginLogin(f.ctx, key, ownHost, "loopback")
	ok(t, err)
	return code
}

// over checks that a session does not stand for anybody any more.
func (f *fixture) over(t *testing.T, token picket.Secret) {
	t.Helper()
	_, err := f.Session(f.ctx, token, ownHost)
	refused(t, err, picket.CodeUnauthenticated)
	if err.Error() != "the session is over" {
		t.Errorf("it says %q", err)
	}
}

func TestASessionStandsForItsKey(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.ctx, operator,
			picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
		ok(t, err)
		code, who, err := f.BeginLogin(f.ctx, k.Key, ownHost, "private")
		ok(t, err)
		if who.KeyID != k.KeyID || who.Name != "Ada" || who.Namespace != "default" {
			t.Errorf("the login is of %+v", who)
		}
		token, opened, err := f.OpenSession(f.ctx, code, ownHost)
		ok(t, err)
		got, err := f.Session(f.ctx, token, ownHost)
		ok(t, err)
		if who = got.Principal; who.KeyID != k.KeyID || who.Name != "Ada" || who.Namespace != "default" ||
			!slices.Equal(who.Scopes, []picket.Scope{picket.ScopeReviewer}) {
			t.Errorf("it stands for %+v", who)
		}
		if got.OpenedAt != opened.OpenedAt ||
			got.ExpiresAt-got.OpenedAt < picket.Instant(picket.SessionLife.Milliseconds()) ||
			opened.Principal.KeyID != k.KeyID {
			t.Errorf("opened %+v, found %+v", opened, got)
		}
		if ns, ok := orchestrator.SessionNamespace(token); !ok || ns != "default" {
			t.Errorf("its namespace is %q, %v", ns, ok)
		}
		secret := strings.TrimPrefix(token.Reveal(), "default.")
		held, err := dump(f.ctx, f.raw, nil)
		ok(t, err)
		if strings.Contains(held, secret) || strings.Contains(held, k.Key.Reveal()) {
			t.Error("the store holds a secret in clear")
		}
		if strings.Contains(held, ownHost) || strings.Contains(held, strings.TrimPrefix(code.Reveal(), "default.")) {
			t.Error("the store holds a host name or a code in clear")
		}
		for _, wrong := range []picket.Secret{"", "default.", token + "A", picket.Secret("other." + secret),
			picket.Secret("default." + strings.Repeat("A", 43)), k.Key} {
			f.over(t, wrong)
			ok(t, f.CloseSession(f.ctx, wrong, ownHost))
		}
		_, _, err = f.BeginLogin(f.ctx, k.Key+"A", ownHost, "public")
		refused(t, err, picket.CodeUnauthenticated)
		ok(t, f.CloseSession(f.ctx, token, ownHost))
		ok(t, f.CloseSession(f.ctx, token, ownHost))
		f.over(t, token)
		page, err := f.Events(f.ctx,
			picket.EventQuery{Types: []string{picket.EventSessionOpened, picket.EventSessionClosed}})
		ok(t, err)
		var said []string
		for _, ev := range page.Events {
			if ev.Actor != k.KeyID {
				t.Errorf("%s by %s", ev.Type, ev.Actor)
			}
			said = append(said, ev.Type+strings.ReplaceAll(string(ev.Data), k.KeyID, "K"))
		}
		want := []string{
			`session.opened{"keyId":"K","from":"private","before":{"sessions":0},"after":{"sessions":1}}`,
			`session.closed{"keyId":"K","reason":"logout","before":{"sessions":1},"after":{"sessions":0}}`,
		}
		if !slices.Equal(said, want) {
			t.Errorf("the log says\n%s", strings.Join(said, "\n"))
		}
	})
}

// A session ends after two hours without a request and after twelve in any
// case, by store time.
func TestASessionEndsWithTime(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		_, idle := f.person(t, 0)
		f.jump(t, picket.SessionIdle-time.Minute)
		_, err := f.Session(f.ctx, idle, ownHost)
		ok(t, err)
		f.jump(t, picket.SessionIdle-time.Minute) // counted from that request on
		_, err = f.Session(f.ctx, idle, ownHost)
		ok(t, err)
		f.jump(t, picket.SessionIdle-time.Minute)
		_, err = f.SessionHolds(f.ctx, idle, ownHost) // a page that asks by itself is no use of it
		ok(t, err)
		f.jump(t, 2*time.Minute)
		f.over(t, idle)
		_, err = f.SessionHolds(f.ctx, idle, ownHost)
		refused(t, err, picket.CodeUnauthenticated)

		_, busy := f.person(t, 0)
		for range 11 {
			f.jump(t, time.Hour)
			_, err := f.Session(f.ctx, busy, ownHost)
			ok(t, err)
		}
		f.jump(t, time.Hour)
		f.over(t, busy)
	})
}

// A key that was revoked, or has expired, ends its sessions at once, also those
// that another process serves.
func TestASessionEndsWithItsKey(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, token := f.person(t, 0)
		second := f.login(t, k.Key)
		beside := f.beside(t, f.where, orchestrator.Config{}).Engine("default")
		_, err := beside.Session(f.ctx, token, ownHost)
		ok(t, err)
		_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
		ok(t, err)
		for _, gone := range []picket.Secret{token, second} {
			f.over(t, gone)
			_, err = beside.Session(f.ctx, gone, ownHost)
			refused(t, err, picket.CodeUnauthenticated)
		}
		_, _, err = f.BeginLogin(f.ctx, k.Key, ownHost, "loopback")
		refused(t, err, picket.CodeUnauthenticated)
		page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{picket.EventSessionClosed}})
		ok(t, err)
		if len(page.Events) != 2 {
			t.Errorf("%d sessions closed", len(page.Events))
		}
		for _, ev := range page.Events {
			if ev.Actor != operator.Actor {
				t.Errorf("a session of a revoked key was closed by %s", ev.Actor)
			}
		}

		short, last := f.person(t, picket.InstantOf(time.Now().Add(time.Hour)))
		_, err = f.Session(f.ctx, last, ownHost)
		ok(t, err)
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+short.KeyID, "expires", "1").Err()) // as time would
		f.over(t, last)
	})
}

// A key has 20 sessions at most: one more ends the oldest.
func TestAKeyHasTwentySessions(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, first := f.person(t, 0)
		tokens := []picket.Secret{first}
		for range 19 {
			f.jump(t, time.Second)
			tokens = append(tokens, f.login(t, k.Key))
		}
		_, err := f.Session(f.ctx, first, ownHost)
		ok(t, err)
		f.jump(t, time.Second)
		tokens = append(tokens, f.login(t, k.Key))
		f.over(t, first)
		for i, token := range tokens[1:] {
			if _, err := f.Session(f.ctx, token, ownHost); err != nil {
				t.Errorf("session %d: %v", i+1, err)
			}
		}
		if n := f.raw.ZCard(f.ctx, "pk:{default}:sessions-of:"+k.KeyID).Val(); n != 20 {
			t.Errorf("%d are kept", n)
		}
	})
}

func tourSessions(t *testing.T, f *fixture) {
	k, token := f.person(t, 0)
	_, err := f.Session(f.ctx, token, ownHost)
	ok(t, err)
	f.jump(t, 2*time.Minute)
	_, err = f.Session(f.ctx, token, ownHost)
	ok(t, err)
	ok(t, f.CloseSession(f.ctx, token, ownHost))
	ok(t, f.CloseSession(f.ctx, token, ownHost))
	f.over(t, token)
	_, _, err = f.BeginLogin(f.ctx, "pkk_default_x", ownHost, "loopback")
	refused(t, err, picket.CodeUnauthenticated)
	code := picket.Secret("default." + strings.Repeat("c", 43))
	f.again(t, func() error { return orchestrator.BeginLoginAs(f.ctx, f.Engine, code, k.Key, ownHost) })
	f.again(t, func() error { return orchestrator.OpenSessionAs(f.ctx, f.Engine, "default.x", code, ownHost) })
	for range 2 { // the first ends what the code has opened
		_, _, err = f.OpenSession(f.ctx, code, ownHost)
		refused(t, err, picket.CodeUnauthenticated)
	}
	late := f.code(t, k.Key)
	f.jump(t, time.Minute)
	_, _, err = f.OpenSession(f.ctx, late, ownHost)
	refused(t, err, picket.CodeUnauthenticated)
	for range 21 {
		f.login(t, k.Key)
	}
	_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
	ok(t, err)
}

// loggedIn is a set-up with one session, and with a code that has opened none.
func loggedIn(w *lostWorld) {
	k, err := w.direct.CreateKey(w.ctx, asked("9"),
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	ok(w.t, err)
	w.secret = k.Key
	w.token = w.login()
	w.skip(2 * time.Minute)
	w.code = w.beginLogin()
}

func (w *lostWorld) beginLogin() picket.Secret {
	code, _, err := w.direct.BeginLogin(w.ctx, w.secret, ownHost, "loopback")
	ok(w.t, err)
	return code
}

func (w *lostWorld) login() picket.Secret {
	token, _, err := w.direct.OpenSession(w.ctx, w.beginLogin(), ownHost)
	ok(w.t, err)
	return token
}

var sessionCases = []lostCase{
	{name: "login_begin", setup: loggedIn,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return nil, orchestrator.BeginLoginAs(w.ctx, e, "default.x", w.secret, ownHost)
		}},
	{name: "session_open", setup: loggedIn, call: openSession},
	{name: "session_open/one too many", setup: func(w *lostWorld) {
		loggedIn(w)
		for range 19 {
			w.login()
		}
	}, call: openSession},
	{name: "session", setup: loggedIn,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) { return e.Session(w.ctx, w.token, ownHost) }},
	{name: "session_close", setup: loggedIn,
		call: func(w *lostWorld, e *orchestrator.Engine) (any, error) {
			return nil, e.CloseSession(w.ctx, w.token, ownHost)
		}},
}

// openSession repeats the very same request: one with another secret would show
// the code twice.
func openSession(w *lostWorld, e *orchestrator.Engine) (any, error) {
	return nil, orchestrator.OpenSessionAs(w.ctx, e, "default.x", w.code, ownHost)
}
