package conformance

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

// KeyName speaks: the name of the key, which is also the shell variable in whose
// place a repeated request needs it.
type KeyName string

// The names of keys. Nobody sends none, and LeaseHolder sends the lease token of the request.
const (
	Nobody      KeyName = ""
	Owner       KeyName = "AGENT_KEY"
	Stranger    KeyName = "OTHER_KEY"
	Operator    KeyName = "OPERATOR_KEY"
	Reviewer    KeyName = "REVIEWER_KEY"
	Admin       KeyName = "ADMIN_KEY"
	UnknownKey  KeyName = "UNKNOWN_KEY"
	LeaseHolder KeyName = "LEASE_TOKEN"
)

const maxAnswer = 16 << 20

// requestTimeout bounds one request.
const requestTimeout = 30 * time.Second

// Request is one HTTP request of a suite.
type Request struct {
	By      KeyName
	Secret  string
	Method  string
	URL     string
	Body    any
	Headers []string // name, value, …
}

// Do sends a request. An answer without Err is a whole one.
func (s *Server) Do(ctx context.Context, r Request) *Answer {
	a := &Answer{Curl: r.commandLine()}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	content := encode(r.Body)
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(content))
	if err != nil {
		a.Err = err
		return a
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	switch r.By {
	case Nobody:
	case LeaseHolder:
		req.Header.Set("Authorization", "Bearer "+r.Secret)
	default:
		req.Header.Set("X-API-Key", r.Secret)
	}
	for i := 0; i+1 < len(r.Headers); i += 2 {
		req.Header.Set(r.Headers[i], r.Headers[i+1])
	}
	res, err := s.HTTP.Do(req)
	if err != nil {
		a.Err = err
		return a
	}
	defer res.Body.Close()
	a.Status, a.Header = res.StatusCode, res.Header
	if a.Raw, a.Err = io.ReadAll(io.LimitReader(res.Body, maxAnswer)); a.Err == nil {
		a.decode()
	}
	return a
}

// commandLine is the request for a shell, its key as a variable.
func (r Request) commandLine() string {
	line := []string{"curl -sSi -X", r.Method}
	for _, argument := range unixsocket.CurlArguments(r.URL) {
		line = append(line, quoted(argument))
	}
	switch r.By {
	case Nobody:
	case LeaseHolder:
		line = append(line, `-H "Authorization: Bearer $`+string(r.By)+`"`)
	default:
		line = append(line, `-H "X-API-Key: $`+string(r.By)+`"`)
	}
	for i := 0; i+1 < len(r.Headers); i += 2 {
		line = append(line, "-H "+quoted(r.Headers[i]+": "+r.Headers[i+1]))
	}
	if r.Body != nil {
		line = append(line, "-H 'Content-Type: application/json' -d", quoted(string(encode(r.Body))))
	}
	return strings.Join(line, " ")
}

func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }

// secrets are forms of keys, session capabilities and lease tokens; none may be shown.
var secrets = regexp.MustCompile(`pk([kls])_[A-Za-z0-9._-]+`)

// Redact takes every secret out of a text that is shown.
func (s *Server) Redact(text string) string {
	for _, secret := range s.Keys {
		if len(secret) > 3 {
			text = strings.ReplaceAll(text, secret, "…")
		}
	}
	return secrets.ReplaceAllString(text, "pk${1}_…")
}
