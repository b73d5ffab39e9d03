package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// Limits of the server. A long poll lasts at most 50 s, so an answer that is
// not written after two minutes has a reader that is stuck or hostile; a
// stream extends its own deadline with every write.
const (
	headerTimeout = 10 * time.Second
	bodyTimeout   = 30 * time.Second
	answerTimeout = 2 * time.Minute
	idleTimeout   = 2 * time.Minute
	drainTimeout  = 10 * time.Second
	maxHeader     = 64 << 10

	drainBodyTimeout = 2 * time.Second
	maxDrain         = 4 << 20
)

type stoppingKey struct{}

// Serve answers requests on l until ctx ends, then stops gracefully: long
// polls and streams that wait through [WaitContext] end at once, everything
// else gets ten seconds. It returns nil after a clean stop, and the listener's
// error when that fails first. A nil log discards. The connections are bounded
// when l, or what is below its TLS, comes from [Guard.Listen].
func Serve(ctx context.Context, l net.Listener, h http.Handler, log *slog.Logger) error {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	// Requests do not inherit ctx: a transition under way is finished, only
	// waiting is cut short.
	requests := context.WithValue(context.WithoutCancel(ctx), stoppingKey{}, ctx)
	spare := &unusedConns{conns: map[net.Conn]struct{}{}}
	srv := &http.Server{
		ConnState: func(c net.Conn, state http.ConnState) {
			spare.track(c, state)
			if g := guardedConnOf(c); g != nil {
				g.setState(state)
			}
		},
		ConnContext:       withConn,
		Handler:           withTimeouts(h),
		BaseContext:       func(net.Listener) context.Context { return requests },
		ReadHeaderTimeout: headerTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	srv.RegisterOnShutdown(spare.close)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	if err := srv.Shutdown(grace); err != nil {
		log.Warn("requests cut off at shutdown", "err", err)
		_ = srv.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// WaitContext is the request's context for waiting: it also ends when the
// server begins to stop. Call cancel when the wait is over.
func WaitContext(c echo.Context) (ctx context.Context, cancel context.CancelFunc) {
	ctx, end := context.WithCancel(c.Request().Context())
	stopping, ok := ctx.Value(stoppingKey{}).(context.Context)
	if !ok {
		return ctx, end
	}
	forget := context.AfterFunc(stopping, end)
	return ctx, func() { forget(); end() }
}

// Stopping reports whether the server that runs this request has begun to
// stop, so that an ended wait can be told from a client that went away.
func Stopping(c echo.Context) bool {
	stopping, ok := c.Request().Context().Value(stoppingKey{}).(context.Context)
	return ok && stopping.Err() != nil
}

// StoppingError is the answer to a wait that the server's stop cut short.
func StoppingError() error {
	return picket.Refuse(picket.CodeUnavailable, "Ask again in a second.", "the server is stopping").
		With("stopping", true)
}

// ExtendWriteDeadline gives a stream another d to write in. Servers without write
// deadlines ignore it.
func ExtendWriteDeadline(c echo.Context, d time.Duration) {
	_ = http.NewResponseController(c.Response()).SetWriteDeadline(time.Now().Add(d))
}

// withTimeouts bounds how long a body may take to arrive and how long a client may take to read the
// answer. http.Server.ReadTimeout cannot do this: it would end every long poll, since the server
// keeps reading to notice a client that goes away.
func withTimeouts(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetWriteDeadline(time.Now().Add(answerTimeout))
		if r.Body == nil || r.Body == http.NoBody {
			h.ServeHTTP(w, r)
			return
		}
		body := &timedBody{ReadCloser: r.Body, rc: rc, memory: heldBodies}
		_ = rc.SetReadDeadline(time.Now().Add(bodyTimeout))
		r.Body = body
		h.ServeHTTP(w, r)
		body.drain(r)
	})
}
