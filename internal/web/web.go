// Package web is what every HTTP face of Picket shares: one strict JSON
// decoder, one JSON encoder, one error handler and one server. A handler
// returns an error; what the client sees is decided here and nowhere else.
package web

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// requestIDHeader carries the id of a request in both directions.
const requestIDHeader = "X-Request-Id"

// requestIDPattern is what a client may choose as its own request id. Anything
// else is replaced: ids go into logs.
var requestIDPattern = lazyregexp.New(`^[A-Za-z0-9_.:-]{1,64}$`)

// New makes an echo instance whose every error, its own 404, 405, 413, 415 and
// panics included, is a problem+json object, and whose every request has an id.
// A nil log discards.
func New(log *slog.Logger) *echo.Echo {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	log = WithLogIDs(log)
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.HTTPErrorHandler = func(err error, c echo.Context) { handleError(log, err, c) }
	// Before routing, so that an unknown path has a request id too.
	e.Pre(assignRequestID, catchPanics)
	return e
}

// RequestID is the id of the request, as sent by the client or made here.
func RequestID(c echo.Context) string { return c.Response().Header().Get(requestIDHeader) }

func assignRequestID(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) error {
		id := c.Request().Header.Get(requestIDHeader)
		if !requestIDPattern().MatchString(id) {
			id = "req_" + rand.Text()
		}
		c.Response().Header().Set(requestIDHeader, id)
		setLogIDs(c, id)
		return next(c)
	}
}

// panicked is a recovered panic, with the stack for the log.
type panicked struct {
	value any
	stack []byte
}

// Panicked is the error of a panic with a value that recover has returned. A handler needs it for the goroutines
// that it starts; its own panics are caught in any case.
func Panicked(value any) error { return &panicked{value: value, stack: debug.Stack()} }

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func catchPanics(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		defer func() {
			if v := recover(); v == http.ErrAbortHandler {
				panic(v) // net/http's own way to drop a connection
			} else if v != nil {
				err = Panicked(v)
			}
		}()
		return next(c)
	}
}

// JSON answers v with the given status. The encoding is finished before the
// status is sent, so a value that cannot be encoded is a 500 and not half an
// answer.
func JSON(c echo.Context, status int, v any) error {
	body, err := encode(v)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	h := c.Response().Header()
	h.Set(echo.HeaderContentType, echo.MIMEApplicationJSON)
	h.Set(echo.HeaderCacheControl, "no-store")
	c.Response().WriteHeader(status)
	_, err = c.Response().Write(body)
	return err
}

// appender is an answer that encodes itself, for those that are sent most often.
type appender interface {
	// AppendJSON appends the answer to b, byte for byte as package json encodes it.
	AppendJSON(b []byte) ([]byte, error)
}

func encode(v any) ([]byte, error) {
	if v, ok := v.(appender); ok {
		return v.AppendJSON(make([]byte, 0, 256))
	}
	return json.Marshal(v, json.Deterministic(true))
}
