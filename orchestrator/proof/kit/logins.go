package kit

import (
	"testing"

	"github.com/picket-dev/picket"
)

// CreateKeyAndLogin makes a key and logs in with it.
func (f *Fixture) CreateKeyAndLogin(t *testing.T, expires picket.Instant) (picket.NewKey, picket.Secret) {
	t.Helper()
	k, err := f.CreateKey(f.Ctx, Operator,
		picket.KeyRequest{Name: "Ada", Scopes: []picket.Scope{picket.ScopeReviewer}, ExpiresAt: expires})
	OK(t, err)
	return k, f.MustLogin(t, k.Key)
}

func (f *Fixture) MustLogin(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	token, _, err := f.OpenLogin(f.Ctx, f.MustBeginLogin(t, key), LoginHost)
	OK(t, err)
	return token
}

// MustBeginLogin begins a login with a key.
func (f *Fixture) MustBeginLogin(t *testing.T, key picket.Secret) picket.Secret {
	t.Helper()
	code, _, err := f.BeginLogin(f.Ctx, key, LoginHost, "loopback")
	OK(t, err)
	return code
}

// WantLoginEnded checks that a login has ended.
func (f *Fixture) WantLoginEnded(t *testing.T, token picket.Secret) {
	t.Helper()
	_, err := f.Login(f.Ctx, token, LoginHost)
	Refused(t, err, picket.CodeUnauthenticated)
	if err.Error() != "the login has ended" {
		t.Errorf("it says %q", err)
	}
}
