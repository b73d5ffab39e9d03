package orchestrator_test

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Only a key of scope admin that is neither revoked nor expired can stand in
// for the one that goes.
func TestTheLastLiveAdminKeyStays(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		create := func(name string, expires picket.Instant, scopes ...picket.Scope) string {
			k, err := f.CreateKey(f.Ctx, kit.Operator, picket.KeyRequest{Name: name, Scopes: scopes,
				ExpiresAt: expires})
			kit.OK(t, err)
			return k.KeyID
		}
		revoke := func(id string) error { _, err := f.RevokeKey(f.Ctx, kit.Operator, id); return err }
		admin := create("admin", 0, picket.ScopeAdmin)
		operators := create("operator", 0, picket.ScopeAgent, picket.ScopeReviewer, picket.ScopeOperator)
		short := create("short", picket.InstantOf(time.Now().Add(-time.Hour)), picket.ScopeAdmin)
		gone := create("gone", 0, picket.ScopeAdmin)
		kit.OK(t, revoke(gone))

		err := revoke(admin)
		kit.Refused(t, err, picket.CodeStateConflict)
		if text := err.Error(); !strings.Contains(text, "last admin key") {
			t.Errorf("it says %q", text)
		}
		if k, err := f.Key(f.Ctx, admin); err != nil || !k.RevokedAt.IsZero() {
			t.Errorf("after the refusal: %+v, %v", k, err)
		}
		for _, id := range []string{operators, short, gone} {
			kit.OK(t, revoke(id)) // nobody needs it to make keys
		}

		second := create("second", picket.InstantOf(time.Now().Add(time.Hour)), picket.ScopeAgent, picket.ScopeAdmin)
		kit.OK(t, revoke(admin))
		kit.OK(t, revoke(admin))
		kit.Refused(t, revoke(second), picket.CodeStateConflict)
	})
}
