package web

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"
)

// Limits bound the connections of a [Guard].
type Limits struct {
	// Connections bounds all connections together.
	Connections int
	// Unknown bounds the connections that have not shown a credential yet. The
	// rest of Connections is reserved for those that have shown one.
	Unknown int
	// UnknownPerAddress bounds the same for one remote address, or for one /64
	// network of IPv6.
	UnknownPerAddress int
	// PerKey bounds the connections that one API key or one login uses at once.
	PerKey int
	// PerLease bounds the connections that one lease uses at once.
	PerLease int
}

// LimitsFor computes limits for a process with this many descriptors.
// A quarter of the descriptors, 1024 at most, is left for the store, files and
// calls to other servers. A bound of 0 gets its default.
func LimitsFor(descriptors int, wanted Limits) Limits {
	most := max(descriptors-min(max(descriptors/4, 16), 1024), 8)
	l := Limits{Connections: capped(wanted.Connections, most, most)}
	l.Unknown = capped(wanted.Unknown, 4096, l.Connections/2)
	l.UnknownPerAddress = capped(wanted.UnknownPerAddress, 1024, l.Unknown*3/4)
	l.PerKey = capped(wanted.PerKey, l.Connections, l.Connections/2)
	l.PerLease = capped(wanted.PerLease, 256, l.Connections/4)
	return l
}

// known bounds the connections that have shown a credential. An eighth is left
// for new ones, on which one can then be shown.
func (l Limits) known() int { return max(1, l.Connections-max(1, l.Connections/8)) }

// capped is the wanted number, or the default for 0, but never more than most.
func capped(wanted, usual, most int) int {
	if wanted <= 0 {
		wanted = usual
	}
	return max(1, min(wanted, most))
}

// Kind says who uses a connection.
type Kind string

// The kinds of connections.
const (
	KindUnknown Kind = "unknown" // no valid credential was shown on it yet
	KindKey     Kind = "key"     // an API key
	KindLease   Kind = "lease"   // a lease token
	KindLogin   Kind = "login"   // a login at the console
)

// Kinds lists all kinds.
var Kinds = []Kind{KindUnknown, KindKey, KindLease, KindLogin}

// CloseReason is the reason why a guard closed a connection early.
type CloseReason string

// The reasons.
const (
	ClosedAddress    CloseReason = "address_full"    // its address had too many without a credential
	ClosedUnknown    CloseReason = "unknown_full"    // too many without a credential
	ClosedFull       CloseReason = "full"            // too many in all
	ClosedCredential CloseReason = "credential_full" // its credential used too many
	ClosedNoFiles    CloseReason = "descriptors"     // the process had no descriptor left
)

// CloseReasons lists all reasons.
var CloseReasons = []CloseReason{ClosedAddress, ClosedUnknown, ClosedFull, ClosedCredential, ClosedNoFiles}

// ConnectionCounts is what a guard has counted.
type ConnectionCounts struct {
	Open         map[Kind]int
	Closed       map[CloseReason]int64
	AcceptErrors int64
	Limits       Limits
}

// A Guard bounds the connections of a listener. If there is no room for a new
// connection, it closes the connection without a credential that has been idle
// longest. So a client without a credential cannot keep others out. If all
// connections with a credential are at work, a credential that uses fewer than
// another can take one of the other's.
type Guard struct {
	limits Limits
	log    *slog.Logger

	mu      sync.Mutex
	all     map[*guardedConn]struct{}
	unknown connQueues             // of connections without a credential
	known   connQueues             // of the others
	groups  map[groupID]*connGroup // connections by address or credential
	open    map[Kind]int
	closed  map[CloseReason]int64
	failed  int64 // calls of Accept
	warned  map[string]*warning
}

// groupID names the user of some connections: an address or a credential.
type groupID struct {
	kind Kind
	who  string
}

// connGroup is the connections of one address or credential.
type connGroup struct {
	connQueues
	id    groupID
	limit int
}

// NewGuard makes a guard. A nil log discards.
func NewGuard(limits Limits, log *slog.Logger) *Guard {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Guard{limits: limits, log: log, all: map[*guardedConn]struct{}{}, groups: map[groupID]*connGroup{},
		open: map[Kind]int{}, closed: map[CloseReason]int64{}, warned: map[string]*warning{}}
}

// Counts is what the guard has counted so far. A nil guard has counted nothing.
func (g *Guard) Counts() ConnectionCounts {
	c := ConnectionCounts{Open: map[Kind]int{}, Closed: map[CloseReason]int64{}}
	if g == nil {
		return c
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	maps.Copy(c.Open, g.open)
	maps.Copy(c.Closed, g.closed)
	c.AcceptErrors, c.Limits = g.failed, g.limits
	return c
}

// groupFor finds or makes a group.
func (g *Guard) groupFor(id groupID) *connGroup {
	found := g.groups[id]
	if found == nil {
		found = &connGroup{id: id, limit: g.limitOf(id.kind)}
		g.groups[id] = found
	}
	return found
}

func (g *Guard) limitOf(kind Kind) int {
	switch kind {
	case KindUnknown:
		return g.limits.UnknownPerAddress
	case KindLease:
		return g.limits.PerLease
	default:
		return g.limits.PerKey
	}
}

// join puts a connection into a group. The guard is locked.
func (g *Guard) join(c *guardedConn, in *connGroup) {
	c.group, c.queue = in, &g.known
	if in.id.kind == KindUnknown {
		c.queue = &g.unknown
	}
	c.groupElement, c.queueElement = in.push(c), c.queue.push(c)
	g.open[in.id.kind]++
}

// leave takes a connection out of its group. The guard is locked.
func (g *Guard) leave(c *guardedConn) {
	c.group.remove(c.groupElement, c.busy)
	c.queue.remove(c.queueElement, c.busy)
	g.open[c.group.id.kind]--
	if c.group.len() == 0 {
		delete(g.groups, c.group.id)
	}
}

// drop chooses a connection to be closed. The caller closes it once the guard
// is unlocked.
func (g *Guard) drop(c *guardedConn, why CloseReason) *guardedConn {
	g.untrack(c)
	g.closed[why]++
	g.warn(string(why), "a connection was closed to make room", "reason", string(why), "kind", string(c.group.id.kind))
	return c
}

func (g *Guard) untrack(c *guardedConn) {
	if _, there := g.all[c]; there {
		delete(g.all, c)
		g.leave(c)
	}
}

// warnEvery is the minimum time between two warnings of the same kind.
const warnEvery = 10 * time.Second

// warning counts what was not logged since the last time.
type warning struct {
	last    time.Time
	skipped int
}

// warn logs the first of many similar events, and later how many were not logged.
// The guard is locked.
func (g *Guard) warn(about, message string, args ...any) {
	w := g.warned[about]
	if w == nil {
		w = &warning{}
		g.warned[about] = w
	}
	if now := time.Now(); w.last.IsZero() || now.Sub(w.last) >= warnEvery {
		g.log.Warn(message, append(args, "more_since_last_warning", w.skipped, "open", len(g.all),
			"without_credential", g.unknown.len())...)
		w.last, w.skipped = now, 0
		return
	}
	w.skipped++
}

// addressOf is who a connection without a credential is counted for.
func addressOf(c net.Conn) string {
	return cmp.Or(Network(c.RemoteAddr().String()), c.RemoteAddr().Network())
}
