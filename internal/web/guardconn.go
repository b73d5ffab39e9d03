package web

import (
	"container/list"
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// unknownIdle is how long a connection without a credential may be idle between
// two requests.
const unknownIdle = 5 * time.Second

// guarded is a connection that a [Guard] counts.
type guarded struct {
	net.Conn
	guard *Guard

	// The guard's lock protects what follows.
	crowd   *crowd
	pool    *queues
	inCrowd *list.Element
	inPool  *list.Element
	busy    bool // a request is being answered
}

// Close takes the connection out of the guard's books. net/http closes every
// connection that it was given.
func (c *guarded) Close() error {
	c.guard.mu.Lock()
	c.guard.forget(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// SetReadDeadline shortens the deadline of an idle connection without a
// credential. net/http sets a deadline for the time between two requests.
func (c *guarded) SetReadDeadline(t time.Time) error {
	c.guard.mu.Lock()
	short := c.crowd.id.kind == KindUnknown && !c.busy
	c.guard.mu.Unlock()
	if short && time.Until(t) > headerTimeout {
		t = time.Now().Add(unknownIdle)
	}
	return c.Conn.SetReadDeadline(t)
}

// note is called when net/http begins or ends a request on a connection.
func (c *guarded) note(state http.ConnState) {
	if state != http.StateActive && state != http.StateIdle {
		return
	}
	g, busy := c.guard, state == http.StateActive
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, there := g.all[c]; !there || c.busy == busy {
		return
	}
	c.crowd.remove(c.inCrowd, c.busy)
	c.pool.remove(c.inPool, c.busy)
	c.busy = busy
	c.inCrowd, c.inPool = c.crowd.push(c), c.pool.push(c)
}

// promote counts a connection for a credential from now on. If there is no room
// for it, promote reports false, and why.
func (c *guarded) promote(id crowdID) (why Closed, ok bool) {
	g := c.guard
	g.mu.Lock()
	var victim *guarded
	ok = true
	if _, there := g.all[c]; there && c.crowd.id != id {
		if victim, why, ok = g.makeRoomFor(id, c.crowd.id.kind); victim != nil {
			g.drop(victim, why)
		}
		if ok {
			g.leave(c)
			g.enter(c, g.crowdOf(id))
		} else {
			g.closed[why]++
			g.warn("credential", "a request was refused, because its credential has no connection left", "kind",
				string(id.kind), "who", id.who,
				"limit", g.most(id.kind), "reason", string(why))
		}
	}
	g.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return why, ok
}

// makeRoomFor finds the connection that has to go for one more of a credential,
// if one has to. The guard is locked.
func (g *Guard) makeRoomFor(id crowdID, was Kind) (victim *guarded, why Closed, ok bool) {
	have := 0
	if in := g.crowds[id]; in != nil {
		if have = in.len(); have >= in.most {
			victim = in.oldestIdle()
			return victim, ClosedCredential, victim != nil
		}
	}
	if was != KindUnknown || g.known.len() < g.limits.known() {
		return nil, "", true
	}
	if victim = g.known.oldestIdle(); victim == nil {
		victim = g.ofLargest(have + 1)
	}
	return victim, ClosedFull, victim != nil
}

// ofLargest is the oldest connection of the credential that uses most, if it
// uses more than so many. It looks at every credential, so it is called only
// if connections with one are all at work, and there is no room for more.
func (g *Guard) ofLargest(than int) *guarded {
	var largest *crowd
	for _, in := range g.crowds {
		if in.id.kind != KindUnknown && in.len() > than {
			largest, than = in, in.len()
		}
	}
	if largest == nil {
		return nil
	}
	return largest.oldest()
}

type connKey struct{}

// guardedOf finds the counted connection below TLS; nil without a guard.
func guardedOf(c net.Conn) *guarded {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	g, _ := c.(*guarded)
	return g
}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if g := guardedOf(c); g != nil {
		return context.WithValue(ctx, connKey{}, g)
	}
	return ctx
}

// Known tells the guard that a valid credential was shown on the connection of
// a request. Who names the credential, such as the id of a key; it may appear
// in logs. A credential that uses too many connections at once is refused. If
// all connections with a credential are at work, one that no other credential
// outnumbers is refused, too.
func Known(c echo.Context, kind Kind, who string) error {
	conn, _ := c.Request().Context().Value(connKey{}).(*guarded)
	if conn == nil {
		return nil
	}
	why, ok := conn.promote(crowdID{kind, who})
	if ok {
		return nil
	}
	c.Response().Header().Set("Connection", "close")
	var refusal *picket.Error
	if why == ClosedFull {
		refusal = picket.Refuse(picket.CodeUnavailable, "Send the same request again in a moment.",
			"all connections of this server are at work")
	} else {
		most := conn.guard.most(kind)
		refusal = picket.Refuse(picket.CodeQuota,
			"Close connections that you do not need, or wait until running requests are answered.",
			"the credential uses all of its %d connections to this server", most).With("quota", "connections").
			With("limit", most)
	}
	refusal.RetryAfter = time.Second
	return refusal
}

// queues keep connections in order: those that wait for a request, and those
// with a request under way. The oldest stands in front.
type queues struct {
	idle   list.List
	atWork list.List
}

func (q *queues) of(busy bool) *list.List {
	if busy {
		return &q.atWork
	}
	return &q.idle
}

func (q *queues) push(c *guarded) *list.Element     { return q.of(c.busy).PushBack(c) }
func (q *queues) remove(e *list.Element, busy bool) { q.of(busy).Remove(e) }
func (q *queues) len() int                          { return q.idle.Len() + q.atWork.Len() }

func (q *queues) oldestIdle() *guarded { return front(&q.idle) }

// oldest prefers those that are idle.
func (q *queues) oldest() *guarded {
	if c := front(&q.idle); c != nil {
		return c
	}
	return front(&q.atWork)
}

func front(l *list.List) *guarded {
	if e := l.Front(); e != nil {
		return e.Value.(*guarded)
	}
	return nil
}
