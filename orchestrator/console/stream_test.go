package console_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// An open page asks automatically all day long; that does not use the session,
// which ends two hours after the last click.
func TestAnOpenPageDoesNotKeepItsSession(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for range 3 {
			o.advanceStoreTime(35 * time.Minute)
			for path, part := range map[string]string{"/console/": "main", "/console/live": "events"} {
				if p := s.get(path, "Picket-Part", part); p.status != http.StatusOK {
					t.Fatalf("%s: %d %s", path, p.status, p.text())
				}
			}
		}
		o.advanceStoreTime(16 * time.Minute)
		for path, part := range map[string]string{"/console/": "main", "/console/live": "events"} {
			if p := s.get(path, "Picket-Part", part); p.status != http.StatusUnauthorized {
				t.Errorf("%s two hours after the last click: %d", path, p.status)
			}
		}
	})
}
