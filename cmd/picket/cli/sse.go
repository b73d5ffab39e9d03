package cli

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/sse"
)

// errGap is told to a stream's reader when events were lost: what it knows is
// out of date, and it goes on from the cursor in the message.
var errGap = errors.New("events were lost before this point")

// Follow reads the event stream until ctx ends, connecting again whenever it
// breaks and going on where it was. An empty after starts now. A refusal, such
// as an unknown key, ends it; that the key reads too many streams does at the
// first connect only. linked, when not nil, is told of each connect and
// each loss that is followed by another try. each gets the event and its bytes; its error ends the stream.
func (s *Connection) Follow(ctx context.Context, path, after string, linked func(up bool),
	each func(picket.Event, jsontext.Value) error) error {
	if linked == nil {
		linked = func(bool) {}
	}
	wait, connected := 100*time.Millisecond, false
	link := func(up bool) {
		connected = true
		linked(up)
	}
	for {
		last, err := s.readStream(ctx, path, after, link, each)
		if last != after {
			after, wait = last, 100*time.Millisecond
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == nil, errors.Is(err, picket.CodeUnavailable), errors.Is(err, io.ErrUnexpectedEOF):
		case errors.Is(err, picket.CodeRateLimited) && connected:
			// What the server has not noticed the end of counts still.
		default:
			return err
		}
		linked(false)
		if err := Sleep(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, 3*time.Second)
	}
}

// FollowDespiteLimit is follow for who can look for themselves meanwhile: when the
// key reads too many streams, linked is told so and it is tried again.
func (s *Connection) FollowDespiteLimit(ctx context.Context, path, after string, linked func(up bool),
	each func(picket.Event, jsontext.Value) error) error {
	for {
		err := s.Follow(ctx, path, after, linked, each)
		var full *picket.Error
		if !errors.As(err, &full) || full.Code != picket.CodeRateLimited {
			return err
		}
		linked(false)
		if err := Sleep(ctx, cmp.Or(full.RetryAfter, pollEvery)); err != nil {
			return err
		}
	}
}

// readStream reads one connection and answers the last cursor.
func (s *Connection) readStream(ctx context.Context, path, after string, linked func(bool),
	each func(picket.Event, jsontext.Value) error) (string, error) {
	opts := []client.Option{client.WithSecondTry(), client.WithHeader("Accept", sse.ContentType)}
	if after != "" {
		opts = append(opts, client.WithHeader("Last-Event-ID", after))
	}
	body, err := s.Stream(ctx, path, opts...)
	if err != nil {
		return after, err
	}
	defer body.Close()
	linked(true)
	for events := sse.NewReader(body, maxEvent); ; {
		e, err := events.Next()
		switch {
		case err == io.EOF, err != nil && ctx.Err() != nil:
			return after, nil
		case err != nil:
			return after, io.ErrUnexpectedEOF
		}
		if len(e.Data) > 0 {
			if err := deliverEvent(e, each); err != nil {
				return after, err
			}
		}
		if e.ID != "" { // also without data: it says where the stream stands
			after = e.ID
		}
	}
}

// maxEvent bounds one event of the stream, in bytes.
const maxEvent = 4 << 20

func deliverEvent(e sse.Event, each func(picket.Event, jsontext.Value) error) error {
	data := jsontext.Value(bytes.Clone(e.Data))
	if e.Type == "reset" {
		return each(picket.Event{Type: e.Type, Reason: errGap.Error()}, data)
	}
	var event picket.Event
	if err := json.Unmarshal(data, &event); err != nil {
		return err
	}
	return each(event, data)
}
