package api

import (
	"slices"
	"strconv"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/sse"
	"github.com/picket-dev/picket/internal/web"
)

const (
	maxCursor   = 1 << 53
	maxTypes    = 64
	lastEventID = "Last-Event-ID"
)

// events answers a page, or a stream to a client that accepts one.
func (a *API) events(r request) error {
	q, want, err := r.eventQuery()
	if err != nil {
		return err
	}
	r.Response().Header().Add(echo.HeaderVary, echo.HeaderAccept)
	if !web.Accepts(r.Request(), sse.ContentType) {
		page, err := r.engine.Events(r.ctx(), want)
		return r.respond(page, err)
	}
	// The engine remembers a valid key for some seconds and is notified of a revocation.
	return a.stream(r, q, want, func() error {
		_, _, err := a.authenticate(r.Request())
		return err
	})
}

// audit answers a page of the audit log.
func audit(r request) error {
	_, want, err := r.eventQuery()
	if err != nil {
		return err
	}
	want.Audit = true
	page, err := r.engine.Events(r.ctx(), want)
	return r.respond(page, err)
}

// eventQuery is which events are asked for.
func (r request) eventQuery() (q *query, want picket.EventQuery, err error) {
	q = r.query("after", "type", "task", "agent", "limit")
	want = picket.EventQuery{
		After:  q.number("after", 0, 0, maxCursor),
		TaskID: q.id("task", "task"),
		Agent:  q.name("agent"),
		Types:  q.list("type"),
	}
	if len(want.Types) > maxTypes {
		q.fail(web.BadParameter("type", "Ask for fewer types.", "type has %d values, at most %d are allowed",
			len(want.Types), maxTypes))
	}
	for _, t := range want.Types {
		if !slices.Contains(picket.EventTypes, t) {
			q.fail(web.BadParameter("type", "Send types of events such as task.leased; docs/protocol.md lists them.",
				"%.64q is not an event type", t))
		}
	}
	want.Limit = int(q.number("limit", 100, 1, 1000))
	return q, want, q.err
}

// startCursor is where a stream begins: after the event the client saw last, after
// the cursor it names, or now.
func (r request) startCursor(q *query, want picket.EventQuery) (int64, error) {
	if id := r.Request().Header.Get(lastEventID); id != "" {
		seq, err := strconv.ParseInt(id, 10, 64)
		if err != nil || seq < 0 || seq > maxCursor {
			return 0, picket.Invalid(lastEventID, "Send the id of the last event read.",
				"the Last-Event-ID is not a cursor")
		}
		return seq, nil
	}
	if q.values.Has("after") {
		return want.After, nil
	}
	return r.engine.LastSeq(r.ctx())
}
