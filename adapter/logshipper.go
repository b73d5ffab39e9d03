package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

const (
	maxChunk   = 64 << 10 // bytes of one post of output
	maxPending = 1 << 20  // bytes of a stream waiting to be posted, for a moment twice that
)

// logShipper carries one stream of output to a place that may be slow or away, in chunks, batched
// over every. The agent waits for it at most patience, and after that not until it has caught up.
// What does not fit into the buffer is dropped, oldest first, and a note in the log reports that.
type logShipper struct {
	stream        string
	destination   string // for people: where it goes
	batchInterval time.Duration
	patience      time.Duration
	post          func(ctx context.Context, p picket.LogWrite) (next int64, err error)
	log           *slog.Logger

	mu            sync.Mutex
	pending       []byte
	pendingOffset int64            // how many bytes came before those pending
	marks         []picket.LogMark // when the pending ones were written, counted like first
	dropped       int64
	closed        bool
	refused       bool          // the place refuses: nothing is kept any more
	stalled       bool          // patience has run out once since it was last empty
	wake          chan struct{} // has room for one: there is something new
	room          chan struct{} // has room for one: something was taken

	offset int64 // of the next chunk; used by run alone
}

// newProxyShipper ships to the log of the run.
func newProxyShipper(stream string, p *Proxy, log *slog.Logger) *logShipper {
	return newLogShipper(&logShipper{
		stream:        stream,
		destination:   "the proxy",
		batchInterval: 500 * time.Millisecond,
		post:          p.LogPiece,
		log:           log,
	})
}

// newWriterShipper copies to a terminal or a file of the caller's, which is written to under
// a lock.
func newWriterShipper(stream string, w io.Writer, writing sync.Locker, log *slog.Logger) *logShipper {
	return newLogShipper(&logShipper{
		stream: stream, destination: "the copy", patience: 500 * time.Millisecond, log: log,
		post: func(_ context.Context, p picket.LogWrite) (int64, error) {
			if len(p.Data) == 0 {
				return p.Offset, nil
			}
			writing.Lock()
			defer writing.Unlock()
			_, err := w.Write(p.Data)
			return p.Offset + int64(len(p.Data)), err
		},
	})
}

func newLogShipper(s *logShipper) *logShipper {
	s.wake, s.room = make(chan struct{}, 1), make(chan struct{}, 1)
	return s
}

// add takes output in. It waits for room as long as there is patience.
func (s *logShipper) add(p []byte, at picket.Instant) {
	var impatient <-chan time.Time
	for !s.tryAdd(p, at) {
		if impatient == nil {
			impatient = time.After(s.patience)
		}
		select {
		case <-s.room:
		case <-impatient:
			s.markStalled()
		}
	}
}

// tryAdd reports false when waiting for room is worth it.
func (s *logShipper) tryAdd(p []byte, at picket.Instant) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refused || s.closed {
		return true
	}
	full := len(s.pending)+len(p) > maxPending
	if full && len(s.pending) > 0 && s.patience > 0 && !s.stalled {
		return false
	}
	if n := len(s.marks); n == 0 || s.marks[n-1].At < at { // a clock set back marks nothing
		s.marks = append(s.marks, picket.LogMark{Offset: s.pendingOffset + int64(len(s.pending)), At: at})
		s.trimMarks()
	}
	s.pending = append(s.pending, p...)
	if len(s.pending) > 2*maxPending { // seldom, so that a flood is not copied at every write
		over := len(s.pending) - maxPending
		s.dropped += int64(over)
		s.remove(over)
	}
	wakeUp(s.wake)
	return true
}

func (s *logShipper) markStalled() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
}

func (s *logShipper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	wakeUp(s.wake)
}

// take removes the next piece, whose offsets count from its own first byte;
// more is true when another waits, End when there will be none.
func (s *logShipper) take() (p picket.LogWrite, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.Stream = s.stream
	if s.dropped > 0 {
		p.Data = fmt.Appendf(nil, "\n[picket: %d bytes of output were dropped here: %s did not keep up]\n", s.dropped,
			s.destination)
		s.dropped = 0
	}
	note := int64(len(p.Data))
	n := min(len(s.pending), maxChunk-len(p.Data))
	for _, m := range s.marks {
		at := max(m.Offset-s.pendingOffset, 0)
		if at >= int64(n) {
			break
		}
		if len(p.Marks) == picket.MaxLogMarks {
			n = int(at)
			break
		}
		if at > 0 {
			at += note
		}
		p.Marks = append(p.Marks, picket.LogMark{Offset: at, At: m.At})
	}
	p.Data = append(p.Data, s.pending[:n]...)
	s.remove(n)
	more = len(s.pending) > 0
	if !more {
		s.stalled = false
	}
	wakeUp(s.room)
	p.End = s.closed && !more
	return p, more
}

