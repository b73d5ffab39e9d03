package doctor

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

const publicURLTimeout = 5 * time.Second

// publicURLFindings tells whether the server answers under public_url. The request has no key. There is no finding if
// public_url is not set.
func publicURLFindings(ctx context.Context, public string) []Finding {
	if public == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, publicURLTimeout)
	defer cancel()
	detail, remedy := checkPublicURL(ctx, public+"/healthz")
	if detail != "" {
		return []Finding{{"public url", "fail", detail, remedy}}
	}
	return []Finding{{"public url", "ok", public + " leads to a Picket server", ""}}
}

// checkPublicURL says what is wrong with the health check of a server at its public address.
func checkPublicURL(ctx context.Context, health string) (detail, remedy string) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, health, nil)
	if err != nil {
		return term.OneLine(err.Error()), "Write public_url as https://HOST or https://HOST/PATH."
	}
	r.Close = true
	direct := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	answer, err := direct.Do(r)
	if err != nil {
		return unansweredText(health, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
	if err != nil {
		return unansweredText(health, err)
	}
	return judgeHealth(health, answer, body)
}

// unansweredText says why there is no answer from a URL. The error has the URL already.
func unansweredText(health string, err error) (detail, remedy string) {
	var request *url.Error
	if errors.As(err, &request) {
		err = request.Err
	}
	detail = health + " does not answer: " + term.OneLine(err.Error())
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &name):
		return detail, "Correct the host in public_url, or add the name to the DNS."
	case errors.As(err, &certificate):
		return detail, "Give the server or its proxy a certificate for the host in public_url, from an authority that clients know."
	case errors.Is(err, http.ErrSchemeMismatch):
		return detail, "Write http:// in public_url, or serve TLS there."
	}
	return detail, "Start the server and its proxy, or correct public_url. If only this machine cannot reach it, run picket doctor elsewhere."
}

// judgeHealth says how an answer differs from that of a Picket server.
func judgeHealth(health string, answer *http.Response, body []byte) (detail, remedy string) {
	const elsewhere = "Correct the host and the path in public_url. A proxy removes the path of public_url before it passes a request on."
	var said struct {
		Status string `json:"status"`
	}
	var refusal struct {
		Code picket.Code `json:"code"`
	}
	fromPicket := answer.Header.Get("X-Request-Id") != ""
	known := json.Unmarshal(bytes.TrimSpace(body), &said) == nil && said.Status == "ok"
	switch status := answer.StatusCode; {
	case status == http.StatusOK && known && fromPicket:
		return "", ""
	case status >= 300 && status < 400:
		return fmt.Sprintf("%s redirects to %s", health, term.OneLine(answer.Header.Get("Location"))),
			"Write the address that it leads to as public_url, without /healthz. Not every client follows redirects."
	case status == http.StatusForbidden && fromPicket && json.Unmarshal(body, &refusal) == nil &&
		refusal.Code == picket.CodeForbidden:
		return health + ": the server there does not serve this host name",
			"Start that server with the same public_url, or add the name to its allowed_hosts."
	case status >= 502 && status <= 504:
		return fmt.Sprintf("%s answers %s: the proxy there does not reach the server", health, term.OneLine(answer.Status)),
			"Start the server, or correct the address to which the proxy passes requests."
	case status == http.StatusOK:
		return health + " is answered by another server than Picket", elsewhere
	default:
		return fmt.Sprintf("%s answers %s, so another server is there", health, term.OneLine(answer.Status)), elsewhere
	}
}
