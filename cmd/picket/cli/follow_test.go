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

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
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

// A reader is told when the key reads too many streams. A reader that had a stream gets one again.
func TestStreamLimit(t *testing.T) {
	rig.SkipShort(t)
	errEnough := errors.New("enough")
	until := func(last string, seen *[]string, link func(bool)) client.Follower {
		return client.Follower{After: "0", Link: link, Event: func(e picket.Event, _ []byte) error {
			*seen = append(*seen, e.ID)
			if e.ID == last {
				return errEnough
			}
			return nil
		}}
	}
	var seen []string
	err := streamLimitedServer(t, false, true).Events.Follow(t.Context(), until("1", &seen, nil))
	if !errors.Is(err, picket.CodeRateLimited) || len(seen) > 0 {
		t.Errorf("without room: %v, read %v", err, seen)
	}
	err = streamLimitedServer(t, true, false, false, true).Events.
		Follow(t.Context(), until("2", &seen, nil))
	if err != errEnough || !slices.Equal(seen, []string{"1", "2"}) {
		t.Errorf("room lost and found: %v, read %v", err, seen)
	}

	// `picket run` looks at its task meanwhile, and reads on when there is room.
	var links []bool
	seen = nil
	err = streamLimitedServer(t, false, true, false, true).FollowDespiteLimit(t.Context(),
		until("2", &seen, func(up bool) { links = append(links, up) }))
	if err != errEnough || !slices.Equal(seen, []string{"1", "2"}) || len(links) < 3 || links[0] || !links[1] {
		t.Errorf("polling meanwhile: %v, read %v, told %v", err, seen, links)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	err = streamLimitedServer(t).
		FollowDespiteLimit(ctx, until("1", &seen, func(bool) { cancel(errEnough) }))
	if err != errEnough {
		t.Errorf("ended meanwhile: %v", err)
	}
}
