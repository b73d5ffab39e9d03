package adapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// send posts one piece until the server has it. false: it never will.
func (s *logShipper) send(ctx context.Context, p picket.LogWrite) bool {
	if len(p.Data) == 0 {
		s.sendEnd(ctx, p)
		return true
	}
	wait := 250 * time.Millisecond
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
			if expected, ok := factInt(err, "expected"); ok {
				s.offset = expected
			}
		case p.End && errors.Is(err, picket.CodeValidation):
			p.End = false // a server of an earlier version does not know the word
		case picket.CodeOf(err).Retryable() || errors.Is(err, picket.ErrUnknown):
			if !sleep(ctx, wait/2+rand.N(wait)) {
				return false
			}
			wait = min(2*wait, 5*time.Second)
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
