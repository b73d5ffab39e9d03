package webhooks_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket/reaper/webhooks"
)

// The example by which the libraries of Standard Webhooks test themselves.
func TestTheSignatureIsThatOfTheStandard(t *testing.T) {
	got, err := webhooks.Sign("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "msg_p5jXN8AQM9LWM0D4loKWxJek",
		time.Unix(1614265330, 0), []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; err != nil || got != want {
		t.Errorf("%q %v, want %q", got, err, want)
	}
	if _, err := webhooks.Sign("whsec_%%%", "x", time.Now(), nil); err == nil {
		t.Error("a secret that is not base64 signs")
	}
}
