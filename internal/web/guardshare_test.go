package web_test

import (
	"net"
	"testing"

	"github.com/picket-dev/picket/internal/web"
)

func TestALeaseCannotUseAllConnections(t *testing.T) {
	g := newGuardFixture(t, web.Limits{Connections: 100, Unknown: 50, UnknownPerAddress: 50, PerLease: 2})
	idle, busy := g.dial(), g.dial()
	g.waitIdle(idle, "a")
	g.send(busy, "/wait", "a")
	<-g.busy
	third := g.dial()
	g.waitIdle(third, "a")
	g.wantClosed(idle)
	g.send(third, "/wait", "a")
	<-g.busy
	if status := g.ask(g.dial(), "a"); status != 429 {
		t.Errorf("with both at work another connection got %d", status)
	}
	if status := g.ask(g.dial(), "b"); status != 200 {
		t.Errorf("another lease got %d", status)
	}
}

// When all connections are taken, those with a credential that are at work
// stay. An eighth of all is left for connections that have not shown one.
func TestAFullServerKeepsWhatIsAtWork(t *testing.T) {
	g := newGuardFixture(t, web.Limits{Connections: 3, Unknown: 2, UnknownPerAddress: 2, PerLease: 9})
	idle, busy := g.dial(), g.dial()
	g.waitIdle(idle, "a")
	g.send(busy, "/wait", "a")
	<-g.busy
	next := g.dial()
	g.send(next, "/wait", "b")
	<-g.busy
	g.wantClosed(idle)
	if status := g.ask(g.dial(), "c"); status != 503 {
		t.Errorf("with all at work another lease got %d", status)
	}
	g.wantOpen(web.KindLease, 2)
	if n := g.guard.Counts().Closed[web.ClosedFull]; n != 2 {
		t.Errorf("%d were closed", n)
	}
}

// Several leases cannot keep another out: it takes connections of those that use
// more than it does.
func TestLeasesShareAFullServer(t *testing.T) {
	g := newGuardFixture(t, web.Limits{Connections: 8, Unknown: 4, UnknownPerAddress: 4, PerLease: 4})
	var many []net.Conn
	for _, who := range []string{"a", "a", "a", "a", "b", "b", "b"} {
		c := g.dial()
		g.send(c, "/wait", who)
		<-g.busy
		many = append(many, c)
	}
	work := func() {
		t.Helper()
		c := g.dial()
		g.send(c, "/wait", "c")
		<-g.busy
	}
	work()
	g.wantClosed(many[0]) // now a and b have three each
	g.wantOpen(web.KindLease, 7)
	work()
	g.wantOpen(web.KindLease, 7)
	if status := g.ask(g.dial(), "c"); status != 503 {
		t.Errorf("beyond its share a lease got %d", status)
	}
	g.wantOpen(web.KindLease, 7) // the refused connection is closed
	g.wantOpen(web.KindUnknown, 0)
	if status := g.ask(g.dial(), "d"); status != 200 {
		t.Errorf("a lease without a connection got %d", status)
	}
	if n := g.guard.Counts().Closed[web.ClosedFull]; n != 4 {
		t.Errorf("%d were closed", n)
	}
}
