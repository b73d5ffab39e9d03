package adapter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// shipper carries one stream of output to a place that may be slow or away, in
// chunks, batched over every. The agent waits for it at most patience, and
// then no more until it has caught up: what does not fit into the buffer is
// dropped, oldest first, and a note says so.
type shipper struct {
	stream   string
	to       string // for people: where it goes
	every    time.Duration
	patience time.Duration
	post     func(ctx context.Context, stream string, offset int64, data []byte) (next int64, err error)
	log      *slog.Logger

	mu      sync.Mutex
	pending []byte
	dropped int64
	closed  bool
	dead    bool          // the place refuses: nothing is kept any more
	stalled bool          // patience has run out once since it was last empty
	wake    chan struct{} // has room for one: there is something new
	room    chan struct{} // has room for one: something was taken

	offset int64 // of the next chunk; used by run alone
}

// toProxy ships to the log of the run.
func toProxy(stream string, p *Proxy, log *slog.Logger) *shipper {
	return newShipper(&shipper{stream: stream, to: "the proxy", every: 500 * time.Millisecond, post: p.Logs, log: log})
}

// toWriter copies to a terminal or a file of the caller's.
func toWriter(stream string, w io.Writer, log *slog.Logger) *shipper {
	return newShipper(&shipper{
		stream: stream, to: "the copy", patience: 500 * time.Millisecond, log: log,
		post: func(_ context.Context, _ string, offset int64, data []byte) (int64, error) {
			_, err := w.Write(data)
			return offset + int64(len(data)), err
		},
	})
}

func newShipper(s *shipper) *shipper {
	s.wake, s.room = make(chan struct{}, 1), make(chan struct{}, 1)
	return s
}

// add takes output in. It waits for room as long as there is patience.
func (s *shipper) add(p []byte) {
	var impatient <-chan time.Time
	for !s.tryAdd(p) {
		if impatient == nil {
			impatient = time.After(s.patience)
		}
		select {
		case <-s.room:
		case <-impatient:
			s.stall()
		}
	}
}

// tryAdd reports false when waiting for room is worth it.
func (s *shipper) tryAdd(p []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dead || s.closed {
		return true
	}
	full := len(s.pending)+len(p) > maxPending
	if full && len(s.pending) > 0 && s.patience > 0 && !s.stalled {
		return false
	}
	s.pending = append(s.pending, p...)
	if len(s.pending) > 2*maxPending { // seldom, so that a flood is not copied at every write
		over := len(s.pending) - maxPending
		s.dropped += int64(over)
		s.pending = append(s.pending[:0], s.pending[over:]...)
	}
	poke(s.wake)
	return true
}

func (s *shipper) stall() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stalled = true
}

func (s *shipper) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	poke(s.wake)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// take removes the next chunk; more is true when another waits, last when
// there will be none.
func (s *shipper) take() (chunk []byte, more, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dropped > 0 {
		chunk = fmt.Appendf(nil, "\n[picket: %d bytes of output were dropped here: %s did not keep up]\n", s.dropped, s.to)
		s.dropped = 0
	}
	n := min(len(s.pending), maxChunk-len(chunk))
	chunk = append(chunk, s.pending[:n]...)
	s.pending = append(s.pending[:0], s.pending[n:]...)
	more = len(s.pending) > 0
	if !more {
		s.stalled = false
	}
	poke(s.room)
	return chunk, more, s.closed && !more
}

// run posts until the stream was closed and all of it is posted, or ctx ends.
func (s *shipper) run(ctx context.Context) {
	for {
		chunk, more, last := s.take()
		if len(chunk) > 0 && !s.send(ctx, chunk) {
			s.giveUp()
			return
		}
		if last || !more && !s.idle(ctx) {
			return
		}
	}
}

// idle waits for new output and then, for the sake of batches, a little more.
func (s *shipper) idle(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-s.wake:
	}
	t := time.NewTimer(s.every)
	defer t.Stop()
	for !s.ready() {
		select {
		case <-ctx.Done():
			return false
		case <-t.C:
			return true
		case <-s.wake:
		}
	}
	return true
}

// ready reports whether there is a reason not to wait for more.
func (s *shipper) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed || len(s.pending) >= maxChunk
}

// send posts one chunk until the server has it. false: it never will.
func (s *shipper) send(ctx context.Context, chunk []byte) bool {
	wait := 250 * time.Millisecond
	for resyncs := 0; len(chunk) > 0; {
		try, cancel := context.WithTimeout(ctx, 10*time.Second)
		next, err := s.post(try, s.stream, s.offset, chunk)
		cancel()
		switch {
		case err == nil:
			chunk = s.accepted(chunk, next)
		case errors.Is(err, picket.CodeOffset) && resyncs < 3:
			resyncs++
			if expected, ok := factInt(err, "expected"); ok {
				s.offset = expected
			}
		case picket.CodeOf(err).Retryable() || errors.Is(err, picket.ErrUnknown):
			if !sleep(ctx, wait/2+rand.N(wait)) {
				return false
			}
			wait = min(2*wait, 5*time.Second)
		default:
			s.log.Warn("the agent's output is not taken any more", "by", s.to, "stream", s.stream, "err", err)
			return false
		}
	}
	return true
}

// accepted moves on to what the server expects next and returns the rest of
// the chunk. A server that is further has seen these bytes before.
func (s *shipper) accepted(chunk []byte, next int64) []byte {
	done := next - s.offset
	if done <= 0 || done >= int64(len(chunk)) {
		s.offset = max(next, s.offset+int64(len(chunk)))
		return nil
	}
	s.offset = next
	return chunk[done:]
}

func (s *shipper) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead, s.pending = true, nil
	poke(s.room)
}
