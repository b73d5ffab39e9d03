package api_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/api"
)

// sseBlock is one block of a stream, up to the empty line.
type sseBlock struct {
	kind    string
	id      string
	data    string
	comment string
}

type eventReader struct {
	t     *testing.T
	lines *bufio.Scanner
	close func()
}

// openStream opens a stream and reads its opening block.
func (p *fixture) openStream(t *testing.T, path, scope string, headers ...string) *eventReader {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	r, err := http.NewRequestWithContext(ctx, "GET", p.url+path, nil)
	must(t, err)
	r.Header.Set("Accept", "text/event-stream")
	r.Header.Set("X-API-Key", p.keys[scope])
	for i := 0; i+1 < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := p.client.Do(r)
	must(t, err)
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("stream: %d %v", resp.StatusCode, resp.Header)
	}
	e := &eventReader{t: t, lines: bufio.NewScanner(resp.Body), close: func() { cancel(); resp.Body.Close() }}
	t.Cleanup(e.close)
	if b, ok := e.next(); !ok || b.id == "" || b.data != "" {
		t.Fatalf("opening block: %+v", b)
	}
	return e
}

// next reads a block; false at the end of the stream.
func (e *eventReader) next() (sseBlock, bool) {
	var b sseBlock
	for e.lines.Scan() {
		name, text, _ := strings.Cut(e.lines.Text(), ":")
		text = strings.TrimPrefix(text, " ")
		switch {
		case e.lines.Text() == "":
			return b, true
		case name == "":
			b.comment = text
		case name == "event":
			b.kind = text
		case name == "id":
			b.id = text
		case name == "data":
			b.data = text
		}
	}
	return b, false
}

// want reads the next event and checks its type.
func (e *eventReader) want(kind string) picket.Event {
	e.t.Helper()
	b, ok := e.next()
	for ok && b.data == "" {
		b, ok = e.next()
	}
	var got picket.Event
	if !ok || json.Unmarshal([]byte(b.data), &got) != nil || got.Type != kind || got.ID != b.id || b.kind != "" {
		e.t.Fatalf("got %+v, want %s", b, kind)
	}
	return got
}

func TestStreamStartsNowAndResumes(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		p.submit(`{"title":"before"}`)
		live := p.openStream(t, "/api/v1/events", "reviewer")
		id := p.submit(`{"title":"x"}`)
		first := live.want(picket.EventTaskSubmitted)
		if first.TaskID != id {
			t.Errorf("the stream began before now: %+v", first)
		}
		p.want(200, "POST", "/api/v1/tasks/"+id+"/cancel", "operator", `{}`)
		second := live.want(picket.EventTaskCancelled)
		live.close()

		other := p.submit(`{"title":"y"}`)
		again := p.openStream(t, "/api/v1/events?after=0", "reviewer", "Last-Event-ID", first.ID)
		if got := again.want(picket.EventTaskCancelled); got.Seq != second.Seq {
			t.Errorf("resumed at %d, want %d", got.Seq, second.Seq)
		}
		if got := again.want(picket.EventTaskSubmitted); got.TaskID != other {
			t.Errorf("after it: %+v", got)
		}
		from := p.openStream(t, "/api/v1/events?after=0&type=task.submitted&task="+other, "reviewer")
		if got := from.want(picket.EventTaskSubmitted); got.TaskID != other {
			t.Errorf("filtered from the beginning: %+v", got)
		}
	})
}

func TestPagesOfEvents(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for range 3 {
			p.submit(`{"title":"x"}`)
		}
		all := p.want(200, "GET", "/api/v1/events?type=task.submitted", "reviewer", "")
		if list, _ := all.body["events"].([]any); len(list) != 3 {
			t.Errorf("all: %s", all.raw)
		}
		page := p.want(200, "GET", "/api/v1/events?type=task.submitted&limit=2", "reviewer", "")
		rest := p.want(200, "GET", "/api/v1/events?type=task.submitted&after="+page.text("next"), "reviewer", "")
		if list, _ := rest.body["events"].([]any); len(list) != 1 {
			t.Errorf("rest: %s", rest.raw)
		}
		p.wantCode(picket.CodeValidation, "GET", "/api/v1/events", "reviewer", "", "Accept", "text/event-stream",
			"Last-Event-ID", "yesterday")
	})
}

