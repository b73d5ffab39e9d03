package adapter

import (
	"io"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
)

const (
	// maxStopped is how long every process of an agent may be stopped.
	maxStopped = 10 * time.Second
	// stoppedCheckInterval lies between two looks at the processes, which cost a walk
	// through all of the machine's.
	stoppedCheckInterval = 2 * time.Second
)

// stallDetector is what is known of an agent's signs of life: output, which the adapter
// sees, and tool calls, of which renewals tell. Time in suspend does not count,
// since nobody can work then.
type stallDetector struct {
	threshold time.Duration // of silence to a nudge, and from there to the end; 0: never
	clock     func() time.Duration
	suspend   suspendDetector

	mu         sync.Mutex
	lastSign   time.Time // the last sign
	knownUntil time.Time // up to then the store has said what it knows
	lastNudge  int64     // the highest nudge of the store that was passed on

	nudgedAt     time.Time // zero: not since the last sign
	checkedAt    time.Time // at the processes
	stoppedSince time.Time // since when all of them are; zero: they are not
}

func newStallDetector(lease picket.Lease, clock func() time.Duration) *stallDetector {
	l := &stallDetector{clock: clock}
	if s := lease.Task.StallAfterSeconds; s != nil {
		l.threshold = time.Duration(*s) * time.Second
	}
	return l
}

// start counts from the launch.
func (l *stallDetector) start() {
	l.touch(time.Now())
	l.suspend = newSuspendDetector(l.clock)
}

func (l *stallDetector) touch(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if at.After(l.lastSign) {
		l.lastSign = at
	}
}

// renewed takes what a renewal says: the age of the last tool call. The request
// was sent that long ago.
func (l *stallDetector) renewed(idle *int64, ago time.Duration) {
	now := time.Now()
	l.mu.Lock()
	l.knownUntil = now.Add(-ago)
	l.mu.Unlock()
	if idle != nil {
		l.touch(now.Add(-time.Duration(*idle) * time.Millisecond))
	}
}

// watchWriter lets what is written count as a sign.
func (l *stallDetector) watchWriter(w io.Writer) io.Writer { return touchWriter{w, l} }

type touchWriter struct {
	io.Writer
	life *stallDetector
}

func (m touchWriter) Write(p []byte) (int, error) {
	if len(p) > 0 {
		m.life.touch(time.Now())
	}
	return m.Writer.Write(p)
}

// silenceState is what a look at the signs of life asks for.
type silenceState int

const (
	notSilent          silenceState = iota
	silenceUnconfirmed              // the store has to be asked for tool calls first
	silentOnce                      // it has to be nudged
	silentAfterNudge                // it was nudged, without effect
)

// check judges the silence up to now, and how long it is.
func (l *stallDetector) check() (silenceState, time.Duration) {
	now := time.Now()
	if l.suspend.wasSuspended() {
		l.touch(now)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.threshold == 0 {
		return notSilent, 0
	}
	if l.lastSign.After(l.nudgedAt) {
		l.nudgedAt = time.Time{}
	}
	since := l.lastSign
	if !l.nudgedAt.IsZero() {
		since = l.nudgedAt
	}
	due := since.Add(l.threshold)
	switch {
	case now.Before(due):
		return notSilent, 0
	case l.knownUntil.Before(due):
		return silenceUnconfirmed, 0
	case l.nudgedAt.IsZero():
		l.nudgedAt = now
		return silentOnce, now.Sub(l.lastSign)
	}
	return silentAfterNudge, now.Sub(l.lastSign)
}

// hung reports whether every process has been stopped for too long.
func (l *stallDetector) hung(p process.Process) bool {
	o, ok := p.(process.Observer)
	now := time.Now()
	if !ok || now.Sub(l.checkedAt) < stoppedCheckInterval {
		return false
	}
	l.checkedAt = now
	if !o.Stopped() {
		l.stoppedSince = time.Time{}
		return false
	}
	if l.stoppedSince.IsZero() {
		l.stoppedSince = now
	}
	return now.Sub(l.stoppedSince) >= maxStopped
}

// isNewNudge reports whether a nudge of the store is a new one, and takes it.
func (l *stallDetector) isNewNudge(number int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if number <= l.lastNudge {
		return false
	}
	l.lastNudge = number
	return true
}
