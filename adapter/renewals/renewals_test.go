package renewals

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// groupFixture is a group on the virtual clock, and the requests that it made.
type groupFixture struct {
	*Group
	start time.Time

	mu       sync.Mutex
	requests []string // "together 3" or "alone NAME"
	// send answers a request for several leases; nil: all are renewed.
	send func(ctx context.Context, leases []picket.LeaseToRenew) ([]client.Renewed, error)
}

func newGroupFixture() *groupFixture {
	f := &groupFixture{start: time.Now()}
	f.Group = New(Config{
		Clock: func() time.Duration { return time.Since(f.start) },
		Log:   slog.New(slog.DiscardHandler),
		Send: func(ctx context.Context, server string, leases []picket.LeaseToRenew) ([]client.Renewed, error) {
			f.note(fmt.Sprint("together ", len(leases)))
			if f.send != nil {
				return f.send(ctx, leases)
			}
			return make([]client.Renewed, len(leases)), nil
		},
	})
	return f
}

func (f *groupFixture) note(what string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests = append(f.requests, what)
}

func (f *groupFixture) want(t *testing.T, want ...string) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if fmt.Sprint(f.requests) != fmt.Sprint(want) {
		t.Errorf("requests %q, want %q", f.requests, want)
	}
	f.requests = nil
}

// lease makes a member at a server.
func (f *groupFixture) lease(name, server string) *Member {
	return f.Member(Lease{
		Server:     server,
		Credential: picket.LeaseToRenew{LeaseToken: picket.Secret(name)},
		Alone: func(ctx context.Context) (picket.Renewal, error) {
			f.note("alone " + name)
			return picket.Renewal{}, ctx.Err()
		},
	})
}

// from is the timing of a lease with much time left.
func from(at time.Duration) Timing { return within(at, 10*time.Second) }

func within(at, timeout time.Duration) Timing {
	return Timing{From: at, Timeout: func(time.Duration) time.Duration { return timeout }}
}

func mustRenew(t *testing.T, attempts ...*Attempt) {
	t.Helper()
	for _, a := range attempts {
		if r := <-a.Done; r.Err != nil {
			t.Error(r.Err)
		}
	}
}

func TestLeasesThatAreDueSoonAreRenewedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupFixture()
		first, soon := f.lease("first", "a"), f.lease("soon", "a")
		late, elsewhere := f.lease("late", "a"), f.lease("x", "b")
		for m, at := range map[*Member]time.Duration{first: 0, soon: 0, late: time.Second, elsewhere: 0} {
			if m.Wait(from(at)) != nil {
				t.Fatal("an attempt has begun")
			}
		}
		mine := first.Start(from(0), true)
		<-soon.Begun()
		// Whichever of the two the keeper calls, it gets the attempt that has begun.
		mustRenew(t, mine, soon.Start(from(0), true))
		f.want(t, "together 2")
		if late.Wait(from(time.Second)) != nil || elsewhere.Wait(from(0)) != nil {
			t.Error("a lease was renewed too early, or at another server")
		}
		mustRenew(t, elsewhere.Start(from(0), true))
		f.want(t, "alone x")
		mustRenew(t, late.Start(from(time.Second), false))
		f.want(t, "alone late")
	})
}

func TestARequestHasAtMostSixtyFourLeases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupFixture()
		first := f.lease("first", "a")
		var others []*Member
		for range 100 {
			m := f.lease("x", "a")
			others = append(others, m)
			m.Wait(from(0))
		}
		mustRenew(t, first.Start(from(0), true))
		f.want(t, "together 64")
		n := 0
		for _, m := range others {
			if a := m.Wait(from(0)); a != nil {
				mustRenew(t, a)
				n++
			}
		}
		if n != 63 {
			t.Errorf("%d others were renewed", n)
		}
	})
}

