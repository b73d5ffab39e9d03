package web_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket/internal/web"
)

// guardFixture is a server whose connections are bounded. The header Credential is a
// valid credential, whatever it says.
type guardFixture struct {
	t     *testing.T
	guard *web.Guard
	log   *strings.Builder
	dial  func() net.Conn
	busy  chan struct{} // a request for /wait has begun
	end   chan struct{} // requests for /wait end
}

func newGuardedServer() (*echo.Echo, *guardFixture) {
	g := &guardFixture{log: &strings.Builder{}, busy: make(chan struct{}, 100), end: make(chan struct{})}
	e := web.New(nil)
	answer := func(c echo.Context) error {
		if who := c.Request().Header.Get("Credential"); who != "" {
			if err := web.MarkAuthenticated(c, web.KindLease, who); err != nil {
				return err
			}
		}
		if c.Path() == "/wait" {
			g.busy <- struct{}{}
			<-g.end
		}
		return web.JSON(c, 200, struct{}{})
	}
	e.GET("/", answer)
	e.GET("/wait", answer)
	return e, g
}

// newGuardFixture serves on real sockets of the loopback.
func newGuardFixture(t *testing.T, limits web.Limits) *guardFixture {
	e, g := newGuardedServer()
	return g.serve(t, e, limits, nil)
}

func (g *guardFixture) serve(t *testing.T, e *echo.Echo, limits web.Limits,
	secure func(net.Listener) net.Listener) *guardFixture {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g.t, g.guard = t, web.NewGuard(limits, slog.New(slog.NewTextHandler(g.log, nil)))
	g.dial = func() net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	counted := g.guard.Listen(l)
	if secure != nil {
		counted = secure(counted)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, counted, e, nil) }()
	t.Cleanup(func() {
		close(g.end)
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
		// The server has ended before the last connection is closed.
		g.wantOpen(web.KindUnknown, 0)
		g.wantOpen(web.KindLease, 0)
	})
	return g
}

func (g *guardFixture) send(c net.Conn, path, who string) {
	g.t.Helper()
	credential := ""
	if who != "" {
		credential = "Credential: " + who + "\r\n"
	}
	if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: localhost\r\n"+credential+"\r\n"); err != nil {
		g.t.Fatal(err)
	}
}

// ask returns the status of the answer; 0 when the connection was closed.
func (g *guardFixture) ask(c net.Conn, who string) int {
	g.t.Helper()
	g.send(c, "/", who)
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

// wantClosed waits until the server has closed a connection.
func (g *guardFixture) wantClosed(c net.Conn) {
	g.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil || isTimeout(err) {
		g.t.Fatalf("the connection is open: %d, %v", n, err)
	}
}

func isTimeout(err error) bool {
	late, ok := err.(net.Error)
	return ok && late.Timeout()
}

// wantOpen waits until so many connections are open, which the server learns a
// moment later than the client.
func (g *guardFixture) wantOpen(kind web.Kind, n int) {
	g.t.Helper()
	for end := time.Now().Add(20 * time.Second); g.guard.Counts().Open[kind] != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("%v are open, want %d of %s", g.guard.Counts().Open, n, kind)
		}
	}
}

// waitIdle asks something on a connection and waits until the server knows that it
// is idle, which it learns a moment after the client has the answer.
func (g *guardFixture) waitIdle(c net.Conn, who string) {
	g.t.Helper()
	before := web.AtWork(g.guard)
	if status := g.ask(c, who); status != 200 {
		g.t.Fatalf("got %d", status)
	}
	for end := time.Now().Add(20 * time.Second); web.AtWork(g.guard) != before; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.t.Fatalf("%d connections are at work, want %d", web.AtWork(g.guard), before)
		}
	}
}

func TestTheOldestConnectionWithoutACredentialIsClosedFirst(t *testing.T) {
	g := newGuardFixture(t, web.Limits{Connections: 100, Unknown: 50, UnknownPerAddress: 3, PerLease: 10})
	known := g.dial()
	if status := g.ask(known, "a"); status != 200 {
		t.Fatal(status)
	}
	var silent []net.Conn
	for i := range 5 {
		silent = append(silent, g.dial())
		g.wantOpen(web.KindUnknown, min(i+1, 3))
	}
	g.wantClosed(silent[0])
	g.wantClosed(silent[1])
	for _, c := range append(silent[2:], known) {
		if status := g.ask(c, "a"); status != 200 {
			t.Errorf("one of those that stay got %d", status)
		}
	}
	g.wantOpen(web.KindLease, 4)
	if n := g.guard.Counts().Closed[web.ClosedAddress]; n != 2 {
		t.Errorf("%d were closed for their address", n)
	}
	if said := g.log.String(); strings.Count(said, "level=WARN") != 1 ||
		!strings.Contains(said, "reason=address_full") {
		t.Errorf("the log says %s", said)
	}
}

