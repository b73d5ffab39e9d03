package llm

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

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
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		x.writeHeader(resp)
		return x.relayEvents(body, t)
	}
	return x.relayWhole(resp, body, t)
}

// relayEvents hands on event by event. The usage that the agent did not ask for
// is not shown to it.
func (x *call) relayEvents(body io.Reader, t *usageTally) (clean bool) {
	hide := x.dialect == openAIChat && !x.request.wantsUsage
	events := eventReader{from: bufio.NewReaderSize(body, 64<<10)}
	for {
		block, err := events.next()
		if data := eventData(block); len(data) > 0 {
			x.dialect.readUsage(t, data)
		}
		if !(hide && t.usageOnly) {
			x.write(block)
		}
		t.usageOnly = false
		if err != nil {
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
	if !x.headerWritten || !strings.HasPrefix(x.c.Response().Header().Get("Content-Type"), "text/event-stream") {
		return
	}
	problem, encodeErr := toolproxy.EncodeJSON(x.vendor.encodeError(refusalOf(err)))
	if encodeErr != nil {
		return
	}
	text := "\n\ndata: " + string(problem) + "\n\n"
	if x.dialect != openAIChat {
		text = "\n\nevent: error\ndata: " + string(problem) + "\n\n"
	}
	x.write([]byte(text))
}

// eventReader cuts a stream of server-sent events into blocks that end with an
// empty line.
type eventReader struct {
	from *bufio.Reader
}

// next reads a block, with all its bytes. One that is longer than maxEvent
// comes in pieces. An error may come with the last block.
func (r *eventReader) next() (block []byte, err error) {
	begun := 0 // of the line
	for {
		piece, err := r.from.ReadSlice('\n')
		block = append(block, piece...)
		if errors.Is(err, bufio.ErrBufferFull) {
			if len(block) > maxEvent {
				return block, nil
			}
			continue
		}
		if err != nil {
			return block, err
		}
		if len(bytes.TrimRight(block[begun:], "\r\n")) == 0 || len(block) > maxEvent {
			return block, nil
		}
		begun = len(block)
	}
}

// eventData is the data of an event: its data lines, joined. That of a single line
// is not a copy.
func eventData(block []byte) []byte {
	var out []byte
	lines := 0
	for line := range bytes.SplitSeq(block, []byte("\n")) {
		data, ok := bytes.CutPrefix(bytes.TrimSuffix(line, []byte("\r")), []byte("data:"))
		if !ok {
			continue
		}
		data = bytes.TrimPrefix(data, []byte(" "))
		switch lines++; lines {
		case 1:
			out = data
		case 2:
			out = append(append(bytes.Clone(out), '\n'), data...)
		default:
			out = append(append(out, '\n'), data...)
		}
	}
	return out
}
