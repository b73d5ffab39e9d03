package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// keeperFixture is a keeper on the virtual clock and what it did, as lines of
// seconds since the start.
type keeperFixture struct {
	*keeper
	start   time.Time
	suspend atomic.Int64 // ns: what the boot clock is ahead of the timers
	steps   []string
	replies func(n int) error         // of the n-th renewal, from 1
	takes   func(n int) time.Duration // how long the n-th renewal is under way
	n       int
}

func newKeeperFixture(window time.Duration) *keeperFixture {
	h := &keeperFixture{start: time.Now()}
	h.keeper = &keeper{
		registration:     unregistered(&Config{}),
		window:           window,
		clock:            func() time.Duration { return time.Since(h.start) + time.Duration(h.suspend.Load()) },
		renew:            h.request,
		onRenewed:        func(picket.Renewal) { h.log("renewed") },
		onFailed:         func(error) { h.log("failed") },
		onWarning:        func() { h.log("warned") },
		onWarningRevoked: func() {},
	}
	return h
}

func (h *keeperFixture) log(what string) {
	h.steps = append(h.steps, fmt.Sprintf("%s %.1f", what, h.clock().Seconds()))
}

func (h *keeperFixture) request(ctx context.Context) (picket.Renewal, error) {
	h.n++
	n := h.n
	if h.takes != nil && !sleep(ctx, h.takes(n)) {
		return picket.Renewal{}, unreachable(ctx.Err())
	}
	if h.replies != nil {
		if err := h.replies(n); err != nil {
			return picket.Renewal{}, err
		}
	}
	return picket.Renewal{LeaseTTLMs: h.window.Milliseconds()}, nil
}

// confirmAndKeep confirms and keeps for at most d.
func (h *keeperFixture) confirmAndKeep(t *testing.T, d time.Duration) error {
	t.Helper()
	if _, err := h.confirm(t.Context(), 30*time.Second); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	err := h.run(ctx)
	cancel()
	synctest.Wait()
	return err
}

var errAway = picket.Refuse(picket.CodeUnavailable, "", "away")

func TestRenewsAtSixtyPercent(t *testing.T) {
	for _, tt := range []struct {
		window time.Duration
		want   []string
	}{
		{300 * time.Second, []string{"renewed 180.0", "renewed 360.0", "renewed 540.0"}},
		{10 * time.Second, []string{"renewed 6.0", "renewed 12.0", "renewed 18.0"}},
		{2 * time.Second, []string{"renewed 1.2", "renewed 2.4", "renewed 3.6"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(tt.window)
			if err := h.confirmAndKeep(t, tt.window*2); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(h.steps, tt.want) {
				t.Errorf("window %s: %v, want %v", tt.window, h.steps, tt.want)
			}
		})
	}
}

// The lease counts from before the request, however long the reply took.
func TestCountsFromBeforeTheRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKeeperFixture(300 * time.Second)
		h.takes = func(int) time.Duration { return 2 * time.Second }
		if err := h.confirmAndKeep(t, 400*time.Second); err != nil {
			t.Fatal(err)
		}
		if want := []string{"renewed 182.0", "renewed 362.0"}; !slices.Equal(h.steps, want) {
			t.Errorf("%v, want %v", h.steps, want)
		}
	})
}

// With nobody answering, the tree gets SIGTERM 10 % before the end and is
// killed a margin before it; windows under 10 s have no SIGTERM stage.
func TestOutageUntilTheDeadline(t *testing.T) {
	for _, tt := range []struct {
		window time.Duration
		warned string
		kill   string
	}{
		{300 * time.Second, "warned 270.0", "291.0"},
		{20 * time.Second, "warned 18.0", "19.0"},
		{10 * time.Second, "warned 8.0", "9.0"},
		{5 * time.Second, "", "4.5"},
		{2 * time.Second, "", "1.5"},
	} {
		for _, how := range []string{"refused", "hanging"} {
			synctest.Test(t, func(t *testing.T) {
				h := newKeeperFixture(tt.window)
				h.replies = func(n int) error {
					if n == 1 {
						return nil
					}
					return errAway
				}
				if how == "hanging" {
					h.takes = func(n int) time.Duration { return time.Duration(n-1) * time.Hour }
				}
				err := h.confirmAndKeep(t, time.Hour)
				if !errors.Is(err, errLeaseDeadline) {
					t.Fatalf("window %s: %v", tt.window, err)
				}
				if got := fmt.Sprintf("%.1f", h.clock().Seconds()); got != tt.kill {
					t.Errorf("window %s %s: killed at %s, want %s", tt.window, how, got, tt.kill)
				}
				if tt.warned != "" && !slices.Contains(h.steps, tt.warned) {
					t.Errorf("window %s %s: not warned at %s: %v", tt.window, how, tt.warned, h.steps)
				}
				if h.n < 3 {
					t.Errorf("window %s %s: tried only %d times", tt.window, how, h.n)
				}
			})
		}
	}
}

// The deadline, too, counts from before the request.
func TestDeadlineAfterASlowReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKeeperFixture(300 * time.Second)
		h.takes = func(int) time.Duration { return 2 * time.Second }
		h.replies = func(n int) error {
			if n > 1 {
				return errAway
			}
			return nil
		}
		err := h.confirmAndKeep(t, time.Hour)
		if got := h.clock(); !errors.Is(err, errLeaseDeadline) || got != 291*time.Second {
			t.Errorf("let go after %s: %v", got, err)
		}
	})
}