func TestExpiredCursor(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		for range 5 {
			p.submit(`{"title":"x"}`)
		}
		for {
			n, err := p.ApplyRetention(t.Context(), picket.Retention{MaxEvents: 1}, 100)
			must(t, err)
			if n == 0 {
				break
			}
		}
		p.wantCode(picket.CodeCursorExpired, "GET", "/api/v1/events?after=1", "reviewer", "")
		s := p.openStream(t, "/api/v1/events", "reviewer", "Last-Event-ID", "1")
		b, _ := s.next()
		last, err := p.LastSeq(t.Context())
		must(t, err)
		if b.kind != "reset" || b.id != strconv.FormatInt(last, 10) || !strings.Contains(b.data, "cursor_expired") {
			t.Fatalf("got %+v, want a reset to %d", b, last)
		}
		ahead := p.openStream(t, "/api/v1/events", "reviewer", "Last-Event-ID", "4000000")
		if b, _ := ahead.next(); b.kind != "reset" || b.id != strconv.FormatInt(last, 10) {
			t.Fatalf("got %+v, want a reset to %d", b, last)
		}
		id := p.submit(`{"title":"y"}`)
		for _, stream := range []*eventReader{s, ahead} {
			if got := stream.want(picket.EventTaskSubmitted); got.TaskID != id {
				t.Errorf("after the reset: %+v", got)
			}
		}
	})
}

func TestStreamEnds(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{KeepAlive: 10 * time.Millisecond})
	made, err := p.CreateKey(t.Context(), root,
		picket.KeyRequest{Name: "r", Scopes: []picket.Scope{picket.ScopeReviewer}})
	must(t, err)
	p.keys["mine"] = made.Key.Reveal()

	s := p.openStream(t, "/api/v1/events", "mine")
	if b, ok := s.next(); !ok || b.comment != "keep-alive" {
		t.Errorf("an idle stream: %+v", b)
	}
	p.want(200, "DELETE", "/api/v1/keys/"+made.KeyID, "admin", "")
	for ok := true; ok; {
		_, ok = s.next() // ends, or the test times out
	}

	s = p.openStream(t, "/api/v1/events", "reviewer")
	p.stop()
	for ok := true; ok; {
		_, ok = s.next()
	}
}

// pipeListener is a listener whose connections have no buffer at all: a reader that
// does not read is noticed with the first byte.
type pipeListener struct{ conns chan net.Conn }

func (l *pipeListener) Accept() (net.Conn, error) {
	c, ok := <-l.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (l *pipeListener) Close() error   { return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestAReaderThatDoesNotReadIsDropped(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{StreamWriteTimeout: 50 * time.Millisecond})
	l := &pipeListener{conns: make(chan net.Conn, 1)}
	ctx, end := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, p.handler, nil) }()
	here, there := net.Pipe()
	l.conns <- there
	_, err := io.WriteString(here,
		"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nX-API-Key: "+p.keys["reviewer"]+
			"\r\n\r\n")
	must(t, err)
	// The server takes at most one byte while it streams; the rest of this is
	// taken by nobody until the connection is closed.
	must(t, here.SetWriteDeadline(time.Now().Add(10*time.Second)))
	if _, err := io.WriteString(here, "xx"); err != io.ErrClosedPipe {
		t.Errorf("the connection was not closed: %v", err)
	}
	here.Close()
	close(l.conns)
	end()
	<-served
}

// A revoked key loses a busy stream as well as an idle one.
func TestABusyStreamEndsWithItsKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		made, err := p.CreateKey(t.Context(), root,
			picket.KeyRequest{Name: "r", Scopes: []picket.Scope{picket.ScopeReviewer}})
		must(t, err)
		p.keys["mine"] = made.Key.Reveal()
		s := p.openStream(t, "/api/v1/events?type=task.submitted", "mine")
		p.submit(`{"title":"seen"}`)
		s.want(picket.EventTaskSubmitted)
		p.want(200, "DELETE", "/api/v1/keys/"+made.KeyID, "admin", "")
		p.submit(`{"title":"unseen"}`) // the stream wakes up, and ends without showing it
		for {
			b, ok := s.next()
			if !ok {
				return
			}
			if b.data != "" {
				t.Fatalf("a revoked key reads on: %s", b.data)
			}
		}
	})
}
