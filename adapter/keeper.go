package adapter

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/renewals"
)

// keeper holds one lease: it renews at 60 % of the window and knows when the
// adapter must have let go. All its times are readings of clock, and a lease
// counts from before the request that confirmed it was sent.
type keeper struct {
	clock       func() time.Duration
	renew       func(context.Context) (picket.Renewal, error)
	member      *renewals.Member // renews with other leases of the process; nil: alone
	window      time.Duration
	confirmedAt time.Duration // when the last confirmed request was sent
	ttl         time.Duration // what it was answered

	registration *registration // whose silence ends the lease's work, too

	onRenewed        func(r picket.Renewal)
	onHeartbeatAcked func() // a heartbeat was acknowledged
	onFailed         func(err error)
	onWarning        func() // the deadline is near: SIGTERM
	onWarningRevoked func() // that was taken back

	renewNow          chan struct{} // has room for one: renew now
	warned            bool
	resuming          bool // resumed from suspend: first of all comes a renewal
	awaitingHeartbeat bool // the same: no heartbeat was acknowledged since
	failures          int
	nextRenewal       time.Duration // when to renew
}

// The keeper's own verdicts.
var (
	errLeaseDeadline     = errors.New("the lease could not be renewed before its deadline")
	errHeartbeatsUnacked = errors.New("no heartbeat was acknowledged in time")
	errRegistrationEnded = errors.New("the adapter's registration has ended")
)

// deadline is when the lease ends if it is not renewed again.
func (k *keeper) deadline() time.Duration { return k.confirmedAt + k.ttl }

// killAt is when the tree must be killed.
func (k *keeper) killAt() time.Duration {
	return min(k.deadline()-killMargin(k.window), k.registration.killAt())
}

// killReason is why the tree must be dead at a time, or nil.
func (k *keeper) killReason(now time.Duration) error {
	switch {
	case k.registration.isEnded():
		return errRegistrationEnded
	case now >= k.deadline()-killMargin(k.window):
		return errLeaseDeadline
	case now >= k.registration.killAt():
		return errHeartbeatsUnacked
	}
	return nil
}

// remaining is what is left until killAt.
func (k *keeper) remaining() time.Duration { return k.killAt() - k.clock() }

// recordRenewal takes over a successful renewal that was sent at the time sent.
func (k *keeper) recordRenewal(sent time.Duration, r picket.Renewal) {
	k.confirmedAt, k.ttl = sent, time.Duration(r.LeaseTTLMs)*time.Millisecond
	if k.window <= 0 {
		k.window = k.ttl
	}
	k.nextRenewal = sent + min(k.window, k.ttl)*60/100
	k.failures = 0
	k.revokeWarning(k.clock())
}

// revokeWarning takes a warning back that is not due any more.
func (k *keeper) revokeWarning(now time.Duration) {
	if k.warned && now < k.warnAt() {
		k.warned = false
		k.onWarningRevoked()
	}
}

// confirm renews for the first time, before anything is launched: only then is
// the lease known to have arrived. It gives up after giveUp.
func (k *keeper) confirm(ctx context.Context, giveUp time.Duration) (picket.Renewal, error) {
	k.confirmedAt, k.ttl = k.clock(), giveUp
	end := k.deadline()
	for {
		sent := k.clock()
		left := end - sent
		try, cancel := context.WithTimeout(ctx, attemptTimeout(giveUp, left))
		r, err := k.renew(try)
		cancel()
		if err == nil {
			k.recordRenewal(sent, r)
			return r, nil
		}
		k.failures++
		if left = end - k.clock(); ctx.Err() != nil || leaseLost(err) || left <= 0 {
			return r, err
		}
		k.onFailed(err)
		if !sleep(ctx, k.backoff(left)) {
			return r, err
		}
	}
}

// renewSoon lets keep renew at once, for what the answer tells; not while renewals
// fail, which are tried again in their own time.
func (k *keeper) renewSoon() { wakeUp(k.renewNow) }

