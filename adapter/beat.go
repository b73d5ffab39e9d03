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

// beater sends the heartbeats of one session. They leave in time whatever
// became of those before: on a slow network several are under way. It alone uses
// its fields.
type beater struct {
	*session
	due      time.Duration // when the next one is to be sent, on the clock
	flights  []flight      // what is under way, oldest first
	answers  chan beaten
	sent     int // how many so far
	newest   int // which of them has the answer that counts so far
	failures int
	quiet    bool // that silence has gone on for too long was said
}

// maxFlights bounds what is under way; one more takes the place of the oldest.
const maxFlights = 8

// flight is a heartbeat under way.
type flight struct {
	number int
	abort  context.CancelFunc
}

// beaten is how one heartbeat went.
type beaten struct {
	number int
	sent   time.Duration
	hb     picket.Heartbeat
	answer picket.HeartbeatAnswer
	err    error
}

// beat sends heartbeats until the session is over or ctx ends.
func (s *session) beat(ctx context.Context) {
	b := &beater{session: s, answers: make(chan beaten)}
	b.due = s.lastAcked() + b.interval()
	defer s.jobs.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	watch := suspendWatch{clock: s.cfg.clock, last: s.cfg.clock(), at: time.Now()}
	for !s.isOver() {
		now := s.cfg.clock()
		if watch.resumed() { // what is under way may be so on a dead connection
			b.abort(len(b.flights))
			b.due = now
		}
		if now >= b.due {
			b.send(ctx, now)
		}
		b.complain()
		select {
		case <-ctx.Done():
			return
		case <-s.over:
			return
		case <-s.stirred:
			b.due = s.cfg.clock()
		case <-time.After(min(max(b.due-now, 0), tick)):
		case got := <-b.answers:
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

// send starts one heartbeat.
func (b *beater) send(ctx context.Context, now time.Duration) {
	b.abort(len(b.flights) + 1 - maxFlights)
	b.due = now + b.interval()
	b.sent++
	number, hb := b.sent, b.report()
	try, abort := context.WithTimeout(ctx, b.cfg.Health.DeadAfter) // an answer that comes later is of no use
	b.flights = append(b.flights, flight{number, abort})
	b.jobs.Go(func() {
		defer abort()
		got, err := b.client.Heartbeat(try, b.cfg.AgentID, hb)
		select {
		case b.answers <- beaten{number, now, hb, got, err}:
		case <-ctx.Done():
		}
	})
}

// abort gives the oldest ones up.
func (b *beater) abort(n int) {
	for ; n > 0; n-- {
		b.flights[0].abort()
		b.flights = b.flights[1:]
	}
}

// landed forgets a heartbeat that is not under way any more, and reports whether
// it was still waited for.
func (b *beater) landed(number int) bool {
	n := len(b.flights)
	b.flights = slices.DeleteFunc(b.flights, func(f flight) bool { return f.number == number })
	return len(b.flights) < n
}

func (b *beater) take(ctx context.Context, got beaten) {
	waited := b.landed(got.number)
	switch {
	case got.err == nil:
		b.acknowledge(got.sent, got.hb)
		b.failures, b.quiet = 0, false
		if got.number > b.newest { // what an older one was told has changed since
			b.newest = got.number
			b.heed(ctx, got.answer)
		}
	case ctx.Err() != nil || !waited:
	case errors.Is(got.err, picket.CodeAgentGone) || noRoute(got.err):
		b.end(got.err)
	default:
		b.failed(got.err)
	}
}

// failed lets the next one come soon, and never later than without a failure.
func (b *beater) failed(err error) {
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

// complain says once that the silence has ended all work.
func (b *beater) complain() {
	if b.silent() && !b.quiet {
		b.quiet = true
		b.cfg.Log.Error("no heartbeat was acknowledged for too long: all agents were ended", "agent", b.cfg.AgentID,
			"dead_after", b.cfg.Health.DeadAfter)
	}
}

func (b *beater) backoff(left, asked time.Duration) time.Duration {
	base := min(max(b.cfg.Health.Interval/20, 50*time.Millisecond), time.Second)
	d := min(base<<min(b.failures-1, 10), b.cfg.Health.Interval)
	d = max(d/2+rand.N(d/2), asked)
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
