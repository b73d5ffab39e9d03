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
}

const idempotencyHeader = "Idempotency-Key"

// caller names the principal who asks for a change. With an Idempotency-Key a
// repeated request has its effect once; raw is the body that is compared.
func (r request) caller(raw []byte) (picket.Caller, error) {
	// Registrations made with a run key belong to its parent key, so that the next
	// adapter can act for the agent after a crash.
	actor := cmp.Or(r.who.Parent, r.who.KeyID)
	by := picket.Caller{Actor: actor, Key: r.who.KeyID, Operator: r.who.May(picket.ScopeOperator)}
	sent := r.Request().Header.Values(idempotencyHeader)
	if len(sent) == 0 {
		return by, nil
	}
	if len(sent) > 1 || !printable(sent[0]) {
		return by, picket.Invalid(idempotencyHeader,
			"Send one Idempotency-Key of 1 to 255 printable ASCII characters, such as a UUID.",
			"the Idempotency-Key is not acceptable")
	}
	by.Idempotency = picket.Idempotency{
		Key:  digest(r.who.KeyID, r.Request().Method, r.Request().URL.Path, sent[0]),
		Body: digest(string(raw)),
	}
	return by, nil
}

func printable(s string) bool {
	return len(s) >= 1 && len(s) <= 255 && !strings.ContainsFunc(s, func(c rune) bool { return c < ' ' || c > '~' })
}

// digest is the hex SHA-256 of the parts, kept apart by NUL.
func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])
}

// id reads the path parameter name, which must be an id of the kind.
func (r request) id(name, kind string) (string, error) {
	id := r.Param(name)
	return id, picket.CheckID(name, kind, id)
}

// decodeMutation is what every change starts with: the id in the path, the strictly
// decoded body and the caller.
func decodeMutation[T any](r request, param, kind string) (id string, body T, by picket.Caller, err error) {
	if err = r.noQuery(); err != nil {
		return
	}
	if param != "" {
		if id, err = r.id(param, kind); err != nil {
			return
		}
	}
	var raw []byte
	if body, raw, err = web.Decode[T](r.Context, maxBody); err != nil {
		return
	}
	by, err = r.caller(raw)
	return
}

// answerOne answers what read finds for the id in the path.
func answerOne[T any](r request, param, kind string, read func(ctx context.Context, id string) (T, error)) error {
	if err := r.noQuery(); err != nil {
		return err
	}
	id, err := r.id(param, kind)
	if err != nil {
		return err
	}
	found, err := read(r.ctx(), id)
	return r.respond(found, err)
}

// changeTask makes a change that takes nothing but a reason, and answers the task.
func changeTask(r request, param, kind string,
	change func(ctx context.Context, by picket.Caller, id, reason string) (picket.Task, error)) error {
	id, body, by, err := decodeMutation[reasonBody](r, param, kind)
	if err == nil {
		err = body.check()
	}
	if err != nil {
		return err
	}
	task, err := change(r.ctx(), by, id, body.Reason)
	return r.respond(task, err)
}

// maxReason bounds reasons, in bytes: they go into events.
const maxReason = 4096

func checkReason(field, text string) error { return checkLength(field, text, maxReason) }

// checkNote bounds what a reviewer writes: the agent that repairs the result
// reads all of it.
func checkNote(field, text string) error { return checkLength(field, text, picket.MaxNote) }

func checkLength(field, text string, most int) error {
	if len(text) > most {
		return picket.Invalid(field, "Write less. Put details into the task.",
			"%s has %d bytes, and at most %d are allowed", field, len(text), most)
	}
	return nil
}

func checkPayload(field string, raw picket.RawJSON) error {
	if len(raw) > picket.MaxPayload {
		return picket.TooLarge(field, len(raw))
	}
	return nil
}

// reasonBody is the body of the changes that take nothing but a reason.
type reasonBody struct {
	Reason string `json:"reason"`
}

func (b reasonBody) check() error { return checkReason("/reason", b.Reason) }

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
