package web_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket/internal/web"
)

// pipeListener is a listener on the virtual clock of a bubble.
type pipeListener struct {
	conns  chan net.Conn
	closed chan struct{}
}

func newPipeListener() *pipeListener { return &pipeListener{make(chan net.Conn), make(chan struct{})} }

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}
func (l *pipeListener) Close() error   { close(l.closed); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// sendRaw sends text over a connection of its own, waits, and gives the answer
// with the virtual time it took; a nil answer means the connection was closed.
func sendRaw(t *testing.T, e *echo.Echo, send string) (resp *http.Response, body string, took time.Duration) {
	t.Helper()
	l := newPipeListener()
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, nil) }()
	here, there := net.Pipe()
	l.conns <- there
	start := time.Now()
	go func() { _, _ = io.WriteString(here, send) }()
	resp, err := http.ReadResponse(bufio.NewReader(here), nil)
	if err == nil {
		raw, _ := io.ReadAll(resp.Body)
		body = string(raw)
	}
	took = time.Since(start)
	here.Close()
	stop()
	if err := <-served; err != nil {
		t.Errorf("serve: %v", err)
	}
	if err != nil {
		return nil, "", took
	}
	return resp, body, took
}

func TestABodyThatDoesNotComeIsNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		resp, body, took := sendRaw(t, newTestServer(nil),
			"POST /thing HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{")
		if resp == nil || resp.StatusCode != 400 || !strings.Contains(body, "validation_failed") ||
			took > 31*time.Second {
			t.Errorf("answered %v %s after %s", resp, body, took)
		}
	})
}

func TestHeadersThatDoNotComeAreNotWaitedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if resp, body, took := sendRaw(t, newTestServer(nil), "POST /thing HTTP/1.1\r\nHos"); resp != nil &&
			resp.StatusCode < 400 || took > 11*time.Second {
			t.Errorf("answered %v %s after %s", resp, body, took)
		}
	})
}

// The deadline of the body must not end the wait of a long poll.
func TestALongPollOutlivesTheDeadlineOfItsBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := web.New(nil)
		e.POST("/wait", func(c echo.Context) error {
			if _, _, err := web.Decode[struct{}](c, 100); err != nil {
				return err
			}
			ctx, cancel := web.WaitContext(c)
			defer cancel()
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(50 * time.Second):
				return web.JSON(c, 200, struct{}{})
			}
		})
		resp, body, took := sendRaw(t, e,
			"POST /wait HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
		if resp == nil || resp.StatusCode != 200 || took < 50*time.Second {
			t.Errorf("answered %v %s after %s", resp, body, took)
		}
	})
}
