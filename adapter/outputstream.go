package adapter

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/workspace"
)

const (
	maxChunk   = 64 << 10 // bytes of one post of output
	maxPending = 1 << 20  // bytes of a stream waiting to be posted, for a moment twice that
	maxTail    = 64 << 10 // bytes of the tail kept for output and detail
)

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
	fileRoom  int64 // bytes that the file still takes
	shippers  []*logShipper
	tail      tailBuffer
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
	o.tail.add(p)
	o.appendToFile(p, at)
	for _, s := range o.shippers {
		s.add(p, at)
	}
}

// appendToFile appends to the file until its bound.
func (o *outputStream) appendToFile(p []byte, at picket.Instant) {
	if o.file == nil || o.fileRoom <= 0 {
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
		o.fileRoom = 0
	}
}

// openTimes makes the file that says when a stream grew; nil when it cannot.
func (p runPaths) openTimes(stream string) *os.File {
	f, err := os.OpenFile(filepath.Join(p.stateDir, stream+".times"), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil
	}
	return f
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

// tailBuffer keeps the last maxTail bytes of a stream.
type tailBuffer struct{ b []byte }

func (t *tailBuffer) add(p []byte) {
	t.b = append(t.b, p...)
	if len(t.b) > 2*maxTail {
		t.b = bytes.Clone(t.b[len(t.b)-maxTail:])
	}
}

// text is the end of the stream, at most n bytes of valid UTF-8.
func (t *tailBuffer) text(n int) string {
	b := t.b
	if len(b) > n {
		b = b[len(b)-n:]
		for len(b) > 0 && !utf8.RuneStart(b[0]) {
			b = b[1:]
		}
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func (o *outputStream) text(n int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.tail.text(n)
	for len(s) > n { // replacement characters are longer than what they replace
		_, size := utf8.DecodeRuneInString(s)
		s = s[size:]
	}
	return s
}

// lockedWriter shares a lock with another: both may be the same terminal.
type lockedWriter struct {
	mu *sync.Mutex
	w  io.Writer
}

func (l lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}

func serializeWriters(a, b io.Writer) (io.Writer, io.Writer) {
	mu := &sync.Mutex{}
	lock := func(w io.Writer) io.Writer {
		if w == nil {
			return nil
		}
		return lockedWriter{mu, w}
	}
	return lock(a), lock(b)
}

// openOutputs starts what carries output and events on; the channel closes when
// all of it has arrived.
func (r *run) openOutputs(work context.Context, group *sync.WaitGroup) <-chan struct{} {
	var shipping sync.WaitGroup
	open := func(stream string, tee io.Writer) *outputStream {
		o := &outputStream{
			redactor: newRedactor(r.lease.AgentCredential()),
			file:     r.paths.openLog(stream),
			times:    r.paths.openTimes(stream),
			fileRoom: r.cfg.LogLimit,
			log:      r.log,
		}
		o.shippers = append(o.shippers, newProxyShipper(stream, r.proxy, r.log))
		if tee != nil {
			o.shippers = append(o.shippers, newWriterShipper(stream, tee, r.log))
		}
		for _, s := range o.shippers {
			shipping.Go(func() { s.run(work) })
		}
		return o
	}
	stdout, stderr := r.cfg.Stdout, r.cfg.Stderr
	if of := r.cfg.OutputOf; of != "" && of != r.lease.TaskID {
		stdout, stderr = nil, nil
	}
	r.stdout, r.stderr = open("stdout", stdout), open("stderr", stderr)
	shipping.Go(func() { r.events.run(work) })
	r.usage.file = filepath.Join(r.paths.stateDir, usageFile)
	shipping.Go(func() { r.usage.run(work) })
	shipping.Go(r.execs.wait)
	shipped := make(chan struct{})
	group.Go(func() { shipping.Wait(); close(shipped) })
	return shipped
}

func (r *run) closeOutputs() {
	r.stdout.close()
	r.stderr.close()
	r.events.close()
	r.usage.close()
	r.execs.close()
}

// waitForShippers waits until output and events were posted, within the bounds of settling.
func (r *run) waitForShippers(ctx context.Context, shipped <-chan struct{}) {
	t := time.NewTimer(r.flushTimeout(ctx))
	defer t.Stop()
	select {
	case <-shipped:
	case <-t.C:
		r.log.Warn("not all output was taken; it is in the run's directory", "dir", r.paths.stateDir)
	}
}
