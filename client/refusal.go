package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// unreachable is the error of a call without a whole answer; its fact "tls" says
// what is wrong with the TLS of a server that is there.
func unreachable(baseURL string, err error) error {
	err = fmt.Errorf("%w: %w", picket.ErrUnknown, err)
	if what, remedy := tlsFault(err); what != "" {
		return picket.Refuse(picket.CodeUnavailable, remedy, "%s %s", baseURL, what).With("tls", what).WithCause(err)
	}
	return picket.Refuse(picket.CodeUnavailable,
		"Check that the server runs and that its URL is right, then try again.",
		"%s does not answer", baseURL).WithCause(err)
}

// decodeProblem turns an error answer into a *picket.Error.
func decodeProblem(res *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(res.Body, maxProblem))
	if !strings.Contains(res.Header.Get("Content-Type"), "json") {
		b = nil
	}
	e := problemOf(b)
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 && s < 3600 {
		e.RetryAfter = time.Duration(s) * time.Second
	}
	if e.Code == "" {
		return foreignAnswer(res, e)
	}
	return e
}

// problemOf decodes an error object. Without one, the error has no code.
func problemOf(object []byte) *picket.Error {
	members := map[string]any{}
	_ = json.Unmarshal(object, &members, jsontext.AllowDuplicateNames(true))
	e := &picket.Error{
		Code:    picket.Code(stringMember(members, "code")),
		Message: stringMember(members, "message"),
		Remedy:  stringMember(members, "remedy"),
	}
	if e.Message == "" {
		e.Message = stringMember(members, "detail")
	}
	for _, known := range []string{"code", "message", "remedy", "detail", "type", "title", "status", "retryable"} {
		delete(members, known)
	}
	if len(members) > 0 {
		e.Facts = members
	}
	return e
}

// ErrNotPicket is the cause of a not_found or a method_not_allowed that did not come from a
// Picket server, but for example from a load balancer in front of it.
var ErrNotPicket = errors.New("the answer did not come from a Picket server")

// foreignAnswer completes the error of an answer that did not come from Picket, such
// as that of a load balancer: nothing is known about the call's effect.
func foreignAnswer(res *http.Response, e *picket.Error) error {
	e.Message = fmt.Sprintf("%s %s was answered %s", res.Request.Method, res.Request.URL.Path, res.Status)
	e.Remedy = "Check that the URL is that of a Picket server."
	switch {
	case res.StatusCode >= 500 || res.StatusCode == http.StatusTooManyRequests:
		e.Code = picket.CodeUnavailable
		return e.WithCause(picket.ErrUnknown)
	case res.StatusCode == http.StatusUnauthorized:
		e.Code = picket.CodeUnauthenticated
	case res.StatusCode == http.StatusNotFound:
		e.Code = picket.CodeNotFound
		return e.WithCause(ErrNotPicket)
	case res.StatusCode == http.StatusMethodNotAllowed:
		e.Code = picket.CodeMethodNotAllowed
		return e.WithCause(ErrNotPicket)
	default:
		e.Code = picket.CodeInternal
	}
	return e
}

func stringMember(members map[string]any, name string) string {
	s, _ := members[name].(string)
	return s
}

// tlsFault returns why a server that is reachable cannot be used over TLS, and what to do about it.
// It is empty if TLS is not the reason.
func tlsFault(err error) (what, remedy string) {
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &certificate):
		return "shows a certificate that is not trusted here: " + certificate.Err.Error(),
			"Trust the authority that signed it on this machine; on Linux SSL_CERT_FILE=FILE names another one. Or use a host name that the certificate has."
	case err != nil && strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return "speaks no TLS", "Write http:// instead of https://."
	}
	return "", ""
}
