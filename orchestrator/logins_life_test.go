package orchestrator_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func TestALoginActsForItsKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, err := f.CreateKey(f.Ctx, kit.Operator,
			picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}})
		kit.OK(t, err)
		code, who, err := f.BeginLogin(f.Ctx, k.Key, kit.LoginHost, "private")
		kit.OK(t, err)
		if who.KeyID != k.KeyID || who.Name != "Ada" || who.Namespace != "default" {
			t.Errorf("the login is of %+v", who)
		}
		token, opened, err := f.OpenLogin(f.Ctx, code, kit.LoginHost)
		kit.OK(t, err)
		got, err := f.Login(f.Ctx, token, kit.LoginHost)
		kit.OK(t, err)
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
		held, err := kit.Dump(f.Ctx, f.Raw, nil)
		kit.OK(t, err)
		if strings.Contains(held, secret) || strings.Contains(held, k.Key.Reveal()) {
			t.Error("the store holds a secret in clear")
		}
		if strings.Contains(held, kit.LoginHost) || strings.Contains(held,
			strings.TrimPrefix(code.Reveal(), "default.")) {
			t.Error("the store holds a host name or a code in clear")
		}
		for _, wrong := range []picket.Secret{"", "default.", token + "A", picket.Secret("other." + secret),
			picket.Secret("default." + strings.Repeat("A", 43)), k.Key} {
			f.WantLoginEnded(t, wrong)
			kit.OK(t, f.CloseLogin(f.Ctx, wrong, kit.LoginHost))
		}
		_, _, err = f.BeginLogin(f.Ctx, k.Key+"A", kit.LoginHost, "public")
		kit.Refused(t, err, picket.CodeUnauthenticated)
		kit.OK(t, f.CloseLogin(f.Ctx, token, kit.LoginHost))
		kit.OK(t, f.CloseLogin(f.Ctx, token, kit.LoginHost))
		f.WantLoginEnded(t, token)
		page, err := f.Events(f.Ctx,
			picket.EventQuery{Types: []string{picket.EventLoginOpened, picket.EventLoginClosed}})
		kit.OK(t, err)
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
		_, idle := f.CreateKeyAndLogin(t, 0)
		f.JumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		_, err := f.Login(f.Ctx, idle, kit.LoginHost)
		kit.OK(t, err)
		f.JumpStoreTime(t, picket.LoginIdleTimeout-time.Minute) // counted from that request on
		_, err = f.Login(f.Ctx, idle, kit.LoginHost)
		kit.OK(t, err)
		f.JumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		_, err = f.CheckLogin(f.Ctx, idle, kit.LoginHost) // a page that asks automatically does not use it
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Minute)
		f.WantLoginEnded(t, idle)
		_, err = f.CheckLogin(f.Ctx, idle, kit.LoginHost)
		kit.Refused(t, err, picket.CodeUnauthenticated)

		_, busy := f.CreateKeyAndLogin(t, 0)
		for range 11 {
			f.JumpStoreTime(t, time.Hour)
			_, err := f.Login(f.Ctx, busy, kit.LoginHost)
			kit.OK(t, err)
		}
		f.JumpStoreTime(t, time.Hour)
		f.WantLoginEnded(t, busy)
	})
}

// A key that was revoked, or has expired, ends its sessions at once, also those
// that another process serves.
func TestALoginEndsWithItsKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, token := f.CreateKeyAndLogin(t, 0)
		second := f.MustLogin(t, k.Key)
		beside := f.OpenProcess(t, f.RigStore, orchestrator.Config{}).Engine("default")
		_, err := beside.Login(f.Ctx, token, kit.LoginHost)
		kit.OK(t, err)
		_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
		kit.OK(t, err)
		for _, gone := range []picket.Secret{token, second} {
			f.WantLoginEnded(t, gone)
			_, err = beside.Login(f.Ctx, gone, kit.LoginHost)
			kit.Refused(t, err, picket.CodeUnauthenticated)
		}
		_, _, err = f.BeginLogin(f.Ctx, k.Key, kit.LoginHost, "loopback")
		kit.Refused(t, err, picket.CodeUnauthenticated)
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventLoginClosed}})
		kit.OK(t, err)
		if len(page.Events) != 2 {
			t.Errorf("%d sessions closed", len(page.Events))
		}
		for _, ev := range page.Events {
			if ev.Actor != kit.Operator.Actor {
				t.Errorf("a session of a revoked key was closed by %s", ev.Actor)
			}
		}

		short, last := f.CreateKeyAndLogin(t, picket.InstantOf(time.Now().Add(time.Hour)))
		_, err = f.Login(f.Ctx, last, kit.LoginHost)
		kit.OK(t, err)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:key:"+short.KeyID, "expires", "1").Err()) // as time would
		f.WantLoginEnded(t, last)
	})
}

// A key has 20 sessions at most: one more ends the oldest.
func TestAKeyHasTwentyLogins(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, first := f.CreateKeyAndLogin(t, 0)
		tokens := []picket.Secret{first}
		for range 19 {
			f.JumpStoreTime(t, time.Second)
			tokens = append(tokens, f.MustLogin(t, k.Key))
		}
		_, err := f.Login(f.Ctx, first, kit.LoginHost)
		kit.OK(t, err)
		f.JumpStoreTime(t, time.Second)
		tokens = append(tokens, f.MustLogin(t, k.Key))
		f.WantLoginEnded(t, first)
		for i, token := range tokens[1:] {
			if _, err := f.Login(f.Ctx, token, kit.LoginHost); err != nil {
				t.Errorf("session %d: %v", i+1, err)
			}
		}
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:sessions-of:"+k.KeyID).Val(); n != 20 {
			t.Errorf("%d are kept", n)
		}
	})
}
