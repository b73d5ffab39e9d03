package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/sse"
	"github.com/picket-dev/picket/orchestrator"
)

// streamPage is how many events are read for a stream at a time. A stream whose
// reader is stuck holds a page until it is given up, and there may be hundreds
// of such readers.
const streamPage = 20

// Stream is the event stream for another front door than the API's, with the parameters of GET
// /api/v1/events (after, type, task, agent; Last-Event-ID). The caller has found the engine and
// authenticated the client as who. The stream counts with the other streams of that key. admit is
// called for every page and every keep-alive, and its error ends the stream.
func (a *API) Stream(c echo.Context, engine *orchestrator.Engine, who picket.Principal, admit func() error) error {
	r := request{Context: c, engine: engine, who: who}
	q, want, err := r.eventQuery()
	if err != nil {
		return err
	}
	return a.stream(r, q, want, admit)
}

// stream sends events as they come (server-sent events, id: = cursor) until
// the client goes, stops reading, is admitted no more, or the server stops.
func (a *API) stream(r request, q *query, want picket.EventQuery, admit func() error) error {
	after, err := r.startCursor(q, want)
	if err != nil {
		return err
	}
	leave, err := a.streamLimit.acquire(r.who)
	if err != nil {
		return err
	}
	defer leave()
	ctx, done := r.waitContext()
	defer done()
	want.Limit = streamPage
	s := &eventStream{
		api:     a,
		request: r,
		out:     sse.NewWriter(r.Response(), a.cfg.StreamWriteTimeout),
		want:    want,
		admit:   admit,
	}
	s.want.After = after
	a.metrics.readers.Inc()
	defer a.metrics.readers.Dec()
	if err := s.open(); err != nil {
		return err
	}
	err = s.run(ctx)
	if ctx.Err() != nil {
		return nil // the client or the server went: the usual end
	}
	return err
}

type eventStream struct {
	api     *API
	request request
	out     *sse.Writer
	want    picket.EventQuery
	admit   func() error
}

func (s *eventStream) open() error {
	h := s.request.Response().Header()
	h.Set(echo.HeaderContentType, sse.ContentType)
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // a reverse proxy must not hold events back
	s.request.Response().WriteHeader(http.StatusOK)
	// The id lets a client that loses the connection before the first event
	// come back to where it began.
	return s.out.Write(sse.Event{Retry: time.Second, ID: s.cursor()})
}

func (s *eventStream) run(ctx context.Context) error {
	if err := s.checkStart(ctx); err != nil {
		return err
	}
	for {
		if err := s.admit(); err != nil {
			return err
		}
		page, err := s.request.engine.Events(ctx, s.want)
		switch {
		case errors.Is(err, picket.CodeCursorExpired):
			err = s.reset(ctx)
		case err == nil:
			err = s.sendPage(page)
		}
		if err != nil {
			return err
		}
		if len(page.Events) == s.want.Limit {
			continue // there may be more already
		}
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
}

// checkStart resets a reader whose cursor is ahead of the log: it is of another
// store, and waiting for it would miss everything in between.
func (s *eventStream) checkStart(ctx context.Context) error {
	last, err := s.request.engine.LastSeq(ctx)
	if err != nil || s.want.After <= last {
		return err
	}
	return s.reset(ctx)
}

func (s *eventStream) sendPage(page picket.EventPage) error {
	for _, e := range page.Events {
		data, err := json.Marshal(e, json.Deterministic(true))
		if err != nil {
			return fmt.Errorf("encode event %d: %w", e.Seq, err)
		}
		if err := s.out.Write(sse.Event{ID: e.ID, Data: data}); err != nil {
			return err
		}
	}
	next, err := strconv.ParseInt(page.Next, 10, 64)
	if err != nil {
		return fmt.Errorf("read cursor %q: %w", page.Next, err)
	}
	s.want.After = max(s.want.After, next)
	return nil
}

// reset tells the reader that events it has not seen are gone. It goes on from
// now: what the reader loads after this covers everything before.
func (s *eventStream) reset(ctx context.Context) error {
	last, err := s.request.engine.LastSeq(ctx)
	if err != nil {
		return err
	}
	lost := s.want.After
	s.want.After = last
	data := fmt.Appendf(nil, `{"code":%q,"after":"%d","next":"%d","remedy":%q}`, picket.CodeCursorExpired, lost, last,
		"Load the tasks again, then read on.")
	return s.out.Write(sse.Event{Type: "reset", ID: s.cursor(), Data: data})
}

// wait returns when there is something to read, keeping the connection alive
// and the key checked in the meantime.
func (s *eventStream) wait(ctx context.Context) error {
	for {
		nap, cancel := context.WithTimeout(ctx, s.api.cfg.KeepAlive)
		err := s.request.engine.Tail(nap, s.want.After)
		napped := nap.Err() != nil && ctx.Err() == nil
		cancel()
		if !napped {
			return err
		}
		if err := s.admit(); err != nil {
			return err
		}
		// With where it stands: what a filter left out is not read again, and a
		// reader of rare events does not fall out of what is retained.
		if err := s.out.Write(sse.Event{Comment: "keep-alive", ID: s.cursor()}); err != nil {
			return err
		}
	}
}

// cursor is the id of the last event that the reader has had, or was not sent.
func (s *eventStream) cursor() string { return strconv.FormatInt(s.want.After, 10) }
