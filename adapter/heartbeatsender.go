package adapter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/picket-dev/picket"
)

// heartbeatSender sends the heartbeats of one registration. They leave in time whatever
// became of those before: on a slow network several are under way. It alone uses
// its fields.
type heartbeatSender struct {
	*registration
	due            time.Duration       // when the next one is due, on the clock
	inFlight       []heartbeatInFlight // what is under way, oldest first
	results        chan heartbeatResult
	sent           int // how many so far
	newestAnswered int // which of them has the answer that counts so far
	failures       int
	silenceLogged  bool // that silence has gone on for too long was said
}

// maxHeartbeatsInFlight bounds what is under way; one more takes the place of the oldest.
const maxHeartbeatsInFlight = 8

// heartbeatInFlight is a heartbeat under way.
type heartbeatInFlight struct {
	number int
	abort  context.CancelFunc
}

// heartbeatResult is how one heartbeat went.
type heartbeatResult struct {
	number int
	sent   time.Duration
	hb     picket.Heartbeat
	answer picket.HeartbeatAnswer
	err    error
}

// sendHeartbeats sends heartbeats until the registration is over or ctx ends.
func (s *registration) sendHeartbeats(ctx context.Context) {
	b := &heartbeatSender{registration: s, results: make(chan heartbeatResult)}
	b.due = s.lastAcked() + b.interval()
	defer s.jobs.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := newSuspendDetector(s.cfg.clock)
	for !s.isEnded() {
		now := s.cfg.clock()
		if watch.wasSuspended() { // what is under way may be so on a dead connection
			b.abortOldest(len(b.inFlight))
			b.due = now
		}
		if now >= b.due {
			b.send(ctx, now)
		}
		b.logSilence()
		select {
		case <-ctx.Done():
			return
		case <-s.ctx.Done():
			return
		case <-s.wake:
			b.due = s.cfg.clock()
		case <-time.After(min(max(b.due-now, 0), maxPause)):
		case got := <-b.results:
			b.handleResult(ctx, got)
		}
	}
}

// interval is the time to the next heartbeat, up to a tenth shorter: adapters
// that began together do not stay together.
func (b *heartbeatSender) interval() time.Duration {
	every := b.cfg.Health.Interval
	return every - b.cfg.jitter(every/10)
}

// send starts one heartbeat.
func (b *heartbeatSender) send(ctx context.Context, now time.Duration) {
	b.abortOldest(len(b.inFlight) + 1 - maxHeartbeatsInFlight)
	b.due = now + b.interval()
	b.sent++
	number, hb := b.sent, b.heartbeat()
	try, abort := context.WithTimeout(ctx, b.cfg.Health.DeadAfter) // an answer that comes later is of no use
	b.inFlight = append(b.inFlight, heartbeatInFlight{number, abort})
	b.jobs.Go(func() {
		defer abort()
		got, err := b.client.Agents.Heartbeat(try, b.cfg.AgentID, hb)
		select {
		case b.results <- heartbeatResult{number, now, hb, got, err}:
		case <-ctx.Done():
		}
	})
}

// abortOldest gives the oldest ones up.
func (b *heartbeatSender) abortOldest(n int) {
	for ; n > 0; n-- {
		b.inFlight[0].abort()
		b.inFlight = b.inFlight[1:]
	}
}

// removeInFlight forgets a heartbeat that is not under way any more, and reports whether
// it was still waited for.
func (b *heartbeatSender) removeInFlight(number int) bool {
	n := len(b.inFlight)
	b.inFlight = slices.DeleteFunc(b.inFlight, func(f heartbeatInFlight) bool { return f.number == number })
	return len(b.inFlight) < n
}

func (b *heartbeatSender) handleResult(ctx context.Context, got heartbeatResult) {
	waited := b.removeInFlight(got.number)
	switch {
	case got.err == nil:
		b.recordAck(got.sent, got.hb)
		b.failures, b.silenceLogged = 0, false
		if got.number > b.newestAnswered { // what an older one was told has changed since
			b.newestAnswered = got.number
			b.handleAnswer(ctx, got.answer)
		}
	case ctx.Err() != nil || !waited:
	case errors.Is(got.err, picket.CodeAgentGone) || routeMissing(got.err):
		b.end(got.err)
	default:
		b.retrySoon(got.err)
	}
}

// retrySoon lets the next one come soon, and never later than without a failure.
func (b *heartbeatSender) retrySoon(err error) {
	b.failures++
	now := b.cfg.clock()
	left := b.killAt() - now
	b.due = min(b.due, now+b.backoff(left, retryAfter(err)))
	level := slog.LevelDebug
	if b.failures == 1 {
		level = slog.LevelWarn
	}
	b.cfg.Log.Log(context.Background(), level, "heartbeat not acknowledged", "agent", b.cfg.AgentID, "err", err, "left",
		left)
}

// logSilence says once that the silence has ended all work.
func (b *heartbeatSender) logSilence() {
	if b.isSilent() && !b.silenceLogged {
		b.silenceLogged = true
		b.cfg.Log.Error("no heartbeat was acknowledged for too long: all agents were ended", "agent", b.cfg.AgentID,
			"dead_after", b.cfg.Health.DeadAfter)
	}
}

func (b *heartbeatSender) backoff(left, asked time.Duration) time.Duration {
	base := min(max(b.cfg.Health.Interval/20, 50*time.Millisecond), time.Second)
	d := min(base<<min(b.failures-1, 10), b.cfg.Health.Interval)
	d = max(d/2+rand.N(d/2), asked)
	if left <= 0 {
		return d
	}
	return max(min(d, left/4), 100*time.Millisecond)
}

// handleAnswer does what the answer to a heartbeat asks for.
func (b *heartbeatSender) handleAnswer(ctx context.Context, answer picket.HeartbeatAnswer) {
	switch answer.AgentStatus {
	case picket.AgentDraining:
		b.onDrain()
	case picket.AgentDeregistered:
		b.onDrain()
		b.end(errDrained)
		return
	}
	for _, c := range answer.PendingCommands {
		b.handleCommand(ctx, c)
	}
}
