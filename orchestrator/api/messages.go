package api

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// checkNoTask refuses the id of a task on a route of agents. The scopes of that route do not allow the
// messages of tasks.
func checkNoTask(kind, id string) error {
	if kind == "agent" && strings.HasPrefix(id, "task_") {
		return picket.Refuse(picket.CodeNotFound, "Send the id of an agent.", "there is no such agent")
	}
	return nil
}

// sendsMessage is the handler of a message to a task or an agent, whose kind is named. The sender is
// the holder of the key.
func sendsMessage(kind string) handler {
	return func(r request) error {
		c, err := decodeChange[picket.MessageRequest](r, kind)
		if err = cmp.Or(err, checkNoTask(kind, c.id)); err != nil {
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
		if err = cmp.Or(err, checkNoTask(kind, id)); err != nil {
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
