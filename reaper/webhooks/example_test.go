package webhooks_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket/reaper/webhooks"
)

// verify reports whether a request is from Picket: body is as it came, and
// secret is what `picket webhook create` has shown.
func verify(secret string, h http.Header, body []byte) error {
	id, stamp := h.Get("webhook-id"), h.Get("webhook-timestamp")
	at, err := strconv.ParseInt(stamp, 10, 64)
	if err != nil || time.Since(time.Unix(at, 0)).Abs() > 5*time.Minute {
		return errors.New("it is old, or somebody plays it again")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		return err
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + stamp + "." + string(body)))
	want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, got := range strings.Fields(h.Get("webhook-signature")) {
		if hmac.Equal([]byte(got), []byte(want)) {
			return nil // seen id before? Then answer 200 and do nothing.
		}
	}
	return errors.New("the signature is not right")
}

// A receiver makes the signature again from the body as it came, and compares.
func ExampleSign() {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	at, body := time.Now(), []byte(`{"id":"7","type":"task.review"}`)
	signature, err := webhooks.Sign(secret, "wh_1-7", at, body)
	if err != nil {
		fmt.Println(err)
		return
	}
	h := http.Header{}
	h.Set(webhooks.HeaderID, "wh_1-7")
	h.Set(webhooks.HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	h.Set(webhooks.HeaderSignature, signature)
	fmt.Println(verify(secret, h, body))
	fmt.Println(verify(secret, h, []byte(`{"id":"7","type":"task.approved"}`)))
	// Output:
	// <nil>
	// the signature is not right
}

// The way to verify a request that the documents show is this one, and works.
func TestTheDocumentedVerification(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	must(t, err)
	page, err := os.ReadFile("../../docs/protocol.md")
	must(t, err)
	_, code, _ := strings.Cut(string(source), "\nfunc verify(")
	code, _, _ = strings.Cut(code, "\n}\n")
	if !strings.Contains(string(page), "func verify("+code+"\n}\n") {
		t.Errorf("docs/protocol.md shows another way; it should be\nfunc verify(%s\n}", code)
	}
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	body, now := []byte(`{"id":"7"}`), time.Now()
	signed := func(at time.Time, id, with string) http.Header {
		signature, err := webhooks.Sign(testSecret, "1", at, body)
		must(t, err)
		return http.Header{
			"Webhook-Id":        {id},
			"Webhook-Timestamp": {strconv.FormatInt(at.Unix(), 10)},
			"Webhook-Signature": {with + signature},
		}
	}
	for _, with := range []string{"", "v1,bm8= v1a,bm8= "} {
		if err := verify(secret, signed(now, "1", with), body); err != nil {
			t.Errorf("a good one: %v", err)
		}
	}
	bad := []error{verify(secret, signed(now, "2", ""), body),
		verify(secret, signed(now, "1", ""), []byte(`{"id":"8"}`)),
		verify(secret, signed(now.Add(-time.Hour), "1", ""), body),
		verify("whsec_bm8=", signed(now, "1", ""), body), verify("whsec_%", signed(now, "1", ""), body),
		verify(secret, http.Header{}, body)}
	for i, err := range bad {
		if err == nil {
			t.Errorf("bad request %d passes", i)
		}
	}
}
