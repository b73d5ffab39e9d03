package mcp

import (
	"bytes"
	"context"
	stdjson "encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/picket-dev/picket/internal/outbound"
	"github.com/picket-dev/picket/internal/sse"
)

// checkRedirect lets an upstream name another path while the MCP session is
// opened. Later messages go to that path. A redirect of a call is refused, because
// following it would send the call again.
func (h *observingTransport) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case h.connected.Load():
		return errors.New("the upstream redirects a message after it has opened the session")
	case !sameOrigin(r.URL, via[0].URL) || len(via) > 3:
		return errors.New("the upstream redirects to another scheme or host")
	}
	return nil
}

// sameOrigin reports whether two URLs have the same scheme and host. Headers that
// hold secrets go to the configured host only.
func sameOrigin(a, b *url.URL) bool { return a.Host == b.Host && a.Scheme == b.Scheme }

// observingTransport adds the configured headers, and reads the stream of each request before the
// library does, because the library may return an answer before it has passed on the messages that
// came before it.
type observingTransport struct {
	config         Upstream
	base           http.RoundTripper
	connected      *atomic.Bool            // the upstream has accepted the connection
	redirectedTo   atomic.Pointer[url.URL] // where a redirect led while the connection was made
	onNotification func(ctx context.Context, method string, params []byte)
}

// open makes what the messages go through; close lets go of it.
func (h *observingTransport) open() (close func()) {
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	if h.config.TLS != nil {
		base.TLSClientConfig = h.config.TLS
	}
	h.base = outbound.Once{Base: base}
	return base.CloseIdleConnections
}

func (h *observingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.config.Headers {
		r.Header.Set(name, value.Reveal())
	}
	if at := h.redirectedTo.Load(); at != nil && r.URL.String() == h.config.URL {
		r.URL = at
	}
	resp, err := h.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	h.noteRedirect(r, resp)
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != sse.ContentType {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxResponseBody) // the library reads it whole
	} else {
		resp.Body = &observedStream{
			Closer:         resp.Body,
			in:             sse.NewReader(resp.Body, maxInspected),
			onNotification: func(method string, params []byte) { h.onNotification(r.Context(), method, params) },
		}
	}
	return resp, nil
}

// noteRedirect notes where the upstream is, if it reports it while the connection is made.
func (h *observingTransport) noteRedirect(r *http.Request, resp *http.Response) {
	if h.connected.Load() ||
		resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return
	}
	if to, err := resp.Location(); err == nil && sameOrigin(to, r.URL) {
		h.redirectedTo.Store(to)
	}
}

// maxResponseBody bounds an answer that is not a stream, in bytes; the library bounds the
// events of a stream likewise.
const maxResponseBody = 16 << 20

// maxInspected bounds an event of a stream that is looked into, in bytes. A longer
// one is not a notification.
const maxInspected = 1 << 20

// observedStream is the body of an event stream that is looked into as it is read. What
// is read is what came, byte for byte.
type observedStream struct {
	io.Closer
	in             *sse.Reader
	rest           []byte // read and not handed out yet
	err            error  // of the last event
	onNotification func(method string, params []byte)
}

func (h *observedStream) Read(p []byte) (int, error) {
	if len(h.rest) == 0 && h.err == nil {
		e, err := h.in.Next()
		if !errors.Is(err, sse.ErrTooLong) { // which is handed out in pieces
			h.err = err
			h.inspect(e.Data)
		}
		h.rest = e.Raw
	}
	n := copy(p, h.rest)
	if h.rest = h.rest[n:]; n > 0 || len(p) == 0 {
		return n, nil
	}
	return 0, h.err
}

func (h *observedStream) inspect(data []byte) {
	if !bytes.Contains(data, []byte(`"notifications/`)) {
		return
	}
	var m struct {
		ID     any                `json:"id"`
		Method string             `json:"method"`
		Params stdjson.RawMessage `json:"params"`
	}
	if stdjson.Unmarshal(data, &m) == nil && m.ID == nil {
		h.onNotification(m.Method, m.Params)
	}
}
