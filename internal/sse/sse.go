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

// lineEnds writes each end of a line as LF.
var lineEnds = strings.NewReplacer("\r\n", "\n", "\r", "\n")

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
		for line := range strings.SplitSeq(lineEnds.Replace(string(e.Data)), "\n") {
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

// A Reader reads the events of a stream. Lines end with LF, CRLF or CR.
type Reader struct {
	from  *bufio.Reader
	limit int
	block []byte
	crlf  bool // the last line with a CR at its end had a LF behind it
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
		_, err := r.from.Peek(1)
		piece, _ := r.from.Peek(r.from.Buffered())
		if end := bytes.IndexAny(piece, "\r\n"); end >= 0 {
			piece = piece[:end+1]
		}
		r.block = append(r.block, piece...)
		_, _ = r.from.Discard(len(piece))
		if len(r.block) <= r.limit {
			r.completeCRLF(begun)
		}
		switch line := r.block[begun:]; {
		case len(r.block) > r.limit:
			return parse(r.block), ErrTooLong
		case err != nil, len(bytes.TrimRight(line, "\r\n")) == 0:
			return parse(r.block), err
		case bytes.HasSuffix(line, []byte("\n")), bytes.HasSuffix(line, []byte("\r")):
			begun = len(r.block)
		}
	}
}

// completeCRLF reads the LF behind the CR at the end of a line. After an empty line it
// waits for one only in a stream that has ended the line before so, because the next byte
// may come much later.
func (r *Reader) completeCRLF(begun int) {
	line := r.block[begun:]
	if !bytes.HasSuffix(line, []byte("\r")) || len(line) == 1 && !r.crlf && r.from.Buffered() == 0 {
		return
	}
	next, _ := r.from.Peek(1) // an error comes again
	if r.crlf = string(next) == "\n"; r.crlf {
		r.block = append(r.block, '\n')
		_, _ = r.from.Discard(1)
	}
}

// parse reads the fields of a block. The data of a single line is not copied.
func parse(block []byte) Event {
	e := Event{Raw: block}
	lines := 0
	for len(block) > 0 {
		line, rest := block, []byte(nil)
		if end := bytes.IndexAny(block, "\r\n"); end >= 0 {
			line, rest = block[:end], block[end+1:]
		}
		block = rest
		name, value, _ := bytes.Cut(line, []byte(":"))
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
