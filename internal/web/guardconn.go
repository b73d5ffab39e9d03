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

// guardedConn is a connection that a [Guard] counts.
type guardedConn struct {
	net.Conn
	guard *Guard

	// The guard's lock protects what follows.
	group        *connGroup
	queue        *connQueues
	groupElement *list.Element
	queueElement *list.Element
	busy         bool // a request is being answered
}

// Close takes the connection out of the guard's books. net/http closes every
// connection that it was given.
func (c *guardedConn) Close() error {
	c.guard.mu.Lock()
	c.guard.untrack(c)
	c.guard.mu.Unlock()
	return c.Conn.Close()
}

// SetReadDeadline shortens the deadline of an idle connection without a
// credential. net/http sets a deadline for the time between two requests.
func (c *guardedConn) SetReadDeadline(t time.Time) error {
	c.guard.mu.Lock()
	short := c.group.id.kind == KindUnknown && !c.busy
	c.guard.mu.Unlock()
	if short && time.Until(t) > headerTimeout {
		t = time.Now().Add(unknownIdle)
	}
	return c.Conn.SetReadDeadline(t)
}

// setState is called when net/http begins or ends a request on a connection.
func (c *guardedConn) setState(state http.ConnState) {
	if state != http.StateActive && state != http.StateIdle {
		return
	}
	g, busy := c.guard, state == http.StateActive
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, there := g.all[c]; !there || c.busy == busy {
		return
	}
	c.group.remove(c.groupElement, c.busy)
	c.queue.remove(c.queueElement, c.busy)
	c.busy = busy
	c.groupElement, c.queueElement = c.group.push(c), c.queue.push(c)
}

// promote counts a connection for a credential from now on. If there is no room
// for it, promote reports false, and why.
func (c *guardedConn) promote(id groupID) (why CloseReason, ok bool) {
	g := c.guard
	g.mu.Lock()
	var victim *guardedConn
	ok = true
	if _, there := g.all[c]; there && c.group.id != id {
		if victim, why, ok = g.victimFor(id, c.group.id.kind); victim != nil {
			g.drop(victim, why)
		}
		if ok {
			g.leave(c)
			g.join(c, g.groupFor(id))
		} else {
			g.closed[why]++
			g.warn("credential", "a request was refused, because its credential has no connection left", "kind",
				string(id.kind), "who", id.who, "limit", g.limitOf(id.kind), "reason", string(why))
		}
	}
	g.mu.Unlock()
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return why, ok
}

// victimFor finds the connection that has to go for one more of a credential,
// if one has to. The guard is locked.
func (g *Guard) victimFor(id groupID, was Kind) (victim *guardedConn, why CloseReason, ok bool) {
	have := 0
	if in := g.groups[id]; in != nil {
		if have = in.len(); have >= in.limit {
			victim = in.oldestIdle()
			return victim, ClosedCredential, victim != nil
		}
	}
	if was != KindUnknown || g.known.len() < g.limits.known() {
		return nil, "", true
	}
	if victim = g.known.oldestIdle(); victim == nil {
		victim = g.oldestOfLargest(have + 1)
	}
	return victim, ClosedFull, victim != nil
}

// oldestOfLargest is the oldest connection of the credential that uses most, if it
// uses more than so many. It looks at every credential, so it is called only
// if connections with one are all at work, and there is no room for more.
func (g *Guard) oldestOfLargest(than int) *guardedConn {
	var largest *connGroup
	for _, in := range g.groups {
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

// guardedConnOf finds the counted connection below TLS; nil without a guard.
func guardedConnOf(c net.Conn) *guardedConn {
	if secured, ok := c.(*tls.Conn); ok {
		c = secured.NetConn()
	}
	g, _ := c.(*guardedConn)
	return g
}

func withConn(ctx context.Context, c net.Conn) context.Context {
	if g := guardedConnOf(c); g != nil {
		return context.WithValue(ctx, connKey{}, g)
	}
	return ctx
}

// MarkAuthenticated tells the guard that a valid credential was shown on the connection of
// a request. who names the credential, such as the id of a key, and may appear in logs.
// The request is refused with quota_exceeded if the credential uses too many connections
// at once, and with unavailable if all connections are at work and no other credential
// uses more of them. Without a guard it does nothing.
func MarkAuthenticated(c echo.Context, kind Kind, who string) error {
	conn, _ := c.Request().Context().Value(connKey{}).(*guardedConn)
	if conn == nil {
		return nil
	}
	why, ok := conn.promote(groupID{kind, who})
	if ok {
		return nil
	}
	c.Response().Header().Set("Connection", "close")
	var refusal *picket.Error
	if why == ClosedFull {
		refusal = picket.Refuse(picket.CodeUnavailable, "Send the same request again in a moment.",
			"all connections of this server are at work")
	} else {
		most := conn.guard.limitOf(kind)
		refusal = picket.Refuse(picket.CodeQuota,
			"Close connections that you do not need, or wait until running requests are answered.",
			"the credential uses all of its %d connections to this server", most).With("quota", "connections").
			With("limit", most)
	}
	refusal.RetryAfter = time.Second
	return refusal
}

// connQueues keep connections in order: those that wait for a request, and those
// with a request under way. The oldest stands in front.
type connQueues struct {
	idle   list.List
	atWork list.List
}

func (q *connQueues) of(busy bool) *list.List {
	if busy {
		return &q.atWork
	}
	return &q.idle
}

func (q *connQueues) push(c *guardedConn) *list.Element { return q.of(c.busy).PushBack(c) }
func (q *connQueues) remove(e *list.Element, busy bool) { q.of(busy).Remove(e) }
func (q *connQueues) len() int                          { return q.idle.Len() + q.atWork.Len() }

func (q *connQueues) oldestIdle() *guardedConn { return front(&q.idle) }

// oldest prefers those that are idle.
func (q *connQueues) oldest() *guardedConn {
	if c := front(&q.idle); c != nil {
		return c
	}
	return front(&q.atWork)
}

func front(l *list.List) *guardedConn {
	if e := l.Front(); e != nil {
		return e.Value.(*guardedConn)
	}
	return nil
}
