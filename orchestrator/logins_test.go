package orchestrator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// A code opens one session. Whoever shows it again gets none, and ends the one
// that it opened: one of the two is not the person who signed in.
func TestALoginCodeOpensOneSession(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, other := f.person(t, 0)
		code := f.code(t, k.Key)
		token, _, err := f.OpenSession(f.ctx, code, ownHost)
		ok(t, err)
		_, err = f.Session(f.ctx, token, ownHost)
		ok(t, err)
		for range 2 {
			_, _, err = f.OpenSession(f.ctx, code, ownHost)
			refused(t, err, picket.CodeUnauthenticated)
			if strings.Contains(err.Error(), code.Reveal()) || strings.Contains(err.Error(), ownHost) {
				t.Errorf("the refusal tells a secret: %v", err)
			}
			f.over(t, token)
		}
		_, err = f.Session(f.ctx, other, ownHost)
		ok(t, err)
		page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{picket.EventSessionClosed}})
		ok(t, err)
		if len(page.Events) != 1 || !strings.Contains(string(page.Events[0].Data), `"reason":"code_reused"`) {
			t.Errorf("the log says %v", page.Events)
		}
	})
}

// Two browsers show a code at once: at most one is let in, and the session that
// was opened has ended when both have their answer.
func TestALoginCodeUsedTwiceAtOnce(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, _ := f.person(t, 0)
		code := f.code(t, k.Key)
		var group sync.WaitGroup
		var mu sync.Mutex
		var opened []picket.Secret
		for range 8 {
			group.Go(func() {
				token, _, err := f.OpenSession(f.ctx, code, ownHost)
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
		f.over(t, opened[0])
	})
}

// A code is for one host name, for a minute of store time, and for as long as
// its key holds.
func TestALoginCodeIsBound(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, _ := f.person(t, 0)
		code := f.code(t, k.Key)
		wrong := []picket.Secret{"", "default.", code + "A", k.Key,
			picket.Secret("other" + strings.TrimPrefix(code.Reveal(), "default")),
			picket.Secret("default." + strings.Repeat("A", 43))}
		for _, c := range wrong {
			_, _, err := f.OpenSession(f.ctx, c, ownHost)
			refused(t, err, picket.CodeUnauthenticated)
		}
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", ownHost + "."} {
			_, _, err := f.OpenSession(f.ctx, code, host)
			refused(t, err, picket.CodeUnauthenticated)
		}
		token, _, err := f.OpenSession(f.ctx, code, strings.ToUpper(ownHost)) // none of these has used it up
		ok(t, err)
		if _, err := f.Session(f.ctx, code, ownHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a code is taken for a session: %v", err)
		}
		if _, _, err := f.OpenSession(f.ctx, token, ownHost); picket.CodeOf(err) != picket.CodeUnauthenticated {
			t.Errorf("a session is taken for a code: %v", err)
		}

		late := f.code(t, k.Key)
		f.jump(t, time.Minute)
		_, _, err = f.OpenSession(f.ctx, late, ownHost)
		refused(t, err, picket.CodeUnauthenticated)

		orphan := f.code(t, k.Key)
		_, err = f.RevokeKey(f.ctx, operator, k.KeyID)
		ok(t, err)
		_, _, err = f.OpenSession(f.ctx, orphan, ownHost)
		refused(t, err, picket.CodeUnauthenticated)
	})
}

// A session is known on its own host name alone; asking on another one neither
// uses it nor ends it.
func TestASessionIsBoundToItsHostName(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		_, token := f.person(t, 0)
		f.jump(t, picket.SessionIdle-time.Minute)
		for _, host := range []string{"", "two.localhost", "localhost", "127.0.0.1", "picket.example", ownHost + ".",
			"x." + ownHost} {
			_, err := f.Session(f.ctx, token, host)
			refused(t, err, picket.CodeUnauthenticated)
			_, err = f.SessionHolds(f.ctx, token, host)
			refused(t, err, picket.CodeUnauthenticated)
			ok(t, f.CloseSession(f.ctx, token, host))
		}
		_, err := f.SessionHolds(f.ctx, token, ownHost)
		ok(t, err)
		f.jump(t, 2*time.Minute)
		f.over(t, token)
	})
}

// What the store keeps of a login that nobody ended goes with time.
func TestLoginCodesAreForgotten(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		k, _ := f.person(t, 0)
		f.code(t, k.Key)
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
