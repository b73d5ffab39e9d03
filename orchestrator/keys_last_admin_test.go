package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// Only a key of scope admin that is neither revoked nor expired can stand in
// for the one that goes.
func TestTheLastLiveAdminKeyStays(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		create := func(name string, expires picket.Instant, scopes ...picket.Scope) string {
			k, err := f.CreateKey(f.ctx, operator, picket.KeyRequest{Name: name, Scopes: scopes, ExpiresAt: expires})
			ok(t, err)
			return k.KeyID
		}
		revoke := func(id string) error { _, err := f.RevokeKey(f.ctx, operator, id); return err }
		admin := create("admin", 0, picket.ScopeAdmin)
		operators := create("operator", 0, picket.ScopeAgent, picket.ScopeReviewer, picket.ScopeOperator)
		short := create("short", picket.InstantOf(time.Now().Add(-time.Hour)), picket.ScopeAdmin)
		gone := create("gone", 0, picket.ScopeAdmin)
		ok(t, revoke(gone))

		err := revoke(admin)
		refused(t, err, picket.CodeStateConflict)
		if text := err.Error(); !strings.Contains(text, "last admin key") {
			t.Errorf("it says %q", text)
		}
		if k, err := f.Key(f.ctx, admin); err != nil || !k.RevokedAt.IsZero() {
			t.Errorf("after the refusal: %+v, %v", k, err)
		}
		for _, id := range []string{operators, short, gone} {
			ok(t, revoke(id)) // nobody needs it to make keys
		}

		second := create("second", picket.InstantOf(time.Now().Add(time.Hour)), picket.ScopeAgent, picket.ScopeAdmin)
		ok(t, revoke(admin))
		ok(t, revoke(admin))
		refused(t, revoke(second), picket.CodeStateConflict)
	})
}