// A request for several leases is given up in time for the one with the least time, and a lease with hardly any time
// is renewed alone.
func TestARequestEndsInTimeForEachLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupFixture()
		f.send = func(ctx context.Context, leases []picket.LeaseToRenew) ([]client.Renewed, error) {
			<-ctx.Done()
			return nil, picket.Refuse(picket.CodeUnavailable, "", "lost").
				WithCause(errors.Join(picket.ErrUnknown, ctx.Err()))
		}
		long, short, urgent := f.lease("long", "a"), f.lease("short", "a"), f.lease("urgent", "a")
		short.Wait(within(0, time.Second))
		urgent.Wait(within(0, leastTimeout-1))
		a := long.Start(from(0), true)
		r := <-a.Done
		if !errors.Is(r.Err, picket.CodeUnavailable) || time.Since(f.start) != time.Second || r.Sent != 0 {
			t.Errorf("after %s: %+v", time.Since(f.start), r)
		}
		if got := <-short.Wait(from(0)).Done; !errors.Is(got.Err, picket.CodeUnavailable) {
			t.Errorf("short: %+v", got)
		}
		f.want(t, "together 2")
		if urgent.Wait(from(0)) != nil {
			t.Error("the lease with hardly any time was taken along")
		}
	})
}

// What fails for one lease, or for all, is decided lease by lease.
func TestErrorsOfARequestForSeveralLeases(t *testing.T) {
	away := picket.Refuse(picket.CodeUnavailable, "", "away")
	for _, tt := range []struct {
		name   string
		whole  error
		item   error
		want   error // of the second lease
		others error // of the first
		alone  []string
		after  string // the requests of the next round
	}{
		{"away", away, nil, picket.CodeUnavailable, picket.CodeUnavailable, nil, "[alone one alone two]"},
		{"old server", picket.Refuse(picket.CodeNotFound, "", "no route"), nil, nil, nil,
			[]string{"alone one", "alone two"}, "[alone one alone two]"},
		{"old server, other method", picket.Refuse(picket.CodeMethodNotAllowed, "", "no route"), nil, nil, nil,
			[]string{"alone one", "alone two"}, "[alone one alone two]"},
		{"revoked key", picket.Refuse(picket.CodeUnauthenticated, "", "revoked"), nil, nil, nil,
			[]string{"alone one", "alone two"}, "[alone one alone two]"},
		{"one lost", nil, picket.Refuse(picket.CodeStaleFence, "", "stale"), picket.CodeStaleFence, nil, nil,
			"[together 2]"},
		{"one away", nil, away, picket.CodeUnavailable, nil, nil, "[together 2]"},
		{"one of another key", nil, picket.Refuse(picket.CodeUnauthenticated, "", "whose"), nil, nil,
			[]string{"alone two"}, "[alone one alone two]"},
		{"one with large commands", nil, picket.Refuse(picket.CodeTooLarge, "", "large"), nil, nil,
			[]string{"alone two"}, "[together 2]"},
		{"one to be reclaimed", nil, picket.Refuse(picket.CodeReclaimRequired, "", "reclaim"), nil, nil,
			[]string{"alone two"}, "[together 2]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newGroupFixture()
				f.send = func(context.Context, []picket.LeaseToRenew) ([]client.Renewed, error) {
					return []client.Renewed{{}, {Err: tt.item}}, tt.whole
				}
				one, two := f.lease("one", "a"), f.lease("two", "a")
				two.Wait(from(0))
				first := one.Start(from(0), true)
				if r := <-first.Done; !errors.Is(r.Err, tt.others) {
					t.Errorf("one: %v", r.Err)
				}
				if r := <-two.Wait(from(0)).Done; !errors.Is(r.Err, tt.want) {
					t.Errorf("two: %v", r.Err)
				}
				synctest.Wait()
				f.mu.Lock()
				made := len(f.requests)
				f.mu.Unlock()
				if made != 1+len(tt.alone) {
					t.Errorf("requests %q", f.requests)
				}
				f.mu.Lock()
				f.requests = nil
				f.mu.Unlock()
				tt.item, tt.whole = nil, nil
				two.Wait(from(0))
				again := []*Attempt{one.Start(from(0), true)}
				if a := two.Wait(from(0)); a != nil {
					again = append(again, a)
				} else {
					mustRenew(t, again...)
					again = []*Attempt{two.Start(from(0), true)}
				}
				mustRenew(t, again...)
				f.mu.Lock()
				if got := fmt.Sprint(f.requests); got != tt.after {
					t.Errorf("the next round made %s, want %s", got, tt.after)
				}
				f.mu.Unlock()
			})
		})
	}
}

