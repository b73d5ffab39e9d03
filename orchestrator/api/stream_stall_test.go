package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/api"
)

// A reader that stalls is let go, and comes back with the id of the last event
// it has: it then has every event once, in order.
func TestAReaderThatStallsGoesOnWhereItWas(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{StreamWriteTimeout: 50 * time.Millisecond})
	for range 60 { // three pages of a stream
		p.submit(`{"title":"x"}`)
	}
	last, err := p.LastSeq(t.Context())
	must(t, err)

	l := &pipeListener{conns: make(chan net.Conn, 1)}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, p.handler, nil) }()
	here, there := net.Pipe()
	l.conns <- there
	_, err = io.WriteString(here,
		"GET /api/v1/events?after=0 HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nX-API-Key: "+
			p.keys["reviewer"]+"\r\n\r\n")
	must(t, err)
	first := &eventReader{t: t, lines: bufio.NewScanner(here)}
	var seen []string
	for len(seen) < 30 {
		b, ok := first.next()
		if !ok {
			break // dropped already: this machine is slow
		}
		if b.data != "" {
			seen = append(seen, b.id)
		}
	}
	// It reads no more; what it sends is taken by nobody until it is let go.
	must(t, here.SetWriteDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.WriteString(here, "xx"); err != io.ErrClosedPipe {
		t.Errorf("the connection was not closed: %v", err)
	}
	here.Close()
	close(l.conns)
	end()
	<-served

	came := len(seen)
	after := "0"
	if came > 0 {
		after = seen[came-1]
	}
	again := p.openStream(t, "/api/v1/events?after=0", "reviewer", "Last-Event-ID", after)
	for len(seen) == 0 || seen[len(seen)-1] != strconv.FormatInt(last, 10) {
		b, ok := again.next()
		if !ok {
			t.Fatalf("the stream ended after %v", seen)
		}
		seen = append(seen, b.id)
	}
	var want []string
	for seq := range last {
		want = append(want, strconv.FormatInt(seq+1, 10))
	}
	if !slices.Equal(seen, want) {
		t.Errorf("with a stall after %d: %v", came, seen)
	}
}