// remove forgets the oldest n pending bytes.
func (s *logShipper) remove(n int) {
	s.pending = append(s.pending[:0], s.pending[n:]...)
	s.pendingOffset += int64(n)
	s.trimMarks()
}

// trimMarks forgets the marks of what is gone except for the last, which holds for
// what follows, too.
func (s *logShipper) trimMarks() {
	for len(s.marks) > 1 && s.marks[1].Offset <= s.pendingOffset {
		s.marks = s.marks[1:]
	}
}

// run posts until the stream was closed and all of it is posted, or ctx ends.
func (s *logShipper) run(ctx context.Context) {
	for {
		piece, more := s.take()
		if (len(piece.Data) > 0 || piece.End) && !s.send(ctx, piece) {
			s.giveUp()
			return
		}
		if piece.End || !more && !s.waitForMore(ctx) {
			return
		}
	}
}

// waitForMore waits for new output and then, for the sake of batches, a little more.
func (s *logShipper) waitForMore(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.wake:
	}
	enough := time.After(s.batchInterval)
	for !s.ready() {
		select {
		case <-ctx.Done():
			return false
		case <-enough:
			return true
		case <-s.wake:
		}
	}
	return true
}

// ready reports whether there is a reason not to wait for more.
func (s *logShipper) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || len(s.pending) >= maxChunk
}

// send posts one piece until the server has it. false: it never will.
func (s *logShipper) send(ctx context.Context, p picket.LogWrite) bool {
	if len(p.Data) == 0 {
		s.sendEnd(ctx, p)
		return true
	}
	pace := backoff{least: 250 * time.Millisecond, most: 5 * time.Second}
	for resyncs, sent := 0, false; !sent; {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		next, err := s.post(try, s.atOffset(p))
		cancel()
		switch {
		case err == nil:
			p = s.afterAccepted(p, next)
			sent = len(p.Data) == 0
		case errors.Is(err, picket.CodeOffset) && resyncs < 3:
			resyncs++
			if refusal, ok := picket.RefusalOf(err); ok {
				if expected, ok := refusal.Facts["expected"].(float64); ok {
					s.offset = int64(expected)
				}
			}
		case p.End && errors.Is(err, picket.CodeValidation):
			p.End = false // a server of an earlier version does not know the word
		case isRetryable(err):
			if !pace.pause(ctx) {
				return false
			}
		default:
			s.log.Warn("the agent's output is not taken any more", "by", s.destination, "stream", s.stream, "err", err)
			return false
		}
	}
	return true
}

// sendEnd says that nothing follows. Once: readers do without it, and the end of a
// run does not wait for it.
func (s *logShipper) sendEnd(ctx context.Context, p picket.LogWrite) {
	try, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if _, err := s.post(try, s.atOffset(p)); err != nil {
		s.log.Debug("the end of the output was not told", "stream", s.stream, "err", err)
	}
}

// atOffset is a piece at the offset where the server expects it.
func (s *logShipper) atOffset(p picket.LogWrite) picket.LogWrite {
	p.Offset = s.offset
	p.Marks = slices.Clone(p.Marks)
	for i := range p.Marks {
		p.Marks[i].Offset += s.offset
	}
	return p
}

// afterAccepted moves on to what the server expects next and returns the rest of
// the piece. A server that is further has seen these bytes before.
func (s *logShipper) afterAccepted(p picket.LogWrite, next int64) picket.LogWrite {
	done := next - s.offset
	if done <= 0 || done >= int64(len(p.Data)) {
		s.offset = max(next, s.offset+int64(len(p.Data)))
		p.Data, p.Marks = nil, nil
		return p
	}
	s.offset = next
	p.Data = p.Data[done:]
	for len(p.Marks) > 1 && p.Marks[1].Offset <= done {
		p.Marks = p.Marks[1:]
	}
	for i := range p.Marks {
		p.Marks[i].Offset = max(p.Marks[i].Offset-done, 0)
	}
	return p
}

func (s *logShipper) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused, s.pending, s.marks = true, nil, nil
	wakeUp(s.room)
}
