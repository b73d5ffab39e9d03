package llm

import (
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/sse"
	"github.com/picket-dev/picket/toolproxy"
)

// relay hands the answer of a model on and reads its usage on the way; clean
// says that it came to its end.
func (x *call) relay(resp *http.Response, t *usageTally) (clean bool) {
	body := io.Reader(resp.Body)
	switch encoding := strings.ToLower(resp.Header.Get("Content-Encoding")); encoding {
	case "", "identity":
	case "gzip": // it was not asked for
		z, err := gzip.NewReader(body)
		if err != nil {
			return false
		}
		body = z
	default: // nobody here can read it: the usage stays unknown
		_ = x.relayPlain(resp)
		return false
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), sse.ContentType) {
		x.writeHeader(resp)
		return x.relayEvents(body, t)
	}
	return x.relayWhole(resp, body, t)
}

// relayEvents hands on event by event. The usage that the agent did not ask for
// is not shown to it.
func (x *call) relayEvents(body io.Reader, t *usageTally) (clean bool) {
	hide := x.dialect == openAIChat && !x.request.wantsUsage
	events := sse.NewReader(body, maxEvent)
	for {
		e, err := events.Next()
		if len(e.Data) > 0 {
			x.dialect.readUsage(t, e.Data)
		}
		if !(hide && t.usageOnly) {
			x.write(e.Raw)
		}
		t.usageOnly = false
		if err != nil && !errors.Is(err, sse.ErrTooLong) { // which is handed on in pieces
			return errors.Is(err, io.EOF)
		}
	}
}

// relayWhole keeps an answer until it is paid for; one that is too large to be
// looked at is handed on as it comes.
func (x *call) relayWhole(resp *http.Response, body io.Reader, t *usageTally) (clean bool) {
	raw, err := io.ReadAll(io.LimitReader(body, maxEvent+1))
	if err == nil && len(raw) <= maxEvent {
		x.dialect.readUsage(t, jsontext.Value(raw))
		if t.complete {
			x.buffered, x.bufferedHeader, x.bufferedStatus = raw, endToEndHeaders(resp.Header), resp.StatusCode
			return true
		}
	}
	x.writeHeader(resp)
	x.write(raw)
	if err == nil {
		buf := make([]byte, 32<<10)
		for err == nil {
			var n int
			n, err = body.Read(buf)
			x.write(buf[:n])
		}
	}
	return false
}

// writeBuffered answers with what was kept.
func (x *call) writeBuffered() error {
	x.writeHeader(&http.Response{Header: x.bufferedHeader, StatusCode: x.bufferedStatus}, "Content-Length",
		strconv.Itoa(len(x.buffered)))
	x.write(x.buffered)
	return nil
}

// writeStreamError ends a stream that broke off with an error that the agent's program
// understands; an answer that has not begun is an error as a whole.
func (x *call) writeStreamError(err error) {
	if !x.headerWritten || !strings.HasPrefix(x.c.Response().Header().Get("Content-Type"), sse.ContentType) {
		return
	}
	problem, encodeErr := toolproxy.EncodeJSON(x.vendor.encodeError(refusalOf(err)))
	if encodeErr != nil {
		return
	}
	e := sse.Event{Data: problem}
	if x.dialect != openAIChat {
		e.Type = "error"
	}
	x.write(e.AppendTo([]byte("\n\n"))) // the last event may be unfinished
}