// run renews until ctx ends (nil), the lease is definitely lost (the
// refusal) or the time to kill has come (errLeaseDeadline, errHeartbeatsUnacked, errRegistrationEnded).
func (k *keeper) run(ctx context.Context) error {
	if k.member == nil {
		k.member = renewals.New(renewals.Config{Clock: k.clock}).Member(renewals.Lease{Alone: k.renew})
	}
	defer k.member.Leave()
	var attempt *renewals.Attempt // nil: no request under way
	defer func() { abort(attempt) }()
	watch := newSuspendDetector(k.clock)
	for {
		now, heard := k.clock(), k.registration.nextAck()
		if err := k.killReason(now); err != nil {
			return err
		}
		if watch.wasSuspended() { // renew before anything else, on a new connection
			abort(attempt)
			k.member.Leave() // also from what another member has begun before
			attempt, k.nextRenewal, k.resuming, k.awaitingHeartbeat = nil, now, true, true
		}
		if at := k.warnAt(); !k.warned && !k.resuming && now >= at {
			k.warned = true
			k.onWarning()
		}
		if attempt == nil {
			attempt = k.nextAttempt(now)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.registration.ctx.Done():
		case <-heard:
			k.awaitingHeartbeat = false
			k.revokeWarning(k.clock())
			k.onHeartbeatAcked()
		case <-k.renewNow:
			if k.failures == 0 {
				k.nextRenewal = k.clock()
			}
		case <-k.member.Begun():
		case <-time.After(k.wait(now, attempt == nil)):
		case r := <-resultOf(attempt):
			attempt = nil
			if err := k.handleResult(r); err != nil {
				return err
			}
		}
	}
}

// nextAttempt renews if the lease is due. Otherwise it lets other leases of the process take this one along a
// little early, and returns the attempt if one of them has begun. After a failure the lease is renewed alone.
func (k *keeper) nextAttempt(now time.Duration) *renewals.Attempt {
	window, killAt := k.window, k.killAt()
	timing := renewals.Timing{
		From:    k.nextRenewal - window/10,
		Timeout: func(now time.Duration) time.Duration { return attemptTimeout(window, killAt-now) },
	}
	if k.failures > 0 {
		timing.From = renewals.Never
	}
	if now >= k.nextRenewal {
		return k.member.Start(timing, k.failures == 0)
	}
	return k.member.Wait(timing)
}

func abort(a *renewals.Attempt) {
	if a != nil {
		a.Abort()
	}
}

// resultOf is where the result of an attempt comes from. Nothing comes if there is none under way.
func resultOf(a *renewals.Attempt) <-chan renewals.Result {
	if a == nil {
		return nil
	}
	return a.Done
}

// handleResult handles an answer; an error is a definite loss.
func (k *keeper) handleResult(r renewals.Result) error {
	k.resuming = false
	switch {
	case r.Err == nil:
		k.recordRenewal(r.Sent, r.Renewal)
		k.onRenewed(r.Renewal)
	case leaseLost(r.Err):
		return r.Err
	default:
		k.failures++
		k.nextRenewal = k.clock() + k.backoff(k.remaining())
		k.onFailed(r.Err)
	}
	return nil
}

// wait is the time until something is due.
func (k *keeper) wait(now time.Duration, idle bool) time.Duration {
	due := min(k.killAt(), now+maxPause)
	if idle {
		due = min(due, k.nextRenewal)
	}
	if !k.warned && !k.resuming {
		due = min(due, k.warnAt())
	}
	return max(due-now, 0)
}

func (k *keeper) warnAt() time.Duration {
	at := k.deadline() - warningLead(k.window)
	if k.awaitingHeartbeat { // the first heartbeat may be on its way
		return at
	}
	return min(at, k.registration.warnAt())
}

// backoff doubles from 1 % of the window with jitter and never spends more
// than a quarter of what is left except for a last pause of 100 ms.
func (k *keeper) backoff(left time.Duration) time.Duration {
	base := min(max(k.window/100, 50*time.Millisecond), time.Second)
	d := min(base<<min(k.failures-1, 10), 10*time.Second)
	d = d/2 + rand.N(d)
	return min(max(min(d, left/4), 100*time.Millisecond), max(left, 10*time.Millisecond))
}

// attemptTimeout bounds one renewal, so that a hung connection leaves room for
// another try.
func attemptTimeout(window, left time.Duration) time.Duration {
	most := min(max(window/10, time.Second), 10*time.Second)
	return min(most, max(left/2, 100*time.Millisecond))
}
