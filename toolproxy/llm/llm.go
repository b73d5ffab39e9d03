// Package llm is the part of the tool proxy that passes calls of language models
// through: it puts the vendor's key in place of the lease token, bounds what a call
// may cost, pays for it from the envelope of the task, and hands the answer on.
package llm

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// New returns the part that passes calls of language models through. It returns
// an error for an upstream whose URL is not an http or https URL.
func New(cfg Config) toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		l, err := newForwarder(p, cfg)
		if err != nil {
			return err
		}
		p.OnMount(l.mount)
		p.OnClose(l.close)
		return nil
	}
}

func (l *forwarder) mount(e *echo.Echo) {
	for _, v := range vendors {
		e.Any(Path+"/"+v.name+"/*", func(c echo.Context) error {
			if err := l.serve(c, v); err != nil {
				return writeVendorError(c, v, err)
			}
			return nil
		})
	}
}

// serve answers one request of an agent. It returns an error only while nothing
// of the answer has been written.
func (l *forwarder) serve(c echo.Context, v *vendor) error {
	r := c.Request()
	backend, held, err := l.proxy.AdmitLLM(c)
	if err != nil {
		return err
	}
	path := vendorPath(r, v)
	d := v.dialects[r.Method+" "+path]
	if d == nil && !v.isFreeRoute(r.Method+" "+path) {
		return picket.Refuse(picket.CodeNotFound, "Call one of: "+v.routeList()+".", "%s %s is not passed through",
			r.Method, web.Shortened(path))
	}
	up := l.upstreams[v.name]
	if up == nil {
		return picket.Refuse(picket.CodeNotFound, "Ask an operator to set tools.llm."+v.name+" in picket.yaml.",
			"no upstream for %s is configured", v.name)
	}
	leave, err := l.limiter.admit(held.RunID)
	if err != nil {
		return err
	}
	defer leave()
	body, err := l.body(c)
	if err != nil {
		return err
	}
	x := &call{
		forwarder: l,
		c:         c,
		vendor:    v,
		dialect:   d,
		endpoint:  up,
		backend:   backend,
		held:      held,
		path:      path,
		body:      body,
	}
	if d == nil {
		err = x.forwardFree(r.Context())
	} else {
		err = x.serve(r.Context())
	}
	l.proxy.RecordRefusal(context.WithoutCancel(r.Context()), backend, held, v.ledgerTool, err)
	return err
}

// writeVendorError writes a refusal as the vendor's own errors look, so that the
// agent's program shows it. Clients that ask are told not to try again.
func writeVendorError(c echo.Context, v *vendor, err error) error {
	if c.Response().Committed {
		return nil // the connection ends where the answer broke off
	}
	refusal := refusalOf(err)
	h := c.Response().Header()
	h.Set("X-Should-Retry", fmt.Sprint(refusal.Code.Retryable()))
	if refusal.Code == picket.CodeUnauthenticated {
		h.Set("WWW-Authenticate", `Bearer realm="picket"`)
	}
	if refusal.RetryAfter > 0 {
		h.Set("Retry-After", fmt.Sprint(max(1, int(refusal.RetryAfter/time.Second))))
	}
	return web.JSON(c, refusal.Code.Status(), v.encodeError(refusal))
}

// body reads a whole request of at most maxBody bytes. A compressed one is uncompressed,
// because its price cannot be bounded otherwise.
func (l *forwarder) body(c echo.Context) ([]byte, error) {
	r := c.Request()
	encoding := strings.ToLower(r.Header.Get(echo.HeaderContentEncoding))
	r.Header.Del(echo.HeaderContentEncoding)
	raw, err := web.ReadBody(c, maxBody, echo.MIMEApplicationJSON)
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "", "identity":
		return raw, nil
	case "gzip":
		return gunzip(raw)
	}
	return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send the body uncompressed or with gzip.",
		"Content-Encoding %q is not accepted", web.Shortened(encoding))
}

func gunzip(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip").WithCause(err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxBody+1))
	switch {
	case err != nil:
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip to its end").WithCause(err)
	case len(plain) > maxBody:
		return nil, picket.Refuse(picket.CodeTooLarge, "Send less.", "the body has more than %d bytes uncompressed",
			maxBody).With("limit", maxBody)
	}
	return plain, nil
}
