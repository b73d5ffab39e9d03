package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// Once is a RoundTripper that sends each request at most once.
//
// An [http.Transport] sends a request again on another connection when a kept
// connection closes before the answer, if the method is GET, HEAD, OPTIONS or
// TRACE, or if the request has an Idempotency-Key. Over HTTP/2 it sends any
// request again that the server refused. Once stops the transport before the
// second attempt. An attempt that wrote nothing does not count: the transport
// may then take another connection.
//
// Once follows no redirects. A caller that does sends another request.
type Once struct {
	// Base sends the requests. It has to be an [http.Transport], or to call the
	// hooks of [httptrace] as that does. Required.
	Base http.RoundTripper
}

// UnsentError is the error of a request of which nothing was sent.
type UnsentError struct{ Err error }

// Error is the text of the reason.
func (u *UnsentError) Error() string { return u.Err.Error() }

// Unwrap returns the reason.
func (u *UnsentError) Unwrap() error { return u.Err }

// errSentOnce is the error after a second attempt was stopped.
var errSentOnce = errors.New("the connection closed before the answer; the request may have been carried out and is not sent again")

// longTarget is the length in bytes from which on a part of the request line can
// be on the wire before the first header field is written.
const longTarget = 2 << 10

// RoundTrip sends a request. Its error is an [UnsentError] if nothing was sent.
func (o Once) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(req.Context())
	a := &attempt{cancel: cancel, long: len(req.URL.RequestURI()) > longTarget}
	trace := &httptrace.ClientTrace{
		GotConn:          a.gotConn,
		WroteHeaderField: func(string, []string) { a.sent.Store(true) },
	}
	resp, err := o.Base.RoundTrip(req.WithContext(httptrace.WithClientTrace(ctx, trace)))
	if err == nil {
		resp.Request = req
		resp.Body = &cancelOnClose{resp.Body, cancel}
		return resp, nil
	}
	// A request that was cancelled may still be written when RoundTrip returns.
	unsent := !a.sent.Load() && (!a.onConn.Load() || ctx.Err() == nil)
	cancel(err)
	switch {
	case a.stopped.Load():
		return nil, errSentOnce
	case unsent:
		return nil, &UnsentError{err}
	}
	return nil, err
}

// attempt is what is known of a request that is being sent.
type attempt struct {
	cancel  context.CancelCauseFunc
	long    bool
	onConn  atomic.Bool // it has got a connection
	sent    atomic.Bool // some of it may be on the wire
	stopped atomic.Bool // a second attempt was stopped
}

// gotConn is called when the request gets a connection, before anything is
// written to it.
func (a *attempt) gotConn(info httptrace.GotConnInfo) {
	a.onConn.Store(true)
	if !a.sent.Load() {
		a.sent.Store(a.long)
		return
	}
	a.stopped.Store(true)
	a.cancel(errSentOnce)
	// HTTP/2 looks at the context before it writes. An HTTP/1 connection does not,
	// but belongs to this request alone.
	if !isHTTP2(info) {
		_ = info.Conn.Close()
	}
}

// isHTTP2 reports whether other requests use the connection at the same time.
func isHTTP2(info httptrace.GotConnInfo) bool {
	c, ok := info.Conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}

// cancelOnClose is a body that ends the context of its request when it is closed.
type cancelOnClose struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

func (e *cancelOnClose) Close() error {
	err := e.ReadCloser.Close()
	e.cancel(nil)
	return err
}
