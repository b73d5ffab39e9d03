package turns_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/reaper/turns"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errLost = picket.Refuse(picket.CodeUnavailable, "Repeat it.", "the store did not answer")

// A claim whose reply was lost is asked for again under the same id, and counts from the first time. The log has one
// line when the store begins to fail and one when it answers again.
func TestAClaimWithoutAReplyIsRepeated(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	var asked []turns.Claim
	var served turns.Claim
	loop := turns.Loop[string]{
		Take: func(_ context.Context, c turns.Claim, stopping bool) (string, bool, error) {
			asked = append(asked, c)
			if stopping {
				t.Error("a claim that was answered was asked for at the end")
			}
			switch len(asked) {
			case 1, 2:
				return "", false, errLost
			case 3:
				return "turn", true, nil
			}
			<-ctx.Done()
			return "", false, nil
		},
		Serve:   func(_ context.Context, _ string, c turns.Claim) { served = c; stop() },
		Subject: "letters",
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	}
	began := time.Now()
	loop.Run(ctx)
	if len(asked) != 4 || asked[0].ID != asked[2].ID || asked[2].ID == asked[3].ID || asked[0].Repeated ||
		!asked[2].Repeated || asked[3].Repeated {
		t.Errorf("asked for %+v", asked)
	}
	if served.ID != asked[0].ID || served.Since != asked[0].Since || served.Since.Before(began) {
		t.Errorf("served %+v, want the claim %+v", served, asked[0])
	}
	if text := log.String(); strings.Count(text, "letters cannot be served") != 1 ||
		strings.Count(text, "letters are served again") != 1 {
		t.Errorf("the log is %s", text)
	}
}

// A claim whose reply is lost while the deliverer stops is asked for once more, without waiting, and served.
func TestAClaimIsGivenBackAtTheEnd(t *testing.T) {
	for _, slots := range []chan struct{}{nil, make(chan struct{}, 1)} {
		ctx, stop := context.WithCancel(t.Context())
		var first string
		served := 0
		loop := turns.Loop[string]{
			Take: func(ctx context.Context, c turns.Claim, stopping bool) (string, bool, error) {
				if !stopping {
					first = c.ID
					stop()
					return "", false, errLost
				}
				if c.ID != first || !c.Repeated || ctx.Err() != nil {
					t.Errorf("asked for %+v at the end, want %s again", c, first)
				}
				return "turn", true, nil
			},
			Serve: func(ctx context.Context, _ string, _ turns.Claim) {
				served++
				if ctx.Err() == nil {
					t.Error("the turn is not told that the deliverer stops")
				}
			},
			Slots: slots,
			Log:   slog.New(slog.DiscardHandler),
		}
		loop.Run(ctx)
		if served != 1 || len(slots) != 0 {
			t.Errorf("served %d turns, and %d slots are taken", served, len(slots))
		}
	}
}

// No more turns are under way than there are slots, and a turn that ends makes room for the next.
func TestTurnsAreBoundedBySlots(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var most, open, total int
	full, finish := make(chan struct{}), make(chan struct{})
	loop := turns.Loop[int]{
		Take: func(context.Context, turns.Claim, bool) (int, bool, error) { return 0, true, nil },
		Serve: func(context.Context, int, turns.Claim) {
			mu.Lock()
			open, total = open+1, total+1
			most = max(most, open)
			if open == 3 && total == 3 {
				close(full)
			}
			if total == 9 {
				stop()
			}
			mu.Unlock()
			<-finish
			mu.Lock()
			open--
			mu.Unlock()
		},
		Slots: make(chan struct{}, 3),
		Log:   slog.New(slog.DiscardHandler),
	}
	go func() { <-full; close(finish) }()
	loop.Run(ctx)
	if most != 3 || open != 0 || total < 9 {
		t.Errorf("at most %d turns were under way of %d, want 3; %d are left", most, total, open)
	}
}

// Without a turn the loop waits as it is told, and looks again. What fails there is logged.
func TestTheLoopIsIdleWithoutATurn(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var log bytes.Buffer
	var acts []string
	loop := turns.Loop[string]{
		Take: func(context.Context, turns.Claim, bool) (string, bool, error) {
			acts = append(acts, "take")
			return "none", false, nil
		},
		Idle: func(_ context.Context, none string) error {
			acts = append(acts, "idle "+none)
			if len(acts) == 2 {
				return nil
			}
			if len(acts) == 4 {
				return errLost
			}
			stop()
			return errors.New("the loop stops, so this is not logged")
		},
		Subject: "letters",
		Log:     slog.New(slog.NewTextHandler(&log, nil)),
	}
	loop.Run(ctx)
	if want := []string{"take", "idle none", "take", "idle none", "take", "idle none"}; !slices.Equal(acts, want) {
		t.Errorf("the loop did %q, want %q", acts, want)
	}
	if text := log.String(); strings.Count(text, "cannot be served") != 1 || strings.Contains(text, "not logged") {
		t.Errorf("the log is %s", text)
	}
}

// A request goes on for the grace after the deliverer was stopped, and is then cut off with the reason.
func TestARequestHasGrace(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	sending, done := turns.WithGrace(ctx, time.Hour)
	short, doneToo := turns.WithGrace(ctx, time.Millisecond)
	defer doneToo()
	stop()
	<-short.Done()
	if sending.Err() != nil || !errors.Is(context.Cause(short), turns.ErrStopping) {
		t.Errorf("%v and %v", sending.Err(), context.Cause(short))
	}
	done()
	if errors.Is(context.Cause(sending), turns.ErrStopping) {
		t.Error("a request that is over was cut off")
	}
}
