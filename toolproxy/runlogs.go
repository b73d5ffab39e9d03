package toolproxy

import (
	"mime"
	"net/url"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// MaxLogChunk bounds the body of one /v1/run/logs, in bytes.
const MaxLogChunk = 64 << 10

// logTimesHeader says when the output of a /v1/run/logs was written: a Unix
// time in milliseconds, then position:delay pairs with commas between, such as
// "1763748000000 0:0,120:35". From its position in the body on, up to the next
// pair, the output was written delay milliseconds after that time.
const logTimesHeader = "X-Picket-Log-Times"

// logResponse says at which offset to go on.
type logResponse struct {
	Next int64 `json:"next"`
}

func handleLogs(c echo.Context, runs evidenceRecorder, held picket.LeaseCredential) (any, error) {
	piece, err := decodeLogPiece(c)
	if err != nil {
		return nil, err
	}
	if piece.Data, err = readLogBytes(c); err != nil {
		return nil, err
	}
	piece.Marks, err = parseLogTimes(c.Request().Header.Get(logTimesHeader), piece.Offset, len(piece.Data))
	if err != nil {
		return nil, err
	}
	next, err := runs.RunLog(c.Request().Context(), held, piece)
	return logResponse{next}, err
}

func decodeLogPiece(c echo.Context) (p picket.LogWrite, err error) {
	q := c.QueryParams()
	p.Stream = q.Get("stream")
	if p.Stream != "stdout" && p.Stream != "stderr" {
		return p, web.BadParameter("stream", "Send stdout or stderr.", "stream is neither stdout nor stderr")
	}
	if !q.Has("offset") {
		return p, web.BadParameter("offset", "Send the offset of the first byte, 0 at the beginning.",
			"offset is required")
	}
	if p.Offset, err = queryNumber(q, "offset", 0, picket.MaxNumber); err != nil {
		return p, err
	}
	p.End, err = queryFlag(q, "end")
	return p, err
}

func queryFlag(q url.Values, name string) (bool, error) {
	switch q.Get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, web.BadParameter(name, "Send true or false.", "%s is neither true nor false", name)
}

// readLogBytes reads a chunk as it is: output need not be valid text.
func readLogBytes(c echo.Context) ([]byte, error) {
	const text = "text/plain"
	got, _, _ := mime.ParseMediaType(c.Request().Header.Get(echo.HeaderContentType))
	if got != echo.MIMEOctetStream {
		return web.ReadBody(c, MaxLogChunk, text)
	}
	return web.ReadBody(c, MaxLogChunk, echo.MIMEOctetStream)
}

// parseLogTimes reads logTimesHeader.
func parseLogTimes(header string, offset int64, size int) ([]picket.LogMark, error) {
	if header == "" {
		return nil, nil
	}
	bad := picket.Invalid(logTimesHeader,
		"Send milliseconds since 1970 and position:delay pairs, such as 1763748000000 0:0,120:35, or leave the header out.",
		"%s cannot be read", logTimesHeader)
	since, pairs, _ := strings.Cut(header, " ")
	base, err := strconv.ParseInt(since, 10, 64)
	if err != nil || base < 0 || base > picket.MaxNumber/2 {
		return nil, bad
	}
	if strings.Count(pairs, ",") >= picket.MaxLogMarks {
		return nil, picket.Invalid(logTimesHeader, "Send smaller pieces.", "%s has more than %d pairs", logTimesHeader,
			picket.MaxLogMarks)
	}
	var marks []picket.LogMark
	last := -1
	for pair := range strings.SplitSeq(pairs, ",") {
		position, delay, _ := strings.Cut(pair, ":")
		at, err := strconv.Atoi(position)
		ms, err2 := strconv.ParseInt(delay, 10, 64)
		if err != nil || err2 != nil || at <= last || at > size || ms < 0 || ms > picket.MaxNumber/2 {
			return nil, bad
		}
		last = at
		marks = append(marks, picket.LogMark{Offset: offset + int64(at), At: picket.Instant(base + ms)})
	}
	return marks, nil
}