// After a failure the server is asked again later, and soon if it may have been a short one.
func TestAServerIsAskedAgainAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupFixture()
		one, two := f.lease("one", "a"), f.lease("two", "a")
		round := func() {
			two.Wait(from(0))
			mine := one.Start(from(0), true)
			<-mine.Done
			if a := two.Wait(from(0)); a != nil {
				<-a.Done
			}
			synctest.Wait()
		}
		f.send = func(context.Context, []picket.LeaseToRenew) ([]client.Renewed, error) {
			return nil, picket.Refuse(picket.CodeUnavailable, "", "away")
		}
		round()
		f.want(t, "together 2")
		time.Sleep(leastPause - 1)
		round()
		f.want(t, "alone one")
		time.Sleep(time.Nanosecond)
		round() // fails again: the pause is twice as long
		f.want(t, "together 2")
		time.Sleep(2*leastPause - 1)
		round()
		f.want(t, "alone one")
		time.Sleep(time.Nanosecond)
		f.send = nil
		round()
		round()
		f.want(t, "together 2", "together 2")
		f.send = func(context.Context, []picket.LeaseToRenew) ([]client.Renewed, error) {
			return nil, picket.Refuse(picket.CodeNotFound, "", "no route")
		}
		round()
		f.requests, f.send = nil, nil
		time.Sleep(mostPause - 1)
		round()
		f.want(t, "alone one")
		time.Sleep(time.Nanosecond)
		round()
		f.want(t, "together 2")
	})
}

// A request ends when nobody waits for it any more, and not before.
func TestAbortedAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newGroupFixture()
		ended := make(chan struct{})
		f.send = func(ctx context.Context, leases []picket.LeaseToRenew) ([]client.Renewed, error) {
			defer close(ended)
			<-ctx.Done()
			return nil, picket.Refuse(picket.CodeUnavailable, "", "aborted").WithCause(ctx.Err())
		}
		one, two := f.lease("one", "a"), f.lease("two", "a")
		two.Wait(from(0))
		mine := one.Start(from(0), true)
		mine.Abort()
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the request of the other lease was given up")
		default:
		}
		two.Leave() // its keeper has ended, and never had the attempt
		<-ended
		synctest.Wait()
		if !f.mayBatch(one, f.cfg.Clock()) {
			t.Error("an aborted request counts as a failure of the server")
		}
		if time.Since(f.start) != 0 {
			t.Errorf("it took %s", time.Since(f.start))
		}
	})
}

func TestTheKeyGoesWhereItIsAsPrivate(t *testing.T) {
	for _, tt := range []struct {
		server, first string
		want          bool
	}{
		{"https://proxy.example.com", "https://picket.example.com", true},
		{"http://proxy.example.com", "https://picket.example.com", false},
		{"http://proxy.example.com", "http://picket.example.com", true},
		{"http://proxy.example.com", "http://127.0.0.1:7070", false},
		{"http://proxy.example.com", "unix:/run/picket/api.sock", false},
		{"http://127.0.0.1:7071", "https://picket.example.com", true},
		{"http://[::1]:7071", "unix:/run/picket/api.sock", true},
		{"http://localhost:7071", "http://localhost:7070", true},
		{"unix:/run/picket/proxy.sock", "https://picket.example.com", true},
		{"http://127.0.0.1.example.com", "https://picket.example.com", false},
		{"ftp://127.0.0.1", "https://picket.example.com", false},
		{"://", "https://picket.example.com", false},
	} {
		if got := AsPrivate(tt.server, tt.first); got != tt.want {
			t.Errorf("%s after %s: %v", tt.server, tt.first, got)
		}
	}
}
