package toolproxy

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"sync/atomic"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/internal/outbound"
)

// transport is how the upstream of a link is reached.
func (l *link) transport(u *upstream) (mcp.Transport, error) {
	if u.URL == "" {
		return l.start()
	}
	base := http.DefaultTransport.(*http.Transport).Clone()
	base.MaxIdleConnsPerHost = 64
	if u.TLS != nil {
		base.TLSClientConfig = u.TLS
	}
	l.end = base.CloseIdleConnections
	return &mcp.StreamableClientTransport{Endpoint: u.URL, HTTPClient: &http.Client{
		Transport:     &listener{l: l, base: outbound.Once{Base: base}, endpoint: u.URL},
		CheckRedirect: l.checkRedirect,
	}}, nil
}

// checkRedirect lets an upstream name another path while the MCP session is
// opened. Later messages go to that path. A redirect of a call is refused, because
// following it would send the call again.
func (l *link) checkRedirect(r *http.Request, via []*http.Request) error {
	switch {
	case l.connected.Load():
		return errors.New("the upstream redirects a message after it has opened the session")
	case !samePlace(r.URL, via[0].URL) || len(via) > 3:
		return errors.New("the upstream redirects to another scheme or host")
	}
	return nil
}

// samePlace reports whether two URLs have the same scheme and host. Headers that
// hold secrets go to the configured host only.
func samePlace(a, b *url.URL) bool { return a.Host == b.Host && a.Scheme == b.Scheme }

// listener adds the configured headers, and hears what the upstream says in
// the stream of each request before the library does: the library may hand out
// an answer before it has passed on what was said before it.
type listener struct {
	l        *link
	base     http.RoundTripper
	endpoint string
	moved    atomic.Pointer[url.URL] // where a redirect led while the connection was made
}

func (h *listener) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, value := range h.l.up.Headers {
		r.Header.Set(name, value.Reveal())
	}
	if at := h.moved.Load(); at != nil && r.URL.String() == h.endpoint {
		r.URL = at
	}
	resp, err := h.base.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	h.follow(r, resp)
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
		resp.Body = http.MaxBytesReader(nil, resp.Body, maxAnswer) // the library reads it whole
	} else {
		call, _ := r.Context().Value(liveKey{}).(*liveCall)
		resp.Body = &heard{
			Closer: resp.Body,
			in:     bufio.NewReader(resp.Body),
			note:   func(method string, params []byte) { h.l.notice(call, method, params) },
		}
	}
	return resp, nil
}

// follow notes where the upstream is, if it says so while the connection is made.
func (h *listener) follow(r *http.Request, resp *http.Response) {
	if h.l.connected.Load() ||
		resp.StatusCode != http.StatusTemporaryRedirect && resp.StatusCode != http.StatusPermanentRedirect {
		return
	}
	if to, err := resp.Location(); err == nil && samePlace(to, r.URL) {
		h.moved.Store(to)
	}
}

// maxAnswer bounds an answer that is no stream, in bytes; the library bounds the
// events of a stream likewise.
const maxAnswer = 16 << 20

// maxHeard bounds a line of a stream that is looked into, in bytes; a longer
// one is no notice.
const maxHeard = 1 << 20

// heard is the body of an event stream that is looked into as it is read. What
// is read is what came, byte for byte.
type heard struct {
	io.Closer
	in   *bufio.Reader
	line []byte // read and not handed out yet
	note func(method string, params []byte)
}

func (h *heard) Read(p []byte) (int, error) {
	if len(h.line) == 0 {
		line, err := h.in.ReadSlice('\n')
		if len(line) == 0 && err != nil {
			return 0, err
		}
		h.line = append(h.line[:0], line...)
		for errors.Is(err, bufio.ErrBufferFull) && len(h.line) < maxHeard {
			line, err = h.in.ReadSlice('\n')
			h.line = append(h.line, line...)
		}
		if data, ok := bytes.CutPrefix(h.line, []byte("data:")); ok {
			h.look(data)
		}
	}
	n := copy(p, h.line)
	h.line = h.line[n:]
	return n, nil
}

func (h *heard) look(data []byte) {
	if !bytes.Contains(data, []byte(`"notifications/`)) {
		return
	}
	var m struct {
		ID     any             `json:"id"`
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if json.Unmarshal(data, &m) == nil && m.ID == nil {
		h.note(m.Method, m.Params)
	}
}
