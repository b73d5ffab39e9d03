package adapter

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
	"github.com/picket-dev/picket/internal/text"
)

// maxTail is how much of a stream's end is kept for the result and the detail of the
// exit, in bytes.
const maxTail = 64 << 10

// outputStream takes one stream of a process: it hides the lease token and hands the
// rest to a file, to the proxy, to the tail and to the caller's copy.
type outputStream struct {
	mu        sync.Mutex
	redactor  redactor
	file      *os.File
	times     *os.File // when the file grew: a line "offset milliseconds-since-1970" for each change
	timesSize int64    // bytes in times
	fileSize  int64    // bytes in the file
	last      picket.Instant
	fileRoom  int64 // bytes that the file still takes; negative: it says that there was more
	shippers  []*logShipper
	tail      []byte // the last bytes, at least maxTail of them
	log       *slog.Logger
	closed    bool
}

// Write never fails: trouble with a file or a terminal must not stop an agent.
func (o *outputStream) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.closed {
		o.distribute(o.redactor.redact(p))
	}
	return len(p), nil
}

// close hands on what the redactor held back and ends the stream.
func (o *outputStream) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	o.closed = true
	o.distribute(o.redactor.flush())
	for _, s := range o.shippers {
		s.close()
	}
	for _, f := range []*os.File{o.file, o.times} {
		if f != nil {
			f.Close()
		}
	}
}

func (o *outputStream) distribute(p []byte) {
	if len(p) == 0 {
		return
	}
	at := picket.InstantOf(time.Now())
	if o.tail = append(o.tail, p...); len(o.tail) > 2*maxTail {
		o.tail = bytes.Clone(o.tail[len(o.tail)-maxTail:])
	}
	o.appendToFile(p, at)
	for _, s := range o.shippers {
		s.add(p, at)
	}
}

// appendToFile appends to the file until its bound.
func (o *outputStream) appendToFile(p []byte, at picket.Instant) {
	if o.file == nil || o.fileRoom < 0 {
		return
	}
	// Of output that comes byte by byte, its times may not outgrow it.
	if o.times != nil && at > o.last && o.timesSize < o.fileSize+4096 {
		n, _ := fmt.Fprintln(o.times, o.fileSize, int64(at))
		o.timesSize += int64(n)
		o.last = at
	}
	o.fileSize += int64(len(p))
	if int64(len(p)) > o.fileRoom {
		p = append(p[:o.fileRoom:o.fileRoom], "\n[picket: more output was not kept]\n"...)
	}
	o.fileRoom -= int64(len(p))
	if _, err := o.file.Write(p); err != nil {
		o.log.Warn("the agent's output cannot be kept", "file", o.file.Name(), "err", err)
		o.fileRoom = -1
	}
}

// redactor replaces a secret in a stream, also where it is cut by a write.
type redactor struct {
	secret []byte
	held   []byte // the end of the stream so far, if the secret may start there
}

func newRedactor(secret picket.Secret) redactor { return redactor{secret: []byte(secret.Reveal())} }

func (r *redactor) redact(p []byte) []byte {
	if len(r.secret) == 0 {
		return p
	}
	buf := append(r.held, p...)
	buf = bytes.ReplaceAll(buf, r.secret, []byte(workspace.RedactedText))
	n := secretPrefixLen(r.secret, buf)
	r.held = bytes.Clone(buf[len(buf)-n:])
	return buf[:len(buf)-n]
}

func (r *redactor) flush() []byte {
	held := r.held
	r.held = nil
	return held
}

// secretPrefixLen is the length of the longest proper start of secret that buf ends
// with.
func secretPrefixLen(secret, buf []byte) int {
	for n := min(len(secret)-1, len(buf)); n > 0; n-- {
		if bytes.HasSuffix(buf, secret[:n]) {
			return n
		}
	}
	return 0
}

// text is the end of the stream, at most n bytes of valid UTF-8.
func (o *outputStream) text(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	end := strings.ToValidUTF8(text.Tail(string(o.tail), n), "\uFFFD")
	return text.Tail(end, n) // replacement characters are longer than what they replace
}