// A client without a credential that keeps the server at work is closed as well.
func TestConnectionsAtWorkWithoutACredentialMakeRoom(t *testing.T) {
	g := newGuardFixture(t, web.Limits{Connections: 100, Unknown: 2, UnknownPerAddress: 10, PerLease: 10})
	first, second := g.dial(), g.dial()
	for _, c := range []net.Conn{first, second} {
		g.send(c, "/wait", "")
		<-g.busy
	}
	if status := g.ask(g.dial(), "a"); status != 200 {
		t.Errorf("a client with a credential got %d", status)
	}
	g.wantClosed(first)
	if n := g.guard.Counts().Closed[web.ClosedUnknown]; n != 1 {
		t.Errorf("%d were closed for all", n)
	}
}

func TestAConnectionBelowTLSIsCounted(t *testing.T) {
	borrowed := httptest.NewUnstartedServer(nil)
	borrowed.StartTLS()
	defer borrowed.Close()
	certificates := borrowed.TLS.Certificates
	e, g := newGuardedServer()
	g.serve(t, e, web.Limits{Connections: 9, Unknown: 2, UnknownPerAddress: 2, PerLease: 9},
		func(l net.Listener) net.Listener {
			return tls.NewListener(l, &tls.Config{Certificates: certificates, MinVersion: tls.VersionTLS12})
		})
	known := tls.Client(g.dial(), &tls.Config{InsecureSkipVerify: true})
	if status := g.ask(known, "a"); status != 200 {
		t.Fatal(status)
	}
	g.wantOpen(web.KindLease, 1)
	silent := g.dial() // without a handshake
	g.wantOpen(web.KindUnknown, 1)
	g.dial()
	g.wantOpen(web.KindUnknown, 2)
	g.dial()
	g.wantClosed(silent)
	if status := g.ask(known, "a"); status != 200 {
		t.Errorf("after the handshakes that never came: %d", status)
	}
}

// failingListener is a listener that sometimes fails because no descriptors are left.
type failingListener struct {
	net.Listener
	errors int
}

func (b *failingListener) Accept() (net.Conn, error) {
	if b.errors--; b.errors >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return b.Listener.Accept()
}

func TestAcceptGoesOnWithoutDescriptors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		guard := web.NewGuard(web.Limits{Connections: 9, Unknown: 9, UnknownPerAddress: 9, PerLease: 9},
			slog.New(slog.NewTextHandler(&log, nil)))
		inner := &failingListener{Listener: newPipeListener(), errors: 50}
		l := guard.Listen(inner)
		time.AfterFunc(time.Minute, func() { l.Close() })
		if c, err := l.Accept(); c != nil || err == nil {
			t.Errorf("accepted %v, %v", c, err)
		}
		if n := guard.Counts().AcceptErrors; n != 50 {
			t.Errorf("%d errors are counted", n)
		}
		if warned := strings.Count(log.String(), "level=WARN"); warned < 2 || warned > 6 {
			t.Errorf("%d warnings: %s", warned, log.String())
		}
	})
}

// Between two requests a connection without a credential is kept for seconds,
// one with a credential for minutes.
func TestIdleConnectionsWithoutACredentialAreClosedSoon(t *testing.T) {
	for who, want := range map[string]time.Duration{"": 5 * time.Second, "a": 2 * time.Minute} {
		synctest.Test(t, func(t *testing.T) {
			e, g := newGuardedServer()
			g.t = t
			guard := web.NewGuard(web.Limits{Connections: 9, Unknown: 9, UnknownPerAddress: 9, PerLease: 9}, nil)
			l := newPipeListener()
			ctx, stop := context.WithCancel(t.Context())
			served := make(chan error, 1)
			go func() { served <- web.Serve(ctx, guard.Listen(l), e, nil) }()
			here, there := net.Pipe()
			l.conns <- there
			if status := g.ask(here, who); status != 200 {
				t.Errorf("answered %d", status)
			}
			began := time.Now()
			_, err := here.Read(make([]byte, 1))
			if took := time.Since(began); err == nil || took != want {
				t.Errorf("%q: closed after %s, want %s", who, took, want)
			}
			stop()
			<-served
		})
	}
}

func TestLimitsKeepToTheDescriptors(t *testing.T) {
	for _, files := range []int{1, 64, 256, 1024, 20000, 1 << 20} {
		for _, wanted := range []web.Limits{{},
			{Connections: 1 << 30, Unknown: 1 << 30, UnknownPerAddress: 1 << 30, PerKey: 1 << 30, PerLease: 1 << 30},
			{Connections: 10}} {
			l := web.LimitsFor(files, wanted)
			said := fmt.Sprintf("%d descriptors, %+v: %+v", files, wanted, l)
			if files >= 64 && l.Connections > files-16 || l.Unknown > max(1, l.Connections/2) ||
				l.UnknownPerAddress > l.Unknown || l.PerKey > l.Connections || l.PerLease > l.Connections {
				t.Error(said)
			}
			if min(l.Connections, l.Unknown, l.UnknownPerAddress, l.PerKey, l.PerLease) < 1 {
				t.Error(said)
			}
		}
	}
}
