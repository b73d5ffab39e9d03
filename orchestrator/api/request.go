package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

// request is one authenticated request: engine is that of the key's namespace.
type request struct {
	echo.Context
	engine *orchestrator.Engine
	who    picket.Principal
	// agentEndpoint is Config.AgentEndpoint.
	agentEndpoint func(namespace string, a picket.Agent) string
}

const idempotencyHeader = "Idempotency-Key"

// caller names the principal who asks for a change. With an Idempotency-Key a
// repeated request has its effect once; raw is the body that is compared.
func (r request) caller(raw []byte) (picket.Caller, error) {
	by := picket.Caller{Actor: r.owner(), Key: r.who.KeyID, Operator: r.who.May(picket.ScopeOperator)}
	sent := r.Request().Header.Values(idempotencyHeader)
	if len(sent) == 0 {
		return by, nil
	}
	if len(sent) > 1 || !printable(sent[0]) {
		return by, picket.Invalid(idempotencyHeader,
			"Send one Idempotency-Key of 1 to 255 printable ASCII characters, such as a UUID.",
			"the Idempotency-Key is not acceptable")
	}
	by.Idempotency = r.idempotency(r.Request().URL.Path, sent[0], raw)
	return by, nil
}

// idempotency is that of a request to a path with a key and a body.
func (r request) idempotency(path, key string, raw []byte) picket.Idempotency {
	return picket.Idempotency{
		Key:  digest(r.who.KeyID, r.Request().Method, path, key),
		Body: digest(string(raw)),
	}
}

// owner is the key to which belongs what the caller registers. Registrations made with a run
// key belong to its parent key, so that the next adapter can act for the agent after a crash.
func (r request) owner() string { return cmp.Or(r.who.Parent, r.who.KeyID) }

func printable(s string) bool {
	return len(s) >= 1 && len(s) <= 255 && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// digest is the hex SHA-256 of the parts, kept apart by NUL.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// id is the id in the path, which must be one of the kind. An agent has the id that
// the server made for it, or one that a client chose.
func (r request) id(kind string) (string, error) {
	name := r.ParamNames()[0]
	id := r.Param(name)
	if kind == "agent" {
		return id, picket.CheckName(name, id)
	}
	return id, picket.CheckID(name, kind, id)
}

// change is a request for a change: the id in its path, its strictly decoded body and
// the caller.
type change[Body any] struct {
	request
	id   string
	body Body
	by   picket.Caller
}

// decodeChange reads a change of something of the kind. Without a kind the path has no
// id. A body with a method check is checked.
func decodeChange[Body any](r request, kind string) (c change[Body], err error) {
	c.request = r
	if err = r.noQuery(); err != nil {
		return c, err
	}
	if kind != "" {
		if c.id, err = r.id(kind); err != nil {
			return c, err
		}
	}
	var raw []byte
	if c.body, raw, err = web.Decode[Body](r.Context, maxBody); err != nil {
		return c, err
	}
	if c.by, err = r.caller(raw); err != nil {
		return c, err
	}
	if body, ok := any(c.body).(interface{ check() error }); ok {
		err = body.check()
	}
	return c, err
}

// handler answers a request.
type handler func(request) error

// changes is the handler of a change, which answers what do returns.
func changes[Body, Answer any](kind string, do func(change[Body]) (Answer, error)) handler {
	return func(r request) error {
		c, err := decodeChange[Body](r, kind)
		if err != nil {
			return err
		}
		answer, err := do(c)
		return r.respond(answer, err)
	}
}

// changesWithReason is the handler of a change that takes nothing but a reason.
func changesWithReason[Answer any](kind string,
	do func(e *orchestrator.Engine, ctx context.Context, by picket.Caller, id, reason string) (Answer, error)) handler {
	return changes(kind, func(c change[reasonBody]) (Answer, error) {
		return do(c.engine, c.ctx(), c.by, c.id, c.body.Reason)
	})
}

// creates is the handler of a request that makes something below path. It answers 201
// for a repeated request, too: what it answers is what the first one made.
func creates[Body, Made any](path string, do func(change[Body]) (id string, made Made, err error)) handler {
	return func(r request) error {
		c, err := decodeChange[Body](r, "")
		if err != nil {
			return err
		}
		id, made, err := do(c)
		if err != nil {
			return err
		}
		r.Response().Header().Set(echo.HeaderLocation, path+"/"+id)
		return web.JSON(r.Context, http.StatusCreated, made)
	}
}

// reads is the handler that answers what is there under the id in the path.
func reads[Found any](kind string,
	read func(e *orchestrator.Engine, ctx context.Context, id string) (Found, error)) handler {
	return func(r request) error {
		if err := r.noQuery(); err != nil {
			return err
		}
		id, err := r.id(kind)
		if err != nil {
			return err
		}
		found, err := read(r.engine, r.ctx(), id)
		return r.respond(found, err)
	}
}

// readsAll is the handler that answers all there is of something, as a member of an object.
func readsAll[Row any](member string, read func(e *orchestrator.Engine, ctx context.Context) ([]Row, error)) handler {
	return func(r request) error {
		if err := r.noQuery(); err != nil {
			return err
		}
		all, err := read(r.engine, r.ctx())
		return r.respond(map[string][]Row{member: all}, err)
	}
}

// readsPage is the handler that answers a page of what the parameters ask for.
func readsPage[Query, Page any](ask func(request) (Query, error),
	read func(e *orchestrator.Engine, ctx context.Context, q Query) (Page, error)) handler {
	return func(r request) error {
		want, err := ask(r)
		if err != nil {
			return err
		}
		page, err := read(r.engine, r.ctx(), want)
		return r.respond(page, asParameter(err))
	}
}

// maxReason bounds reasons, in bytes: they go into events.
const maxReason = 4096

// checkNote bounds what a reviewer writes: the agent that repairs the result
// reads all of it.
func checkNote(text string) error { return checkLength("/note", text, picket.MaxNote) }

func checkLength(field, text string, most int) error {
	if len(text) > most {
		return picket.Invalid(field, "Write less. Put details into the task.",
			"%s has %d bytes, and at most %d are allowed", field, len(text), most)
	}
	return nil
}

// reasonBody is the body of the changes that take nothing but a reason.
type reasonBody struct {
	Reason string `json:"reason"`
}

func (b reasonBody) check() error { return checkLength("/reason", b.Reason, maxReason) }

// waitContext is the context of a request that waits: it also ends when the server
// begins to stop, and when the key is revoked.
func (r request) waitContext() (ctx context.Context, done func()) {
	ctx, end := web.WaitContext(r.Context)
	if r.who.KeyID == "" {
		return ctx, end
	}
	held, stop := r.engine.KeyContext(ctx, r.who.KeyID)
	return held, func() { stop(); end() }
}

// revokedError is the refusal of a request whose key was revoked while it waited.
func revokedError(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, picket.CodeUnauthenticated) {
		return cause
	}
	return nil
}

// ctx is the context of the request; it ends when the client goes away.
func (r request) ctx() context.Context { return r.Request().Context() }

// respond sends what a change or a read returned.
func (r request) respond(v any, err error) error {
	if err != nil {
		return err
	}
	return web.JSON(r.Context, http.StatusOK, v)
}
