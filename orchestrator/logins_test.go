package orchestrator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A code opens one session. Anyone who shows it again gets none, and ends the one
// that it opened: one of the two is not the person who signed in.
func TestALoginCodeOpensOneLogin(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, other := f.createKeyAndLogin(t, 0)
		code := f.mustBeginLogin(t, k.Key)
		token, _, err := f.OpenLogin(f.ctx, code, loginHost)
		ok(t, err)
		_, err = f.Login(f.ctx, token, loginHost)
		ok(t, err)
		for range 2 {
			_, _, err = f.OpenLogin(f.ctx, code, loginHost)
			refused(t, err, picket.CodeUnauthenticated)
			if strings.Contains(err.Error(), code.Reveal()) || strings.Contains(err.Error(), loginHost) {
				t.Errorf("the refusal tells a secret: %v", err)
			}
			f.wantLoginEnded(t, token)
		}
		_, err = f.Login(f.ctx, other, loginHost)
		ok(t, err)
		page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{picket.EventLoginClosed}})
		ok(t, err)
		if len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Data), `"reason":"code_reused"`) {
			t.Errorf("the log says %v", page.Events)
		}
	})
}

// Two browsers show a code at once: at most one is let in, and the session that
// was opened has ended when both have their answer.
func TestALoginCodeUsedTwiceAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.createKeyAndLogin(t, 0)
		code := f.mustBeginLogin(t, k.Key)
		var group sync.WaitGroup
		var mu sync.Mutex
		var opened []picket.Secret
		for range 8 {
			group.Go(func() {
				token, _, err := f.OpenLogin(f.ctx, code, loginHost)
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					opened = append(opened, token)
				} else if picket.CodeOf(err) != picket.CodeUnauthenticated {
					t.Errorf("a second use: %v", err)
				}
			})
		}
		group.Wait()
		if len(opened) != 1 {
			t.Fatalf("%d of 8 were let in", len(opened))
		}
		f.wantLoginEnded(t, opened[0])
	})
}

// A code is for one host name, for a minute of store time, and for as long as
// its key holds.
func TestALoginCodeIsBound(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.createKeyAndLogin(t, 0)
		code := f.mustBeginLogin(t, k.Key)
		wrong := []picket.Secret{"", "default.", code + "A", k.Key,
			picket.Secret("other" + strings.TrimPrefix(code.Reveal(), "default")),
			picket.Secret("default." + strings.Repeat("A", 43))}
		for _, c := range wrong {
			_, _, err := f.OpenLogin(f.ctx, c, loginHost)
			refused(t, err, picket.CodeUnauthenticated)
		}
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", loginHost + "."} {
			_, _, err := f.OpenLogin(f.ctx, code, host)
			refused(t, err, picket.CodeUnauthenticated)
		}
		token, _, err := f.OpenLogin(f.ctx, code, strings.ToUpper(loginHost)) // none of these has used it up
		ok(t, err)
		if _, err := f.Login(f.ctx, code, loginHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a code is taken for a session: %v", err)
		}
		if _, _, err := f.OpenLogin(f.ctx, token, loginHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a session is taken for a code: %v", err)
		}

		late := f.mustBeginLogin(t, k.Key)
		f.jumpStoreTime(t, time.Minute)
		_, _, err = f.OpenLogin(f.ctx, late, loginHost)
		refused(t, err, picket.CodeUnauthenticated)

		orphan := f.mustBeginLogin(t, k.Key)
		_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
		ok(t, err)
		_, _, err = f.OpenLogin(f.ctx, orphan, loginHost)
		refused(t, err, picket.CodeUnauthenticated)
	})
}

// A session is known on its own host name alone; asking on another one neither
// uses it nor ends it.
func TestALoginIsBoundToItsHostName(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, token := f.createKeyAndLogin(t, 0)
		f.jumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", "picket.example", loginHost + ".",
			"x." + loginHost} {
			_, err := f.Login(f.ctx, token, host)
			refused(t, err, picket.CodeUnauthenticated)
			_, err = f.CheckLogin(f.ctx, token, host)
			refused(t, err, picket.CodeUnauthenticated)
			ok(t, f.CloseLogin(f.ctx, token, host))
		}
		_, err := f.CheckLogin(f.ctx, token, loginHost)
		ok(t, err)
		f.jumpStoreTime(t, 2*time.Minute)
		f.wantLoginEnded(t, token)
	})
}

// What the store keeps of a login that nobody ended goes with time.
func TestLoginCodesAreForgotten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.createKeyAndLogin(t, 0)
		f.mustBeginLogin(t, k.Key)
		codes, err := f.raw.Keys(f.ctx, "pk:{default}:login:*").Result()
		ok(t, err)
		left := []time.Duration{}
		for _, key := range codes {
			left = append(left, f.raw.PTTL(f.ctx, key).Val())
		}
		if len(codes) != 2 || slices.Max(left) > time.Minute || slices.Min(left) <= 0 {
			t.Errorf("codes %v live for %v", codes, left)
		}
	})
}
