package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// createKeyAndLogin makes a key and logs in with it.
func (f *fixture) createKeyAndLogin(t *testing.T, expires picket.Instant) (picket.NewKey, picket.Secret) {
	t.Helper()
	k, err := f.CreateKey(f.ctx, operator,
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}, ExpiresAt: expires})
	ok(t, err)
	return k, f.mustLogin(t, k.Key)
}

func (f *fixture) mustLogin(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	token, _, err := f.OpenLogin(f.ctx, f.mustBeginLogin(t, key), loginHost)
	ok(t, err)
	return token
}

// loginHost is the host name of the logins in these tests.
const loginHost = "one.localhost"

// mustBeginLogin begins a login with a key.
func (f *fixture) mustBeginLogin(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	code, _, err := f.BeginLogin(f.ctx, key, loginHost, "loopback")
	ok(t, err)
	return code
}

// wantLoginEnded checks that a session does not stand for anybody any more.
func (f *fixture) wantLoginEnded(t *testing.T, token picket.Secret) {
	t.Helper()
	_, err := f.Login(f.ctx, token, loginHost)
	refused(t, err, picket.CodeUnauthenticated)
	if err.Error() != "the session is over" {
		t.Errorf("it says %q", err)
	}
}

func TestALoginActsForItsKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.ctx, operator,
			picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
		ok(t, err)
		code, who, err := f.BeginLogin(f.ctx, k.Key, loginHost, "private")
		ok(t, err)
		if who.KeyID != k.KeyID || who.Name != "Ada" || who.Namespace != "default" {
			t.Errorf("the login is of %+v", who)
		}
		token, opened, err := f.OpenLogin(f.ctx, code, loginHost)
		ok(t, err)
		got, err := f.Login(f.ctx, token, loginHost)
		ok(t, err)
		if who = got.Principal; who.KeyID != k.KeyID || who.Name != "Ada" || who.Namespace != "default" ||
			!slices.Equal(who.Scopes, []picket.Scope{picket.ScopeReviewer}) {
			t.Errorf("it stands for %+v", who)
		}
		if got.OpenedAt != opened.OpenedAt ||
			got.ExpiresAt-got.OpenedAt < picket.Instant(picket.LoginLifetime.Milliseconds()) ||
			opened.Principal.KeyID != k.KeyID {
			t.Errorf("opened %+v, found %+v", opened, got)
		}
		if ns, ok := orchestrator.LoginNamespace(token); !ok || ns != "default" {
			t.Errorf("its namespace is %q, %v", ns, ok)
		}
		secret := strings.TrimPrefix(token.Reveal(), "default.")
		held, err := dump(f.ctx, f.raw, nil)
		ok(t, err)
		if strings.Contains(held, secret) || strings.Contains(held, k.Key.Reveal()) {
			t.Error("the store holds a secret in clear")
		}
		if strings.Contains(held, loginHost) || strings.Contains(held, strings.TrimPrefix(code.Reveal(), "default.")) {
			t.Error("the store holds a host name or a code in clear")
		}
		for _, wrong := range []picket.Secret{"", "default.", token + "A", picket.Secret("other." + secret),
			picket.Secret("default." + strings.Repeat("A", 43)), k.Key} {
			f.wantLoginEnded(t, wrong)
			ok(t, f.CloseLogin(f.ctx, wrong, loginHost))
		}
		_, _, err = f.BeginLogin(f.ctx, k.Key+"A", loginHost, "public")
		refused(t, err, picket.CodeUnauthenticated)
		ok(t, f.CloseLogin(f.ctx, token, loginHost))
		ok(t, f.CloseLogin(f.ctx, token, loginHost))
		f.wantLoginEnded(t, token)
		page, err := f.Events(f.ctx,
			picket.EventQuery{Types: []string{picket.EventLoginOpened, picket.EventLoginClosed}})
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
func TestALoginEndsWithTime(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, idle := f.createKeyAndLogin(t, 0)
		f.jumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		_, err := f.Login(f.ctx, idle, loginHost)
		ok(t, err)
		f.jumpStoreTime(t, picket.LoginIdleTimeout-time.Minute) // counted from that request on
		_, err = f.Login(f.ctx, idle, loginHost)
		ok(t, err)
		f.jumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		_, err = f.CheckLogin(f.ctx, idle, loginHost) // a page that asks automatically does not use it
		ok(t, err)
		f.jumpStoreTime(t, 2*time.Minute)
		f.wantLoginEnded(t, idle)
		_, err = f.CheckLogin(f.ctx, idle, loginHost)
		refused(t, err, picket.CodeUnauthenticated)

		_, busy := f.createKeyAndLogin(t, 0)
		for range 11 {
			f.jumpStoreTime(t, time.Hour)
			_, err := f.Login(f.ctx, busy, loginHost)
			ok(t, err)
		}
		f.jumpStoreTime(t, time.Hour)
		f.wantLoginEnded(t, busy)
	})
}

