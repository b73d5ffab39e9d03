package console

import (
	"sync"
	"time"
)

const (
	// wrongKeysPerMinute is how many wrong keys an address may try a minute.
	wrongKeysPerMinute = 10
	// loginsPerMinute is how often a key may log in within a minute: each login
	// is written down, and so is its end.
	loginsPerMinute = 20
	// maxTracked bounds the memory of it: when so many try at once, all of them
	// share what is left.
	maxTracked = 10_000
	window     = time.Minute
)

// attemptLimiter counts what somebody tries, in windows of a minute.
type attemptLimiter[Who comparable] struct {
	limit       int
	mu          sync.Mutex
	windowStart time.Time
	counts      map[Who]int
}

func newAttempts[Who comparable](most int) *attemptLimiter[Who] {
	return &attemptLimiter[Who]{limit: most, counts: map[Who]int{}}
}

// take counts an attempt before it is made, so that many at once are bounded
// too; what is not to count gives it back. When there are none left it says how
// long to wait.
func (a *attemptLimiter[Who]) take(who Who) (giveBack func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.windowStart) >= window {
		a.windowStart = now
		clear(a.counts)
	}
	if _, known := a.counts[who]; !known && len(a.counts) >= maxTracked {
		var all Who
		who = all
	}
	if a.counts[who] >= a.limit {
		return func() {}, a.windowStart.Add(window).Sub(now)
	}
	a.counts[who]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.counts[who] > 0 {
			a.counts[who]--
		}
	}, 0
}
