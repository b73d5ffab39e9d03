package orchestrator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A code opens one session. Anyone who shows it again gets none, and ends the one
// that it opened: one of the two is not the person who signed in.
func TestALoginCodeOpensOneLogin(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, other := f.CreateKeyAndLogin(t, 0)
		code := f.MustBeginLogin(t, k.Key)
		token, _, err := f.OpenLogin(f.Ctx, code, kit.LoginHost)
		kit.OK(t, err)
		_, err = f.Login(f.Ctx, token, kit.LoginHost)
		kit.OK(t, err)
		for range 2 {
			_, _, err = f.OpenLogin(f.Ctx, code, kit.LoginHost)
			kit.Refused(t, err, picket.CodeUnauthenticated)
			if strings.Contains(err.Error(), code.Reveal()) || strings.Contains(err.Error(), kit.LoginHost) {
				t.Errorf("the refusal tells a secret: %v", err)
			}
			f.WantLoginEnded(t, token)
		}
		_, err = f.Login(f.Ctx, other, kit.LoginHost)
		kit.OK(t, err)
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventLoginClosed}})
		kit.OK(t, err)
		if len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Data), `"reason":"code_reused"`) {
			t.Errorf("the log says %v", page.Events)
		}
	})
}

// Two browsers show a code at once: at most one is let in, and the session that
// was opened has ended when both have their answer.
func TestALoginCodeUsedTwiceAtOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.CreateKeyAndLogin(t, 0)
		code := f.MustBeginLogin(t, k.Key)
		var group sync.WaitGroup
		var mu sync.Mutex
		var opened []picket.Secret
		for range 8 {
			group.Go(func() {
				token, _, err := f.OpenLogin(f.Ctx, code, kit.LoginHost)
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
		f.WantLoginEnded(t, opened[0])
	})
}

// A code is for one host name, for a minute of store time, and for as long as
// its key holds.
func TestALoginCodeIsBound(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.CreateKeyAndLogin(t, 0)
		code := f.MustBeginLogin(t, k.Key)
		wrong := []picket.Secret{"", "default.", code + "A", k.Key,
			picket.Secret("other" + strings.TrimPrefix(code.Reveal(), "default")),
			picket.Secret("default." + strings.Repeat("A", 43))}
		for _, c := range wrong {
			_, _, err := f.OpenLogin(f.Ctx, c, kit.LoginHost)
			kit.Refused(t, err, picket.CodeUnauthenticated)
		}
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", kit.LoginHost + "."} {
			_, _, err := f.OpenLogin(f.Ctx, code, host)
			kit.Refused(t, err, picket.CodeUnauthenticated)
		}
		token, _, err := f.OpenLogin(f.Ctx, code, strings.ToUpper(kit.LoginHost)) // none of these has used it up
		kit.OK(t, err)
		if _, err := f.Login(f.Ctx, code, kit.LoginHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a code is taken for a session: %v", err)
		}
		if _, _, err := f.OpenLogin(f.Ctx, token, kit.LoginHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a session is taken for a code: %v", err)
		}

		late := f.MustBeginLogin(t, k.Key)
		f.JumpStoreTime(t, time.Minute)
		_, _, err = f.OpenLogin(f.Ctx, late, kit.LoginHost)
		kit.Refused(t, err, picket.CodeUnauthenticated)

		orphan := f.MustBeginLogin(t, k.Key)
		_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
		kit.OK(t, err)
		_, _, err = f.OpenLogin(f.Ctx, orphan, kit.LoginHost)
		kit.Refused(t, err, picket.CodeUnauthenticated)
	})
}

// A session is known on its own host name alone; asking on another one neither
// uses it nor ends it.
func TestALoginIsBoundToItsHostName(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, token := f.CreateKeyAndLogin(t, 0)
		f.JumpStoreTime(t, picket.LoginIdleTimeout-time.Minute)
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", "picket.example",
			kit.LoginHost + ".",
			"x." + kit.LoginHost} {
			_, err := f.Login(f.Ctx, token, host)
			kit.Refused(t, err, picket.CodeUnauthenticated)
			_, err = f.CheckLogin(f.Ctx, token, host)
			kit.Refused(t, err, picket.CodeUnauthenticated)
			kit.OK(t, f.CloseLogin(f.Ctx, token, host))
		}
		_, err := f.CheckLogin(f.Ctx, token, kit.LoginHost)
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Minute)
		f.WantLoginEnded(t, token)
	})
}

// What the store keeps of a login that nobody ended goes with time.
func TestLoginCodesAreForgotten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		k, _ := f.CreateKeyAndLogin(t, 0)
		f.MustBeginLogin(t, k.Key)
		codes, err := f.Raw.Keys(f.Ctx, "pk:{default}:login:*").Result()
		kit.OK(t, err)
		left := []time.Duration{}
		for _, key := range codes {
			left = append(left, f.Raw.PTTL(f.Ctx, key).Val())
		}
		if len(codes) != 2 || slices.Max(left) > time.Minute || slices.Min(left) <= 0 {
			t.Errorf("codes %v live for %v", codes, left)
		}
	})
}