// A key that was revoked, or has expired, ends its sessions at once, also those
// that another process serves.
func TestALoginEndsWithItsKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, token := f.createKeyAndLogin(t, 0)
		second := f.mustLogin(t, k.Key)
		beside := f.openProcess(t, f.rigStore, orchestrator.Config{}).Engine("default")
		_, err := beside.Login(f.ctx, token, loginHost)
		ok(t, err)
		_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
		ok(t, err)
		for _, gone := range []picket.Secret{token, second} {
			f.wantLoginEnded(t, gone)
			_, err = beside.Login(f.ctx, gone, loginHost)
			refused(t, err, picket.CodeUnauthenticated)
		}
		_, _, err = f.BeginLogin(f.ctx, k.Key, loginHost, "loopback")
		refused(t, err, picket.CodeUnauthenticated)
		page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{picket.EventLoginClosed}})
		ok(t, err)
		if len(page.Events) != 2 {
			t.Errorf("%d sessions closed", len(page.Events))
		}
		for _, ev := range page.Events {
			if ev.Actor != operator.Actor {
				t.Errorf("a session of a revoked key was closed by %s", ev.Actor)
			}
		}

		short, last := f.createKeyAndLogin(t, picket.InstantOf(time.Now().Add(time.Hour)))
		_, err = f.Login(f.ctx, last, loginHost)
		ok(t, err)
		ok(t, f.raw.HSet(f.ctx, "pk:{default}:key:"+short.KeyID, "expires", "1").Err()) // as time would
		f.wantLoginEnded(t, last)
	})
}

// A key has 20 sessions at most: one more ends the oldest.
func TestAKeyHasTwentyLogins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, first := f.createKeyAndLogin(t, 0)
		tokens := []picket.Secret{first}
		for range 19 {
			f.jumpStoreTime(t, time.Second)
			tokens = append(tokens, f.mustLogin(t, k.Key))
		}
		_, err := f.Login(f.ctx, first, loginHost)
		ok(t, err)
		f.jumpStoreTime(t, time.Second)
		tokens = append(tokens, f.mustLogin(t, k.Key))
		f.wantLoginEnded(t, first)
		for i, token := range tokens[1:] {
			if _, err := f.Login(f.ctx, token, loginHost); err != nil {
				t.Errorf("session %d: %v", i+1, err)
			}
		}
		if n := f.raw.ZCard(f.ctx, "pk:{default}:sessions-of:"+k.KeyID).Val(); n != 20 {
			t.Errorf("%d are kept", n)
		}
	})
}

func coverLogins(t *testing.T, f *fixture) {
	k, token := f.createKeyAndLogin(t, 0)
	_, err := f.Login(f.ctx, token, loginHost)
	ok(t, err)
	f.jumpStoreTime(t, 2*time.Minute)
	_, err = f.Login(f.ctx, token, loginHost)
	ok(t, err)
	ok(t, f.CloseLogin(f.ctx, token, loginHost))
	ok(t, f.CloseLogin(f.ctx, token, loginHost))
	f.wantLoginEnded(t, token)
	_, _, err = f.BeginLogin(f.ctx, "pkk_default_x", loginHost, "loopback")
	refused(t, err, picket.CodeUnauthenticated)
	code := picket.Secret("default." + strings.Repeat("c", 43))
	f.callTwice(t, func() error { return orchestrator.BeginLoginAs(f.ctx, f.Engine, code, k.Key, loginHost) })
	f.callTwice(t, func() error { return orchestrator.OpenLoginAs(f.ctx, f.Engine, "default.x", code, loginHost) })
	for range 2 { // the first ends what the code has opened
		_, _, err = f.OpenLogin(f.ctx, code, loginHost)
		refused(t, err, picket.CodeUnauthenticated)
	}
	late := f.mustBeginLogin(t, k.Key)
	f.jumpStoreTime(t, time.Minute)
	_, _, err = f.OpenLogin(f.ctx, late, loginHost)
	refused(t, err, picket.CodeUnauthenticated)
	for range 21 {
		f.mustLogin(t, k.Key)
	}
	_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
	ok(t, err)
}

// withLogin is a set-up with one session, and with a code that has opened none.
func withLogin(w *replyEnv) {
	k, err := w.direct.CreateKey(w.ctx, asked("9"),
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
	ok(w.t, err)
	w.secret = k.Key
	w.token = w.login()
	w.jumpStoreTime(2 * time.Minute)
	w.code = w.beginLogin()
}

func (w *replyEnv) beginLogin() picket.Secret {
	code, _, err := w.direct.BeginLogin(w.ctx, w.secret, loginHost, "loopback")
	ok(w.t, err)
	return code
}

func (w *replyEnv) login() picket.Secret {
	token, _, err := w.direct.OpenLogin(w.ctx, w.beginLogin(), loginHost)
	ok(w.t, err)
	return token
}

var loginCases = []replyCase{
	{name: "login_begin", setup: withLogin,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, orchestrator.BeginLoginAs(w.ctx, e, "default.x", w.secret, loginHost)
		}},
	{name: "session_open", setup: withLogin, call: openLogin},
	{name: "session_open/one too many", setup: func(w *replyEnv) {
		withLogin(w)
		for range 19 {
			w.login()
		}
	}, call: openLogin},
	{name: "session", setup: withLogin,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.Login(w.ctx, w.token, loginHost) }},
	{name: "session_close", setup: withLogin,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.CloseLogin(w.ctx, w.token, loginHost)
		}},
}

// openLogin repeats the very same request: one with another secret would show
// the code twice.
func openLogin(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return nil, orchestrator.OpenLoginAs(w.ctx, e, "default.x", w.code, loginHost)
}
