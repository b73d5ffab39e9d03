package api

import (
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// sendsMessage is the handler of a message to a task or an agent, whose kind is named. The sender is
// the holder of the key.
func sendsMessage(kind string) handler {
	return func(r request) error {
		c, err := decodeChange[picket.MessageRequest](r, kind)
		if err != nil {
			return err
		}
		c.by.Key = r.who.KeyID
		sent, err := c.engine.Tell(c.ctx(), c.by, c.id, c.body)
		if err != nil {
			return err
		}
		return web.JSON(r.Context, http.StatusCreated, sent)
	}
}

// listsMessages is the handler that answers a page of the conversation of a task or an agent.
func listsMessages(kind string) handler {
	return func(r request) error {
		id, err := r.id(kind)
		if err != nil {
			return err
		}
		q := r.query("before", "limit")
		want := picket.MessageQuery{Before: q.number("before", 0, 1, picket.MaxNumber),
			Limit: int(q.number("limit", 50, 1, 100))}
		if q.err != nil {
			return q.err
		}
		by := picket.Caller{Actor: r.owner(), Key: r.who.KeyID, Operator: r.who.May(picket.ScopeOperator)}
		page, err := r.engine.Messages(r.ctx(), by, id, want)
		return r.respond(page, asParameter(err))
	}
}
