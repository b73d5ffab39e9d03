package adapter

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
)

// beater sends the heartbeats of one session. It alone uses its fields.
type beater struct {
	*session
	due      time.Duration // when the next one is to be sent, on the clock
	again    bool          // one more at once, when that under way is over
	failures int
	quiet    bool // that silence has gone on for too long was said
}

// beaten is how one heartbeat went.
type beaten struct {
	sent   time.Duration
	hb     picket.Heartbeat
	answer picket.HeartbeatAnswer
	err    error
}

// beat sends heartbeats until the session is over or ctx ends.
func (s *session) beat(ctx context.Context) {
	b := &beater{session: s}
	b.due = s.lastAcked() + b.interval()
	defer s.jobs.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var answer chan beaten // nil: none under way
	abort := func() {}
	watch := suspendWatch{clock: s.cfg.clock, last: s.cfg.clock(), at: time.Now()}
	for !s.isOver() {
		now := s.cfg.clock()
		if watch.resumed() { // what is under way may be so on a dead connection
			abort()
			answer, b.due = nil, now
		}
		if answer == nil && now >= b.due {
			answer, abort = b.send(ctx, now)
		}
		wait := tick
		if answer == nil {
			wait = min(max(b.due-now, 0), tick)
		}
		select {
		case <-ctx.Done():
			return
		case <-s.over:
			return
		case <-s.stirred:
			b.due, b.again = now, answer != nil
		case <-time.After(wait):
		case got := <-answer:
			answer = nil
			b.take(ctx, got)
		}
	}
}

// interval is the time to the next heartbeat, up to a tenth shorter: adapters
// that began together do not stay together.
func (b *beater) interval() time.Duration {
	every := b.cfg.Health.Interval
	return every - b.cfg.jitter(every/10)
}

// send starts one heartbeat. The channel has room, so an aborted one ends alone.
func (b *beater) send(ctx context.Context, now time.Duration) (chan beaten, func()) {
	answer := make(chan beaten, 1)
	hb := b.report()
	try, cancel := context.WithTimeout(ctx, b.patience(b.killAt()-now))
	go func() {
		defer cancel()
		got, err := b.client.Heartbeat(try, b.cfg.AgentID, hb)
		answer <- beaten{now, hb, got, err}
	}()
	return answer, cancel
}

// patience bounds one heartbeat, so that a hung connection leaves room for
// another one; slow ones are not given up.
func (b *beater) patience(left time.Duration) time.Duration {
	most := max(b.cfg.Health.Interval, time.Second)
	if left <= 0 {
		return most
	}
	return min(most, max(left/2, 100*time.Millisecond))
}

func (b *beater) take(ctx context.Context, got beaten) {
	switch {
	case got.err == nil:
		b.acknowledge(got.sent, got.hb)
		b.failures, b.quiet, b.due = 0, false, got.sent+b.interval()
		b.heed(ctx, got.answer)
	case ctx.Err() != nil:
	case errors.Is(got.err, picket.CodeAgentGone) || noRoute(got.err):
		b.end(got.err)
	default:
		b.failed(got.err)
	}
	if b.again {
		b.again, b.due = false, b.cfg.clock()
	}
}

// failed lets the next one come soon, ever later, but never so late that the
// adapter counts as dead for that.
func (b *beater) failed(err error) {
	b.failures++
	now := b.cfg.clock()
	left := b.killAt() - now
	b.due = now + b.backoff(left, retryAfter(err))
	level := slog.LevelDebug
	if b.failures == 1 {
		level = slog.LevelWarn
	}
	b.cfg.Log.Log(context.Background(), level, "heartbeat not acknowledged", "agent", b.cfg.AgentID, "err", err, "left", left)
	if left <= 0 && !b.quiet {
		b.quiet = true
		b.cfg.Log.Error("no heartbeat was acknowledged for too long: all agents were ended", "agent", b.cfg.AgentID, "dead_after", b.cfg.Health.DeadAfter)
	}
}

func (b *beater) backoff(left, asked time.Duration) time.Duration {
	const most = 15 * time.Second
	base := min(max(b.cfg.Health.Interval/20, 50*time.Millisecond), time.Second)
	d := min(base<<min(b.failures-1, 10), most)
	d = max(d/2+rand.N(d), asked)
	if left <= 0 {
		return d
	}
	return max(min(d, left/4), 100*time.Millisecond)
}

// heed does what the answer to a heartbeat asks for.
func (b *beater) heed(ctx context.Context, answer picket.HeartbeatAnswer) {
	switch answer.AgentStatus {
	case picket.AgentDraining:
		b.drained()
	case picket.AgentDeregistered:
		b.drained()
		b.end(errDrained)
		return
	}
	for _, c := range answer.PendingCommands {
		b.obey(ctx, c)
	}
}
