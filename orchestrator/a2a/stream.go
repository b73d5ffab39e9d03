package a2a

import (
	"context"
	stdjson "encoding/json"
	"iter"
	"net/http"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket/internal/sse"
	"github.com/picket-dev/picket/internal/web"
)

// waitContext is the context of a request that may wait: it also ends when the server begins to stop, and when the key
// is revoked. What a peer waits for ends with its run (watchLease).
func (x *exchange) waitContext() (ctx context.Context, done func()) {
	ctx, end := web.WaitContext(x.Context)
	if x.isPeer() {
		return ctx, end
	}
	held, stop := x.engine.KeyContext(ctx, x.who.KeyID)
	return held, func() { stop(); end() }
}

// send sends a stream as server-sent events. encode makes the data of one event, or of the error that ends the stream.
// An idle stream gets comments, so that proxies keep it open.
func (x *exchange) send(ctx context.Context, s *stream, encode func(protocol.Event, error) any) error {
	defer s.close()
	h := x.Response().Header()
	h.Set(echo.HeaderContentType, sse.ContentType)
	h.Set(echo.HeaderCacheControl, "no-store")
	h.Set("X-Accel-Buffering", "no") // a reverse proxy must not hold events back
	x.Response().WriteHeader(http.StatusOK)
	out := sse.NewWriter(x.Response(), x.server.cfg.WriteTimeout)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	events := pump(ctx, s.events)
	for {
		idle := time.NewTimer(x.server.cfg.KeepAlive)
		select {
		case next, open := <-events:
			idle.Stop()
			if !open {
				return nil
			}
			data, err := stdjson.Marshal(encode(next.event, next.err))
			if err != nil {
				return err
			}
			if out.Write(sse.Event{Data: data}) != nil {
				return nil // the reader has gone, or reads no more
			}
		case <-idle.C:
			if out.Write(sse.Event{Comment: "keep-alive"}) != nil {
				return nil
			}
		}
	}
}

type streamed struct {
	event protocol.Event
	err   error
}

// pump gives the events of a stream to a channel, which is closed after the last one or with ctx.
func pump(ctx context.Context, events iter.Seq2[protocol.Event, error]) <-chan streamed {
	out := make(chan streamed)
	go func() {
		defer close(out)
		for ev, err := range events {
			select {
			case out <- streamed{ev, err}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}
