// Package attempts limits how often somebody may try something, such as a key at the sign-in.
package attempts

import (
	"sync"
	"time"
)

const (
	// maxTracked bounds the memory of it: when so many try at once, all of them
	// share what is left.
	maxTracked = 10_000
	window     = time.Minute
)

// A Limiter counts what somebody tries, in windows of a minute.
type Limiter[Who comparable] struct {
	limit       int
	mu          sync.Mutex
	windowStart time.Time
	counts      map[Who]int
}

// New is a limiter that lets each of them try limit times a minute.
func New[Who comparable](limit int) *Limiter[Who] {
	return &Limiter[Who]{limit: limit, counts: map[Who]int{}}
}

// Take counts an attempt before it is made, so that many at once are bounded
// too; what is not to count gives it back. When there are none left it says how
// long to wait.
func (a *Limiter[Who]) Take(who Who) (giveBack func(), wait time.Duration) {
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
