package rfc16

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/picket-dev/picket/internal/unixsocket"
)

// keyName speaks: the name of the key, which is also the shell variable in whose
// place a repeated request needs it.
type keyName string

const (
	nobody      keyName = ""
	owner       keyName = "AGENT_KEY"
	stranger    keyName = "OTHER_KEY"
	operator    keyName = "OPERATOR_KEY"
	reviewer    keyName = "REVIEWER_KEY"
	admin       keyName = "ADMIN_KEY"
	unknownKey  keyName = "UNKNOWN_KEY"
	leaseHolder keyName = "LEASE_TOKEN"
)

const maxAnswer = 16 << 20

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// request is one HTTP request of the suite.
type request struct {
	by      keyName
	secret  string
	method  string
	url     string
	body    any
	headers []string // name, value, …
}

func (s *suite) do(ctx context.Context, r request) *answer {
	a := &answer{curl: r.commandLine()}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	content := encode(r.body)
	req, err := http.NewRequestWithContext(ctx, r.method, r.url, bytes.NewReader(content))
	if err != nil {
		a.err = err
		return a
	}
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch r.by {
	case nobody:
	case leaseHolder:
		req.Header.Set("Authorization", "Bearer "+r.secret)
	default:
		req.Header.Set("X-API-Key", r.secret)
	}
	for i := 0; i+1 < len(r.headers); i += 2 {
		req.Header.Set(r.headers[i], r.headers[i+1])
	}
	res, err := s.cfg.HTTP.Do(req)
	if err != nil {
		a.err = err
		return a
	}
	defer res.Body.Close()
	a.status, a.header = res.StatusCode, res.Header
	if a.raw, a.err = io.ReadAll(io.LimitReader(res.Body, maxAnswer)); a.err == nil {
		a.decode()
	}
	return a
}

// commandLine is the request for a shell, its key as a variable.
func (r request) commandLine() string {
	line := []string{"curl -sSi -X", r.method}
	for _, argument := range unixsocket.CurlArguments(r.url) {
		line = append(line, quoted(argument))
	}
	switch r.by {
	case nobody:
	case leaseHolder:
		line = append(line, `-H "Authorization: Bearer $`+string(r.by)+`"`)
	default:
		line = append(line, `-H "X-API-Key: $`+string(r.by)+`"`)
	}
	for i := 0; i+1 < len(r.headers); i += 2 {
		line = append(line, "-H "+quoted(r.headers[i]+": "+r.headers[i+1]))
	}
	if r.body != nil {
		line = append(line, "-H 'Content-Type: application/json' -d", quoted(string(encode(r.body))))
	}
	return strings.Join(line, " ")
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// secrets are forms of keys and lease tokens; none may be shown.
var secrets = regexp.MustCompile(`pk([kl])_[A-Za-z0-9._-]+`)

// redact takes every secret out of a text that is shown.
func (s *suite) redact(text string) string {
	for _, secret := range s.keys {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return secrets.ReplaceAllString(text, "pk${1}_…")
}
