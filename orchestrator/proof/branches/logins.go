package branches

import (
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func coverLogins(t *testing.T, f *fixture) {
	k, token := f.CreateKeyAndLogin(t, 0)
	_, err := f.Login(f.Ctx, token, kit.LoginHost)
	kit.OK(t, err)
	f.JumpStoreTime(t, 2*time.Minute)
	_, err = f.Login(f.Ctx, token, kit.LoginHost)
	kit.OK(t, err)
	kit.OK(t, f.CloseLogin(f.Ctx, token, kit.LoginHost))
	kit.OK(t, f.CloseLogin(f.Ctx, token, kit.LoginHost))
	f.WantLoginEnded(t, token)
	_, _, err = f.BeginLogin(f.Ctx, "pkk_default_x", kit.LoginHost, "loopback")
	kit.Refused(t, err, picket.CodeUnauthenticated)
	code := picket.Secret("default." + strings.Repeat("c", 43))
	f.CallTwice(t, func() error { return kit.BeginLoginAs(f.Ctx, f.Engine, code, k.Key, kit.LoginHost) })
	f.CallTwice(t, func() error { return kit.OpenLoginAs(f.Ctx, f.Engine, "default.x", code, kit.LoginHost) })
	for range 2 { // the first ends what the code has opened
		_, _, err = f.OpenLogin(f.Ctx, code, kit.LoginHost)
		kit.Refused(t, err, picket.CodeUnauthenticated)
	}
	late := f.MustBeginLogin(t, k.Key)
	f.JumpStoreTime(t, time.Minute)
	_, _, err = f.OpenLogin(f.Ctx, late, kit.LoginHost)
	kit.Refused(t, err, picket.CodeUnauthenticated)
	for range 21 {
		f.MustLogin(t, k.Key)
	}
	_, err = f.RevokeKey(f.Ctx, kit.Operator, k.KeyID)
	kit.OK(t, err)
}
