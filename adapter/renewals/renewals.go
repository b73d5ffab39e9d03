// Package renewals renews the leases of one process together. When a lease is due, those of the same server that
// are due soon are renewed in the same request, earlier than they would have been. No lease waits for another one.
//
// Every lease keeps its own rules: when it is due, how long an attempt may take, and what follows an error. A lease
// whose renewal has failed is renewed alone until it succeeds.
package renewals

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// Config says how a [Group] renews.
type Config struct {
	// Clock reads the clock that leases are counted on. Required.
	Clock func() time.Duration
	// Send renews several leases at a server in one request, and answers for each in order. Required.
	Send func(ctx context.Context, server string, leases []picket.LeaseToRenew) ([]client.Renewed, error)
	// Log is told when a server cannot renew together. Required.
	Log *slog.Logger
}

// Group is the leases of a process.
type Group struct {
	cfg     Config
	mu      sync.Mutex
	members map[*Member]bool
	servers map[string]*serverState
}

// serverState is what became of the last requests to a server.
type serverState struct {
	failures    int           // requests that failed, since the last success
	pausedUntil time.Duration // until then, leases are renewed alone
}

// Pauses after a request that failed as a whole.
const (
	leastPause = 30 * time.Second
	mostPause  = 10 * time.Minute // also after a server of a version without the route
)

// leastTimeout is the shortest attempt that may be made together. A lease with less time is renewed alone, because
// a request for many leases may take longer than one for one.
const leastTimeout = 250 * time.Millisecond

// New makes a group without members.
func New(cfg Config) *Group {
	return &Group{cfg: cfg, members: map[*Member]bool{}, servers: map[string]*serverState{}}
}

// Lease is a lease that can be renewed.
type Lease struct {
	// Server is the URL of the server that renews the lease. If it is empty, the lease is always renewed alone.
	Server string
	// Credential names the lease in a request for several.
	Credential picket.LeaseToRenew
	// Alone renews the lease in a request of its own. Required.
	Alone func(ctx context.Context) (picket.Renewal, error)
}

// Member is a lease in a group. Its methods are called by one goroutine, the keeper of the lease.
type Member struct {
	group  *Group
	lease  Lease
	wake   chan struct{} // has room for one: the lease is being renewed with others
	timing Timing        // valid while the lease is in the members of the group
	begun  *Attempt      // by another member; the keeper does not have it yet
	alone  bool          // the server does not renew it together with others
}

// Timing says when a lease that waits may be renewed.
type Timing struct {
	From time.Duration // not before
	// Timeout bounds an attempt that begins at a time. It is called by several goroutines.
	Timeout func(now time.Duration) time.Duration
}

// Never is a From that never comes.
const Never = time.Duration(math.MaxInt64)

// Attempt is a renewal under way.
type Attempt struct {
	Done  <-chan Result // gets one result, unless the attempt is aborted
	done  chan Result
	ctx   context.Context
	Abort context.CancelFunc
}

// Result is how an attempt went.
type Result struct {
	Sent    time.Duration // when the request was sent, on the clock
	Renewal picket.Renewal
	Err     error
}

// Member makes a member of a lease. It takes part from its first Wait until Leave.
func (g *Group) Member(l Lease) *Member {
	return &Member{group: g, lease: l, alone: l.Server == "", wake: make(chan struct{}, 1)}
}

// Begun gets a signal when another member has begun to renew this lease. Call Wait or Start then.
func (m *Member) Begun() <-chan struct{} { return m.wake }

// Wait lets other members take this one along, as its timing allows. If one has begun to, Wait returns that attempt.
func (m *Member) Wait(t Timing) *Attempt {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	if a := m.takeBegun(); a != nil {
		return a
	}
	m.timing = t
	m.group.members[m] = true
	return nil
}

// Start renews the lease now, and with it, if together is set, the others of its server that may be renewed. If
// another member has begun to renew it already, Start returns that attempt.
func (m *Member) Start(t Timing, together bool) *Attempt {
	g := m.group
	now := g.cfg.Clock()
	g.mu.Lock()
	defer g.mu.Unlock()
	if a := m.takeBegun(); a != nil {
		return a
	}
	delete(g.members, m)
	m.timing = t
	b := &batch{group: g, timeout: t.Timeout(now)}
	own := b.add(m)
	if together && g.mayBatch(m, now) && b.timeout >= leastTimeout {
		g.collect(b, m, now)
	}
	go b.run()
	return own
}

// Leave ends the part that the lease takes, until the next Wait or Start. An attempt that the keeper does not have
// yet is aborted.
func (m *Member) Leave() {
	m.group.mu.Lock()
	defer m.group.mu.Unlock()
	delete(m.group.members, m)
	if a := m.takeBegun(); a != nil {
		a.Abort()
	}
}

func (m *Member) takeBegun() *Attempt {
	a := m.begun
	m.begun = nil
	return a
}

// mayBatch reports whether a lease can be renewed with others now.
func (g *Group) mayBatch(m *Member, now time.Duration) bool {
	s := g.servers[m.lease.Server]
	return !m.alone && (s == nil || now >= s.pausedUntil)
}

// collect adds the leases that are renewed together with first: those that may be, the next to be due first.
func (g *Group) collect(b *batch, first *Member, now time.Duration) {
	var others []*Member
	for m := range g.members {
		if !m.alone && m.lease.Server == first.lease.Server && m.timing.From <= now &&
			m.timing.Timeout(now) >= leastTimeout {
			others = append(others, m)
		}
	}
	slices.SortFunc(others, func(x, y *Member) int { return cmp.Compare(x.timing.From, y.timing.From) })
	for _, m := range others[:min(len(others), picket.MaxRenewals-1)] {
		delete(g.members, m)
		b.timeout = min(b.timeout, m.timing.Timeout(now)) // the request ends in time for each of them
		m.begun = b.add(m)
		select {
		case m.wake <- struct{}{}:
		default: // a signal waits there already
		}
	}
}

// recordRequest takes note of a request for several leases.
func (g *Group) recordRequest(server string, err error) {
	if pause := g.pauseAfter(server, err); pause > 0 { // not under the lock: a log may block
		g.cfg.Log.Info("leases are renewed one by one for a while", "server", server, "for", pause, "err", err)
	}
}

// pauseAfter sets the pause of a server after a request, 0 after a success.
func (g *Group) pauseAfter(server string, err error) (pause time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.servers[server]
	if s == nil {
		s = &serverState{}
		g.servers[server] = s
	}
	if err == nil {
		*s = serverState{}
		return 0
	}
	pause = mostPause
	if isRetryable(err) {
		pause = min(leastPause<<min(s.failures, 10), mostPause)
	}
	s.failures++
	s.pausedUntil = g.cfg.Clock() + pause
	return pause
}

// isRetryable reports whether the same request may succeed later.
func isRetryable(err error) bool {
	return errors.Is(err, picket.ErrUnknown) || picket.CodeOf(err).Retryable()
}
