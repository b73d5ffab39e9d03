package adapter

import "time"

// killMargin is what a holder's clock and its last signals may cost: the agent is
// dead this long before the lease ends.
func killMargin(window time.Duration) time.Duration {
	if window < 10*time.Second {
		return 500 * time.Millisecond
	}
	return max(window*3/100, time.Second)
}

// warningLead is how long before the lease's end the tree gets SIGTERM; 0 is never.
func warningLead(window time.Duration) time.Duration {
	if window < 10*time.Second {
		return 0
	}
	return max(window/10, 2*time.Second)
}

// suspendDetector compares a clock that counts suspend with one that does not.
type suspendDetector struct {
	clock func() time.Duration
	last  time.Duration
	at    time.Time
}

func newSuspendDetector(clock func() time.Duration) suspendDetector {
	return suspendDetector{clock: clock, last: clock(), at: time.Now()}
}

// wasSuspended reports whether the machine was suspended since the last call.
func (s *suspendDetector) wasSuspended() bool {
	now, at := s.clock(), time.Now()
	gap := (now - s.last) - at.Sub(s.at)
	s.last, s.at = now, at
	return gap > time.Second
}