// A lost reply is retried within the same window and nothing is lost.
func TestLostReplyIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKeeperFixture(300 * time.Second)
		h.replies = func(n int) error {
			if n == 2 || n == 3 {
				return unreachable(errors.New("connection broken"))
			}
			return nil
		}
		if err := h.confirmAndKeep(t, 200*time.Second); err != nil {
			t.Fatal(err)
		}
		if len(h.steps) != 3 || h.steps[0] != "failed 180.0" || h.n != 4 {
			t.Errorf("%v after %d calls", h.steps, h.n)
		}
	})
}

func TestDefiniteLossEndsAtOnce(t *testing.T) {
	for _, code := range []picket.Code{
		picket.CodeStaleFence, picket.CodeUnknownFence, picket.CodeLeaseExpired,
		picket.CodeLeaseReleased, picket.CodeTaskCancelled, picket.CodeTaskMismatch,
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(300 * time.Second)
			h.replies = func(n int) error {
				if n == 2 {
					return picket.Refuse(code, "", "gone")
				}
				return nil
			}
			if err := h.confirmAndKeep(t, time.Hour); !errors.Is(err, code) {
				t.Errorf("%s: %v", code, err)
			}
			if got := h.clock(); got != 180*time.Second {
				t.Errorf("%s: noticed after %s", code, got)
			}
		})
	}
}

// Codes that say nothing about the lease keep it until its deadline.
func TestOtherErrorsKeepTheLease(t *testing.T) {
	for _, code := range []picket.Code{picket.CodeUnavailable, picket.CodeInternal, picket.CodeUnauthenticated,
		picket.CodeNotFound, picket.CodeRateLimited} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(60 * time.Second)
			h.replies = func(n int) error {
				if n > 1 && h.clock() < 50*time.Second {
					return picket.Refuse(code, "", "no")
				}
				return nil
			}
			if err := h.confirmAndKeep(t, 58*time.Second); err != nil {
				t.Errorf("%s: %v", code, err)
			}
		})
	}
}

// Suspend: timers stand still while the lease runs on. Within a second of the
// resume the lease is renewed before anything else, or let go.
func TestSuspend(t *testing.T) {
	for _, tt := range []struct {
		asleep time.Duration
		lost   bool
	}{{100 * time.Second, false}, {280 * time.Second, true}, {10 * time.Hour, true}} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(300 * time.Second)
			time.AfterFunc(20500*time.Millisecond, func() { h.suspend.Store(int64(tt.asleep)) })
			err := h.confirmAndKeep(t, 30*time.Second)
			if errors.Is(err, errLeaseDeadline) != tt.lost {
				t.Fatalf("asleep %s: %v", tt.asleep, err)
			}
			late := time.Since(h.start) - 20500*time.Millisecond
			if tt.lost && late > time.Second {
				t.Errorf("asleep %s: let go %s after the resume", tt.asleep, late)
			}
			if want := "renewed 121.0"; !tt.lost && !slices.Equal(h.steps, []string{want}) {
				t.Errorf("asleep %s: %v, want %s", tt.asleep, h.steps, want)
			}
		})
	}
}

// A renewal that hangs over a suspend is given up and sent again.
func TestSuspendDuringRenewal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newKeeperFixture(300 * time.Second)
		h.takes = func(n int) time.Duration {
			if n == 2 {
				return time.Hour
			}
			return 0
		}
		time.AfterFunc(181500*time.Millisecond, func() { h.suspend.Store(int64(30 * time.Second)) })
		if err := h.confirmAndKeep(t, 183*time.Second); err != nil {
			t.Fatal(err)
		}
		if want := []string{"renewed 212.0"}; !slices.Equal(h.steps, want) {
			t.Errorf("%v, want %v", h.steps, want)
		}
	})
}

func TestConfirm(t *testing.T) {
	for _, tt := range []struct {
		name  string
		err   error
		calls int // that fail; -1: all
		want  error
	}{
		{"at once", nil, 0, nil},
		{"after an outage", errAway, 3, nil},
		{"never", errAway, -1, picket.CodeUnavailable},
		{"expired", picket.CodeLeaseExpired, -1, picket.CodeLeaseExpired},
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newKeeperFixture(300 * time.Second)
			h.replies = func(n int) error {
				if tt.calls < 0 || n <= tt.calls {
					return tt.err
				}
				return nil
			}
			_, err := h.confirm(t.Context(), 30*time.Second)
			if !errors.Is(err, tt.want) {
				t.Errorf("%s: %v", tt.name, err)
			}
			if got := h.clock(); got > 31*time.Second {
				t.Errorf("%s: gave up after %s", tt.name, got)
			}
		})
	}
}

func TestBackoffLeavesRoom(t *testing.T) {
	h := newKeeperFixture(300 * time.Second)
	for h.failures = 1; h.failures < 80; h.failures++ {
		for _, left := range []time.Duration{0, time.Millisecond, time.Second, time.Minute} {
			if d := h.backoff(left); d < 10*time.Millisecond || d > max(left/4, 10*time.Millisecond) {
				t.Fatalf("failure %d with %s left: waits %s", h.failures, left, d)
			}
		}
	}
}

// unreachable is the error of a call that nobody answered.
func unreachable(cause error) error {
	return picket.Refuse(picket.CodeUnavailable, "", "the proxy does not answer").
		WithCause(fmt.Errorf("%w: %w", picket.ErrUnknown, cause))
}
