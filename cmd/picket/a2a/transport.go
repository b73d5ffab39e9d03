package a2a

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

// maxAnswer is how many bytes an answer, or an event of a stream, may have.
const maxAnswer = 16 << 20

const eventStream = "text/event-stream"

// guard sends the requests to an agent. It sends none to a host that was not named by a person, adds the credential,
// bounds the answers, and turns failures into errors of [picket.Error].
type guard struct {
	next       http.RoundTripper
	target     *target
	credential picket.Secret
	set        func(header http.Header, credential string)
}

// RoundTrip sends one request. The error is a [picket.Error] or that of the context.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.target.allows(r.URL) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, picket.Refuse(exit.CodeUsage, g.target.allowRemedy(r.URL.Host), "no request is sent to %s, which is not the host of the agent", excerpt(r.URL.Host))
	}
	sent := r.Clone(r.Context())
	sent.Header.Set(protocol.SvcParamVersion, string(protocol.Version))
	if g.credential != "" {
		g.set(sent.Header, g.credential.Reveal())
	}
	res, err := g.next.RoundTrip(sent)
	switch {
	case r.Context().Err() != nil && err != nil:
		return nil, context.Cause(r.Context())
	case picket.CodeOf(err) == picket.CodeDestination: // of a worker
		return nil, err
	case err != nil:
		return nil, picket.Refuse(picket.CodeUnavailable, "Check the address, and that the agent runs.",
			"%s does not answer: %s", g.target.base, excerpt(err.Error())).
			WithCause(errors.Join(picket.ErrUnknown, err))
	}
	kind, _, _ := mime.ParseMediaType(res.Header.Get("Content-Type"))
	if kind == eventStream && res.StatusCode == http.StatusOK {
		res.Body = &eventBody{ReadCloser: res.Body}
		return res, nil
	}
	raw, err := readAnswer(res)
	if err == nil {
		err = g.target.refusalIn(res, raw)
	}
	if err == nil && r.Header.Get("Accept") == eventStream {
		err = notA2A("the agent answered %.80q to a request for a stream", kind)
	}
	if err != nil {
		return nil, err
	}
	if kept, ok := r.Context().Value(answerKey{}).(*[]byte); ok {
		*kept = raw
	}
	res.Body = io.NopCloser(bytes.NewReader(raw))
	return res, nil
}

// readAnswer reads an answer that is not a stream.
func readAnswer(res *http.Response) ([]byte, error) {
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case len(raw) > maxAnswer:
		return nil, tooLong()
	case err != nil && res.Request.Context().Err() != nil:
		return nil, context.Cause(res.Request.Context())
	case err != nil:
		return nil, picket.Refuse(picket.CodeUnavailable, "Send the request again.", "the answer of the agent was cut off: %s",
			excerpt(err.Error())).WithCause(errors.Join(picket.ErrUnknown, err))
	}
	return raw, nil
}

func tooLong() error {
	return picket.Refuse(picket.CodeUpstream, "Ask the agent for less.", "an answer of the agent has more than %d MiB",
		maxAnswer>>20)
}

// eventBody is the body of a stream. Reading it fails with [tooLong] when one event is too long, and with
// [picket.CodeUnavailable] when the connection is lost, also if that is after half an event.
type eventBody struct {
	io.ReadCloser
	size  int  // bytes of the event so far
	blank bool // the line so far is empty
}

// Read reads from the stream.
func (b *eventBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	for _, c := range p[:n] {
		switch {
		case c == '\n' && b.blank:
			b.size = -1 // this is the end of an event, or an empty line between events
		case c == '\n':
			b.blank = true
		case c != '\r':
			b.blank = false
		}
		if b.size++; b.size > maxAnswer {
			return 0, tooLong()
		}
	}
	if errors.Is(err, io.EOF) && b.size > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = picket.Refuse(picket.CodeUnavailable, "Follow the task again.", "the connection to the agent was lost: %s",
			excerpt(err.Error())).WithCause(errors.Join(picket.ErrUnknown, err))
	}
	return n, err
}

// bearer sends a credential as a bearer token, which is what an agent gets before its card says otherwise.
func bearer(h http.Header, credential string) { h.Set("Authorization", "Bearer "+credential) }

func basic(h http.Header, credential string) {
	h.Set("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(credential)))
}

// howToAuthenticate finds how the card of an agent wants a credential to be sent. It is an error if each way needs
// something that the command line does not have.
func howToAuthenticate(card *protocol.AgentCard) (func(http.Header, string), error) {
	var wanted []string
	for _, option := range card.SecurityRequirements {
		var set func(http.Header, string)
		for name := range option {
			set = schemeOf(card.SecuritySchemes[name])
			wanted = append(wanted, string(name))
		}
		if len(option) == 1 && set != nil {
			return set, nil
		}
	}
	if len(wanted) == 0 {
		return bearer, nil
	}
	slices.Sort(wanted)
	return nil, picket.Refuse(picket.CodeNotAvailable, "Leave out --token-env if the agent also answers without a "+
		"credential.", "the agent wants a credential in a way that is not supported: %s",
		excerpt(strings.Join(wanted, ", ")))
}

// schemeOf is how a credential is sent for a security scheme, nil if it cannot be sent. An API key goes into a header.
func schemeOf(s protocol.SecurityScheme) func(http.Header, string) {
	switch s := s.(type) {
	case protocol.OAuth2SecurityScheme, protocol.OpenIDConnectSecurityScheme:
		return bearer
	case protocol.HTTPAuthSecurityScheme:
		switch {
		case strings.EqualFold(s.Scheme, "bearer"):
			return bearer
		case strings.EqualFold(s.Scheme, "basic"):
			return basic
		}
	case protocol.APIKeySecurityScheme:
		if s.Location == protocol.APIKeySecuritySchemeLocationHeader && mayHoldKey(s.Name) {
			return func(h http.Header, credential string) { h.Set(s.Name, credential) }
		}
	}
	return nil
}

// mayHoldKey reports whether a header that a card names can be set. Those that HTTP itself uses cannot.
func mayHoldKey(name string) bool {
	isLetter := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
	}
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return !isLetter(r) }) {
		return false
	}
	lower := strings.ToLower(name)
	return !slices.Contains(ownHeaders, lower) && !strings.HasPrefix(lower, "content-") &&
		!strings.HasPrefix(lower, "proxy-")
}

// ownHeaders are headers that HTTP, or the client, uses itself.
var ownHeaders = []string{"host", "connection", "transfer-encoding", "upgrade", "te", "trailer", "expect", "cookie",
	"accept", "accept-encoding", "a2a-version", "keep-alive", "range"}
