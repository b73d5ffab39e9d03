package toolproxy

import (
	"context"
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// recorder takes evidence about a run: it never changes the task's state and
// is accepted until 15 minutes after the lease ended.
type recorder interface {
	RunExit(ctx context.Context, held picket.Held, exit picket.Exit, containment string) error
	// RunLog appends data at offset and answers the new end. Bytes below the
	// known end are ignored; an offset beyond it is offset_conflict.
	RunLog(ctx context.Context, held picket.Held, stream string, offset int64, data []byte) (next int64, err error)
	RunEvents(ctx context.Context, held picket.Held, events []picket.RunEvent) error
}

// MaxLogChunk bounds the body of one /v1/run/logs, in bytes.
const MaxLogChunk = 64 << 10

// exitRequest reports how the process ended.
type exitRequest struct {
	picket.Exit
	Containment string `json:"containment"`
}

func exit(_ *Proxy, c echo.Context, door Door, held picket.Held) error {
	body, err := decodeExit(c)
	if err != nil {
		return err
	}
	if err := recorder(door).RunExit(c.Request().Context(), held, body.Exit, body.Containment); err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, struct{}{})
}

func decodeExit(c echo.Context) (exitRequest, error) {
	body, _, err := web.Decode[exitRequest](c, smallBody)
	if err != nil {
		return body, err
	}
	if err := checkExit("", body.Exit, picket.EvidenceClasses); err != nil {
		return body, err
	}
	return body, checkContainment("/containment", body.Containment)
}

func checkContainment(field, containment string) error {
	if containment == "" || slices.Contains(picket.Containments, containment) {
		return nil
	}
	return picket.Invalid(field, "Send "+strings.Join(picket.Containments, ", ")+", or leave it out.", "%s is not a way to hold a process tree", field)
}

// logAnswer says at which offset to go on.
type logAnswer struct {
	Next int64 `json:"next"`
}

func logs(_ *Proxy, c echo.Context, door Door, held picket.Held) error {
	stream, offset, err := logPosition(c)
	if err != nil {
		return err
	}
	data, err := logBytes(c)
	if err != nil {
		return err
	}
	next, err := recorder(door).RunLog(c.Request().Context(), held, stream, offset, data)
	if err != nil {
		return err
	}
	return web.JSON(c, http.StatusOK, logAnswer{next})
}

func logPosition(c echo.Context) (stream string, offset int64, err error) {
	q := c.QueryParams()
	stream = q.Get("stream")
	if stream != "stdout" && stream != "stderr" {
		return "", 0, badParameter("stream", "Send stdout or stderr.", "stream is neither stdout nor stderr")
	}
	if !q.Has("offset") {
		return "", 0, badParameter("offset", "Send the offset of the first byte, 0 at the beginning.", "offset is required")
	}
	offset, err = number(q, "offset", 0, picket.MaxNumber)
	return stream, offset, err
}

// logBytes reads a chunk as it is: output need not be valid text.
func logBytes(c echo.Context) ([]byte, error) {
	const text = "text/plain"
	got, _, _ := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if got != echo.MIMEOctetStream {
		return web.ReadBody(c, MaxLogChunk, text)
	}
	return web.ReadBody(c, MaxLogChunk, echo.MIMEOctetStream)
}
