package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// streamLimitedServer is a server that has room for a stream at the times it is told: each
// stream gives one event and ends.
func streamLimitedServer(t *testing.T, room ...bool) *Connection {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := 0
		_, _ = fmt.Sscan(r.Header.Get("Last-Event-ID"), &at)
		if len(room) == 0 || !room[0] {
			w.Header().Set("Content-Type", "application/problem+json")
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			io.WriteString(w, `{"code":"rate_limited","message":"too many streams","remedy":"close some"}`)
		} else {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprintf(w, "id: %d\ndata: {\"id\":\"%d\"}\n\n", at+1, at+1)
		}
		if len(room) > 0 {
			room = room[1:]
		}
	}))
	t.Cleanup(srv.Close)
	return NewConnection(srv.URL, "")
}

// Anyone who finds no room for a stream is told so; who had one comes back to it.
func TestStreamLimit(t *testing.T) {
	rig.SkipShort(t)
	errEnough := errors.New("enough")
	until := func(last string, seen *[]string) func(picket.Event, jsontext.Value) error {
		return func(e picket.Event, _ jsontext.Value) error {
			*seen = append(*seen, e.ID)
			if e.ID == last {
				return errEnough
			}
			return nil
		}
	}
	var seen []string
	err := streamLimitedServer(t, false, true).Follow(t.Context(), "/api/v1/events", "0", nil, until("1", &seen))
	if !errors.Is(err, picket.CodeRateLimited) || len(seen) > 0 {
		t.Errorf("without room: %v, read %v", err, seen)
	}
	err = streamLimitedServer(t, true, false, false, true).
		Follow(t.Context(), "/api/v1/events", "0", nil, until("2", &seen))
	if err != errEnough || !slices.Equal(seen, []string{"1", "2"}) {
		t.Errorf("room lost and found: %v, read %v", err, seen)
	}

	// `picket run` looks at its task meanwhile, and reads on when there is room.
	var links []bool
	seen = nil
	err = streamLimitedServer(t, false, true, false, true).FollowDespiteLimit(t.Context(), "/api/v1/events", "0",
		func(up bool) { links = append(links, up) }, until("2", &seen))
	if err != errEnough || !slices.Equal(seen, []string{"1", "2"}) || len(links) < 3 || links[0] || !links[1] {
		t.Errorf("who looks meanwhile: %v, read %v, told %v", err, seen, links)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err = streamLimitedServer(t).
		FollowDespiteLimit(ctx, "/api/v1/events", "0", func(bool) { cancel(errEnough) }, until("1", &seen))
	if err != errEnough {
		t.Errorf("who goes meanwhile: %v", err)
	}
}
