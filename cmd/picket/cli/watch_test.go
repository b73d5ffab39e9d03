package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/term"
)

// watchedServer is a server with one thing to look at, and a log that says when it
// changed.
type watchedServer struct {
	mu    sync.Mutex
	thing string
	away  bool
	asked chan string // paths, in order
	tell  chan string // ids of events to send; "cut" ends the connection
}

func newWatchedServer(t *testing.T) (*watchedServer, *Connection) {
	d := &watchedServer{thing: "one", asked: make(chan string, 100), tell: make(chan string)}
	srv := httptest.NewServer(d)
	t.Cleanup(srv.Close)
	return d, NewConnection(srv.URL, "")
}

func (d *watchedServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	d.mu.Lock()
	thing, away := d.thing, d.away
	d.mu.Unlock()
	switch {
	case away:
		w.WriteHeader(http.StatusServiceUnavailable)
	case r.URL.Path == "/api/v1/stats":
		io.WriteString(w, `{"lastSeq":7}`)
		return
	case r.URL.Path == "/api/v1/events":
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: %s\n\n", r.Header.Get("Last-Event-ID"))
		w.(http.Flusher).Flush()
		d.asked <- "stream after " + r.Header.Get("Last-Event-ID") + " " + r.URL.RawQuery
		for {
			select {
			case id := <-d.tell:
				if id == "cut" {
					return
				}
				fmt.Fprintf(w, "id: %s\ndata: {\"id\":\"%s\"}\n\n", id, id)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	default:
		fmt.Fprintf(w, "%q", thing)
	}
	d.asked <- r.URL.Path
}

func (d *watchedServer) become(thing string, away bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.thing, d.away = thing, away
}

// expect waits for the next questions and fails at any other.
func (d *watchedServer) expect(t *testing.T, paths ...string) {
	t.Helper()
	for _, want := range paths {
		select {
		case got := <-d.asked:
			if got != want {
				t.Fatalf("asked for %s, want %s", got, want)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s was never asked for", want)
		}
	}
}

// expectInAnyOrder waits for as many questions as there are paths. They come from
// two goroutines, so their order is not fixed.
func (d *watchedServer) expectInAnyOrder(t *testing.T, paths ...string) {
	t.Helper()
	left := slices.Clone(paths)
	for range paths {
		select {
		case got := <-d.asked:
			i := slices.Index(left, got)
			if i < 0 {
				t.Fatalf("asked for %s, want one of %q", got, left)
			}
			left = slices.Delete(left, i, i+1)
		case <-time.After(time.Minute):
			t.Fatalf("%q were never asked for", left)
		}
	}
}

// newTestView is a view of one thing, with an age that is another at each
// look.
func newTestView(t *testing.T, s *Connection, terminal bool, clock chan time.Time) (v *view, out, talk *lockedBuffer) {
	out, talk = &lockedBuffer{}, &lockedBuffer{}
	cmd := watchFlag(newTestRoot())
	cmd.SetOut(out)
	cmd.SetErr(talk)
	looks := 0
	s.reads.start()
	v = &view{
		cmd:      cmd,
		s:        s,
		out:      out,
		terminal: terminal,
		clock:    clock,
		changed:  make(chan struct{}, 1),
		failed:   make(chan error, 1),
		show: func(ctx context.Context, w io.Writer) error {
			var raw jsontext.Value
			if err := s.Call(ctx, "GET", "/thing", nil, nil, client.WithBody(&raw)); err != nil {
				return err
			}
			term.NoteAnswer(w, raw)
			looks++
			fmt.Fprintf(w, "%s, age %d\n", raw, looks)
			return nil
		},
	}
	return v, out, talk
}

// A view is read again after events alone, however the clock goes; a pipe gets
// it again only when it says something new.
func TestAWatchedViewIsReadAfterEvents(t *testing.T) {
	d, s := newWatchedServer(t)
	clock := make(chan time.Time)
	v, out, _ := newTestView(t, s, false, clock)
	ctx, cancel := context.WithCancel(t.Context())
	stop := v.follow(ctx, client.Follower{Query: topic{kinds: []string{"key."}}.query(), After: "7"})
	ended := make(chan error, 1)
	go func() { ended <- v.watch(ctx) }()
	d.expectInAnyOrder(t, "stream after 7 type=key.created%2Ckey.revoked", "/thing")
	for range 3 {
		clock <- time.Now()
	}
	d.tell <- "8" // about something else
	d.expect(t, "/thing")
	d.become("two", false)
	d.tell <- "9"
	d.expect(t, "/thing")
	clock <- time.Now()
	d.tell <- "cut"
	// The view is read again, because events may have been missed.
	d.expectInAnyOrder(t, "stream after 9 type=key.created%2Ckey.revoked", "/thing")
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	stop()
	if got := out.String(); got != "\"one\", age 1\n\"two\", age 3\n" {
		t.Errorf("printed %q", got)
	}
}

// On a terminal ages go on with the clock, without a question to the server;
// what was shown stays while the server is away.
func TestAWatchedViewAgesOnATerminal(t *testing.T) {
	d, s := newWatchedServer(t)
	clock := make(chan time.Time)
	v, out, talk := newTestView(t, s, true, clock)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- v.watch(ctx) }()
	d.expect(t, "/thing")
	clock <- time.Now()
	clock <- time.Now() // the draw before it is over
	d.become("", true)
	v.changed <- struct{}{}
	d.expect(t, "/thing")
	clock <- time.Now() // asks again: nothing is kept
	d.expect(t, "/thing")
	d.become("two", false)
	v.changed <- struct{}{}
	d.expect(t, "/thing")
	clock <- time.Now()
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	got := out.String()
	for _, want := range []string{"\x1b[2J\x1b[H\"one\", age 1\x1b[K", "\x1b[H\"one\", age 2\x1b[K",
		"\x1b[H\"two\", age "} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in %q", want, got)
		}
	}
	if talk.String() != "the server does not answer; going on when it does\n" {
		t.Errorf("said %q", talk.String())
	}
}

// A key that may not read the log ends the watch with the server's words.
func TestAWatchThatIsRefusedEnds(t *testing.T) {
	_, s := newWatchedServer(t)
	v, _, _ := newTestView(t, s, false, nil)
	v.failed <- picket.CodeForbidden
	if err := v.watch(t.Context()); err != error(picket.CodeForbidden) {
		t.Errorf("ended with %v", err)
	}
}

// More lines than the terminal has are cut, so that the top stays in sight.
func TestAPageIsNoHigherThanTheTerminal(t *testing.T) {
	var out bytes.Buffer
	v := &view{out: &out}
	page := &term.ViewBuffer{Buffer: bytes.NewBufferString(strings.Repeat("line\n", 40))}
	v.paint(page)
	if n := strings.Count(out.String(), "\r\n"); n != 23 || !strings.Contains(out.String(), "18 more lines below") {
		t.Errorf("%d lines: %q", n, out.String())
	}
}

// The filter of every view's stream is one that the server takes.
func TestTopicsMatchEventTypes(t *testing.T) {
	for _, of := range []topic{pendingTopic, agentTopic, moneyTopic, webhookTopic, {kinds: []string{"key."}}} {
		for _, kind := range of.kinds {
			types := strings.Join(topic{kinds: []string{kind}}.query().Types, ",")
			if !strings.Contains(types, strings.TrimSuffix(kind, ".")) {
				t.Errorf("no event is called %s…", kind)
			}
		}
		if n := len(of.query().Types); n > 64 {
			t.Errorf("%v stands for %d types, and a request may name 64", of.kinds, n)
		}
	}
}
