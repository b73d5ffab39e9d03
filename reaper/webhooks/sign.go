package webhooks

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// Headers of a request, as Standard Webhooks names them.
const (
	HeaderID        = "webhook-id"        // the same whenever the same event is sent to the same target
	HeaderTimestamp = "webhook-timestamp" // of this attempt, seconds since 1970
	HeaderSignature = "webhook-signature" // v1,<base64>; several are separated by a space
)

// Sign is the signature of a request under a secret of the form whsec_<base64>.
func Sign(secret picket.Secret, id string, at time.Time, body []byte) (string, error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret.Reveal(), picket.WebhookSecretPrefix))
	if err != nil {
		return "", errors.New("the secret is not " + picket.WebhookSecretPrefix + " and base64")
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + strconv.FormatInt(at.Unix(), 10) + "."))
	mac.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)), nil
}

// TokenSecret is a secret of the form that Sign takes, whose key is the bytes of a token.
func TokenSecret(token picket.Secret) picket.Secret {
	if token == "" {
		return ""
	}
	return picket.Secret(picket.WebhookSecretPrefix + base64.StdEncoding.EncodeToString([]byte(token)))
}

// sign puts the three headers on a request. Without a secret there is no signature.
func sign(h http.Header, secret picket.Secret, id string, at time.Time, body []byte) error {
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, strconv.FormatInt(at.Unix(), 10))
	if secret == "" {
		return nil
	}
	signature, err := Sign(secret, id, at, body)
	if err != nil {
		return err
	}
	h.Set(HeaderSignature, signature)
	return nil
}
