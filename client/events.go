package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"net/url"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/sse"
)

// Events is the log of what happened.
type Events struct{ c *Client }

// List reads a page of the log, or of the audit log. A page that is short, or empty, is
// not the end: the server looks at so many events, and Next is how far it came. The
// filters of the query that the API does not have are not sent.
func (e Events) List(ctx context.Context, q picket.EventQuery, opts ...Option) (picket.EventPage, error) {
	path := route("events")
	if q.Audit {
		path = route("audit")
	}
	return query[picket.EventPage](ctx, e.c, path, eventParameters(q), opts)
}

// minPageAdvance is the step that a short page takes at least when there is more. A
// smaller step is what was written since the last page.
const minPageAdvance = 100

// All reads the events of all pages from the one that the query begins with, up to those
// that are written while it reads.
func (e Events) All(ctx context.Context, q picket.EventQuery, opts ...Option) iter.Seq2[picket.Event, error] {
	return all("", func(string) ([]picket.Event, *string, error) {
		page, err := e.List(ctx, q, opts...)
		next, _ := strconv.ParseInt(page.Next, 10, 64)
		if err != nil || next-q.After < minPageAdvance {
			return page.Events, nil, err
		}
		q.After = next
		return page.Events, &page.Next, nil
	})
}

func eventParameters(q picket.EventQuery) url.Values {
	return parameters("after", q.After, "type", joined(q.Types), "task", q.TaskID, "agent", q.Agent, "limit", q.Limit)
}

// EventReset is the type of the event that a reader of a stream gets in place of events
// that are no longer kept.
const EventReset = "reset"

// Follower reads the stream of events.
type Follower struct {
	// Query selects events by type, task and agent.
	Query picket.EventQuery
	// After is the cursor to begin after: "0" is the beginning of the log. Defaults to
	// "", which is now.
	After string
	// Link is called after each connect with true, and with false after each loss that
	// is followed by another try. Defaults to nothing.
	Link func(up bool)
	// Event gets each event, and its JSON. Its error ends the stream. Required.
	Event func(e picket.Event, raw []byte) error
}

// Follow reads the stream until ctx ends. When the connection breaks, it connects again
// and goes on where it was. A refusal, such as an unknown key, ends it. A refusal because
// the key reads too many streams ends it at the first connect only.
func (e Events) Follow(ctx context.Context, f Follower) error {
	if f.Link == nil {
		f.Link = func(bool) {}
	}
	for wait, connected := 100*time.Millisecond, false; ; wait = min(2*wait, 3*time.Second) {
		before := f.After
		up, err := e.readStream(ctx, &f)
		connected = connected || up
		if f.After != before {
			wait = 100 * time.Millisecond
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, picket.CodeUnavailable), errors.Is(err, io.ErrUnexpectedEOF):
		case errors.Is(err, picket.CodeRateLimited) && connected:
			// The server still counts the connection that was lost.
		default:
			return err
		}
		f.Link(false)
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// readStream reads one connection, and keeps the cursor in f.After.
func (e Events) readStream(ctx context.Context, f *Follower) (connected bool, err error) {
	opts := []Option{WithSecondTry(), WithQuery(eventParameters(f.Query)), WithHeader("Accept", sse.ContentType)}
	if f.After != "" {
		opts = append(opts, WithHeader("Last-Event-ID", f.After))
	}
	body, err := e.c.Stream(ctx, route("events"), opts...)
	if err != nil {
		return false, err
	}
	defer body.Close()
	f.Link(true)
	for events := sse.NewReader(body, maxEvent); ; {
		event, err := events.Next()
		switch {
		case err == io.EOF, err != nil && ctx.Err() != nil:
			return true, nil
		case err != nil:
			return true, io.ErrUnexpectedEOF
		}
		if len(event.Data) > 0 {
			if err := f.deliver(event.Type, bytes.Clone(event.Data)); err != nil {
				return true, err
			}
		}
		if event.ID != "" { // also without data, because it tells where the stream is
			f.After = event.ID
		}
	}
}

// maxEvent bounds one event of the stream, in bytes.
const maxEvent = 4 << 20

func (f *Follower) deliver(kind string, data []byte) error {
	event := picket.Event{Type: kind, Reason: "events were lost before this point"}
	if kind != EventReset {
		event = picket.Event{}
		if err := json.Unmarshal(data, &event); err != nil {
			return err
		}
	}
	return f.Event(event, data)
}
