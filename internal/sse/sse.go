// Package sse reads and writes server-sent events (text/event-stream).
package sse

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// ContentType is the media type of a stream of events.
const ContentType = "text/event-stream"

// An Event is one block of a stream: its lines up to an empty one.
type Event struct {
	// Comment is a line that every reader skips. A Reader leaves it empty.
	Comment string
	// Retry is the pause before a reader connects again, in whole milliseconds.
	// A Reader leaves it 0.
	Retry time.Duration
	// Type is the value of the field "event", "" for none.
	Type string
	// ID is the position in the stream from which a reader goes on, "" for none.
	ID string
	// Data is the value of the field "data": the values of several lines are joined
	// with newlines. It is nil if the event has no data.
	Data []byte
	// Raw is all that a Reader has read of the block, byte for byte. AppendTo
	// ignores it.
	Raw []byte
}

// oneLine keeps a field from becoming several.
var oneLine = strings.NewReplacer("\r", " ", "\n", " ")

// AppendTo appends the event to b as it stands in a stream, with the empty line
// that ends it. Fields without a value are left out.
func (e Event) AppendTo(b []byte) []byte {
	retry := ""
	if e.Retry > 0 {
		retry = strconv.FormatInt(e.Retry.Milliseconds(), 10)
	}
	for _, field := range [][2]string{{"", e.Comment}, {"retry", retry}, {"event", e.Type}, {"id", e.ID}} {
		if field[1] != "" {
			b = append(b, field[0]+": "+oneLine.Replace(field[1])+"\n"...)
		}
	}
	if e.Data != nil {
		for line := range bytes.SplitSeq(e.Data, []byte("\n")) {
			b = append(append(append(b, "data: "...), line...), '\n')
		}
	}
	return append(b, '\n')
}

// A Writer writes events to a client as they happen.
type Writer struct {
	w       http.ResponseWriter
	control *http.ResponseController
	timeout time.Duration
}

// NewWriter returns a Writer whose client has this much time to take each event.
// Writers without deadlines ignore the time.
func NewWriter(w http.ResponseWriter, timeout time.Duration) *Writer {
	return &Writer{w: w, control: http.NewResponseController(w), timeout: timeout}
}

// Write writes an event and flushes it. After an error the stream is of no use.
func (w *Writer) Write(e Event) error {
	_ = w.control.SetWriteDeadline(time.Now().Add(w.timeout))
	if _, err := w.w.Write(e.AppendTo(nil)); err != nil {
		return err
	}
	return w.control.Flush()
}

// ErrTooLong is the error of an event with more bytes than a Reader allows.
var ErrTooLong = errors.New("an event of the stream is too long")

// A Reader reads the events of a stream. Lines end with LF or CRLF.
type Reader struct {
	from  *bufio.Reader
	limit int
	block []byte
}

// bufferSize is how much a Reader holds between two events, twice, in bytes.
const bufferSize = 64 << 10

// NewReader returns a Reader of events with at most limit bytes each, all lines
// together.
func NewReader(r io.Reader, limit int) *Reader {
	return &Reader{from: bufio.NewReaderSize(r, min(limit, bufferSize)), limit: limit}
}

// Next reads the next block. What it returns is valid until the next call.
//
// The error is io.EOF at the end of the stream, ErrTooLong for a block over the
// limit, and otherwise that of the reader below. The event then holds what was
// read of an unfinished block. After ErrTooLong, Next goes on within the block.
func (r *Reader) Next() (Event, error) {
	if r.block = r.block[:0]; cap(r.block) > bufferSize {
		r.block = nil // a stream may be silent for long after a large event
	}
	for begun := 0; ; { // of the line
		piece, err := r.from.ReadSlice('\n')
		r.block = append(r.block, piece...)
		switch {
		case len(r.block) > r.limit:
			return parse(r.block), ErrTooLong
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil, len(bytes.TrimRight(r.block[begun:], "\r\n")) == 0:
			return parse(r.block), err
		}
		begun = len(r.block)
	}
}

// parse reads the fields of a block. The data of a single line is not copied.
func parse(block []byte) Event {
	e := Event{Raw: block}
	lines := 0
	for line := range bytes.Lines(block) {
		name, value, _ := bytes.Cut(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r")), []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "event":
			e.Type = string(value)
		case "id":
			e.ID = string(value)
		case "data":
			if lines++; lines == 1 {
				e.Data = value[:len(value):len(value)] // so that another line is appended to a copy
			} else {
				e.Data = append(append(e.Data, '\n'), value...)
			}
		}
	}
	return e
}
