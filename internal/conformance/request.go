package conformance

import (
	"bytes"
	"cmp"
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
	Client      KeyName = "CLIENT_KEY"
	OtherClient KeyName = "OTHER_CLIENT_KEY"
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
	// KeyHeader takes the key; Authorization takes it as a bearer. Defaults to X-API-Key.
	KeyHeader string
}

// Do sends a request. An answer without Err is a whole one.
func (s *Server) Do(ctx context.Context, r Request) *Answer {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	a, body := s.Open(ctx, r)
	if a.Err != nil {
		return a
	}
	a.ReadFrom(body)
	return a
}

// Open sends a request whose answer is a stream: the answer has its status and header, and body has the rest, which
// must be closed. body is nil if the answer has an error. The request ends with ctx.
func (s *Server) Open(ctx context.Context, r Request) (a *Answer, body io.ReadCloser) {
	a = &Answer{Curl: r.commandLine()}
	content := encode(r.Body)
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, bytes.NewReader(content))
	if err != nil {
		a.Err = err
		return a, nil
	}
	req.Header.Set("User-Agent", "picket-conformance")
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if header := r.keyHeader(); header == "Authorization" {
		req.Header.Set(header, "Bearer "+r.Secret)
	} else if header != "" {
		req.Header.Set(header, r.Secret)
	}
	for i := 0; i+1 < len(r.Headers); i += 2 {
		req.Header.Set(r.Headers[i], r.Headers[i+1])
	}
	res, err := s.HTTP.Do(req)
	if err != nil {
		a.Err = err
		return a, nil
	}
	a.Status, a.Header = res.StatusCode, res.Header
	return a, res.Body
}

// ReadFrom reads the rest of an answer, and closes it.
func (a *Answer) ReadFrom(body io.ReadCloser) {
	defer body.Close()
	if a.Raw, a.Err = io.ReadAll(io.LimitReader(body, maxAnswer)); a.Err == nil {
		a.decode()
	}
}

// keyHeader is the header that takes the key; empty: the request has none.
func (r Request) keyHeader() string {
	switch {
	case r.By == Nobody:
		return ""
	case r.By == LeaseHolder:
		return "Authorization"
	}
	return cmp.Or(r.KeyHeader, "X-API-Key")
}

// commandLine is the request for a shell, its key as a variable.
func (r Request) commandLine() string {
	line := []string{"curl -sSi -X", r.Method}
	for _, argument := range unixsocket.CurlArguments(r.URL) {
		line = append(line, quoted(argument))
	}
	if header := r.keyHeader(); header == "Authorization" {
		line = append(line, `-H "Authorization: Bearer $`+string(r.By)+`"`)
	} else if header != "" {
		line = append(line, `-H "`+header+`: $`+string(r.By)+`"`)
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
