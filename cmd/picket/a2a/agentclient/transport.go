package agentclient

import (
	"bytes"
	"context"
	"errors"
	"io"
	"mime"
	"net/http"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// MaxAnswer is how many bytes an answer, or an event of a stream, may have.
const MaxAnswer = 16 << 20

const eventStream = "text/event-stream"

// guard sends the requests to an agent. It sends none to a host that the target does not allow, adds the credential,
// bounds the answers, and turns failures into errors of [picket.Error].
type guard struct {
	target *Target
	set    func(header http.Header, credential string) // sends the credential
}

func newGuard(t *Target) *guard { return &guard{target: t, set: bearer} }

// http is the client of HTTP for the calls. It follows no redirect, which could lead to another host.
func (g *guard) http() *http.Client {
	return &http.Client{Transport: g, CheckRedirect: client.DefaultHTTP.CheckRedirect}
}

// next sends a request that has passed the guard.
func (g *guard) next() http.RoundTripper {
	if g.target.Transport != nil {
		return g.target.Transport
	}
	return client.DefaultHTTP.Transport
}

// RoundTrip sends one request. The error is a [picket.Error] or that of the context.
func (g *guard) RoundTrip(r *http.Request) (*http.Response, error) {
	if !g.target.mayCall(r.URL) {
		if r.Body != nil {
			r.Body.Close()
		}
		return nil, g.target.notAllowed(r.URL.Host, "no request is sent to %s, which is not the host of the agent",
			Excerpt(r.URL.Host))
	}
	sent := r.Clone(r.Context())
	sent.Header.Set(protocol.SvcParamVersion, string(protocol.Version))
	if credential := g.target.Credential; credential != "" {
		g.set(sent.Header, credential.Reveal())
	}
	res, err := g.next().RoundTrip(sent)
	switch {
	case r.Context().Err() != nil && err != nil:
		return nil, context.Cause(r.Context())
	case picket.CodeOf(err) == picket.CodeDestination: // of a transport that checks addresses
		return nil, err
	case err != nil:
		return nil, picket.Refuse(picket.CodeUnavailable, "Check the address, and that the agent runs.",
			"%s does not answer: %s", g.target.URL, Excerpt(err.Error())).
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
		err = NotA2A("the agent answered %.80q to a request for a stream", kind)
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

// answerKey is the key of a context whose requests keep the last answer.
type answerKey struct{}

// KeepAnswer returns a context whose calls write the bytes of their answer to raw. Streams are left out.
func KeepAnswer(ctx context.Context, raw *[]byte) context.Context {
	return context.WithValue(ctx, answerKey{}, raw)
}

// readAnswer reads an answer that is not a stream.
func readAnswer(res *http.Response) ([]byte, error) {
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, MaxAnswer+1))
	switch {
	case len(raw) > MaxAnswer:
		return nil, tooLong()
	case err != nil && res.Request.Context().Err() != nil:
		return nil, context.Cause(res.Request.Context())
	case err != nil:
		return nil, picket.Refuse(picket.CodeUnavailable, "Send the request again.", "the answer of the agent was cut off: %s",
			Excerpt(err.Error())).WithCause(errors.Join(picket.ErrUnknown, err))
	}
	return raw, nil
}

func tooLong() error {
	return picket.Refuse(picket.CodeUpstream, "Ask the agent for less.", "an answer of the agent has more than %d MiB",
		MaxAnswer>>20)
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
		if b.size++; b.size > MaxAnswer {
			return 0, tooLong()
		}
	}
	if errors.Is(err, io.EOF) && b.size > 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = picket.Refuse(picket.CodeUnavailable, "Follow the task again.", "the connection to the agent was lost: %s",
			Excerpt(err.Error())).WithCause(errors.Join(picket.ErrUnknown, err))
	}
	return n, err
}
