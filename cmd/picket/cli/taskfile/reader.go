// Package taskfile submits the tasks of a file in JSON Lines: each line is the body of a request that
// submits one task.
package taskfile

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// maxLine bounds a line. The server takes a task of at most 1 MiB, its idempotency key included.
const maxLine = 1 << 20

// MaxKeyPrefix bounds [Submitter.KeyPrefix], so that a key fits into 255 bytes with the number of a line.
const MaxKeyPrefix = 200

// line is a line that is not empty: a task, or the reason why it cannot be one.
type line struct {
	number int
	size   int
	task   picket.TaskSubmission
	err    error
}

// reader reads the lines of a file.
type reader struct {
	in        *bufio.Reader
	keyPrefix string
	number    int // of the last line
}

func newReader(in io.Reader, keyPrefix string) *reader {
	return &reader{in: bufio.NewReaderSize(in, 64<<10), keyPrefix: keyPrefix}
}

// next reads the lines of the next request. There are none at the end of the file.
func (r *reader) next() (lines []line, err error) {
	for size := 0; len(lines) < picket.MaxBatchTasks && size < picket.MaxBatchBytes; {
		l, err := r.line()
		if err == io.EOF {
			return lines, nil
		}
		if err != nil {
			return lines, err
		}
		size += l.size
		lines = append(lines, l)
	}
	return lines, nil
}

// line reads the next line that is not empty.
func (r *reader) line() (line, error) {
	for {
		text, tooLong, err := r.text()
		if err != nil {
			return line{}, err
		}
		if text = bytes.TrimSpace(text); len(text) > 0 || tooLong {
			return r.parse(text, tooLong), nil
		}
	}
}

// text reads the next line. Of a line that is too long it drops the end.
func (r *reader) text() (text []byte, tooLong bool, err error) {
	r.number++
	for {
		part, err := r.in.ReadSlice('\n')
		if len(text)+len(part) > maxLine+1 {
			tooLong = true
		} else {
			text = append(text, part...)
		}
		switch {
		case err == nil:
			return text, tooLong, nil
		case err == io.EOF && (len(text) > 0 || tooLong):
			return text, tooLong, nil // the last line does not need an end
		case errors.Is(err, bufio.ErrBufferFull):
		case err == io.EOF:
			return nil, false, err
		default:
			return nil, false, fmt.Errorf("read line %d: %w", r.number, err)
		}
	}
}

// parse reads a line as strictly as the server does.
func (r *reader) parse(text []byte, tooLong bool) line {
	l := line{number: r.number, size: len(text)}
	if tooLong {
		l.err = picket.Refuse(picket.CodeTooLarge, "Send less: keep large things in files and name them.",
			"the line has more than %d bytes", maxLine)
		return l
	}
	if text[0] != '{' {
		l.err = picket.Invalid("", `Write a JSON object such as {"title":"fix the flaky test"} into each line.`,
			"the line is not a JSON object")
		return l
	}
	l.err = web.Unmarshal(text, &l.task)
	if l.task.IdempotencyKey == nil {
		l.task.IdempotencyKey = new(r.keyPrefix + "/" + strconv.Itoa(r.number))
	}
	return l
}
