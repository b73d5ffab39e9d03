package console

import (
	"sync"
	"time"
)

const (
	// maxAttempts is how many wrong keys an address may try a minute.
	maxAttempts = 10
	// maxLogins is how many sessions a key may open a minute: each of them is
	// written down, and so is its end.
	maxLogins = 20
	// maxCounted bounds the memory of it: when so many try at once, all of them
	// share what is left.
	maxCounted = 10_000
	window     = time.Minute
)

// attempts counts what somebody tries, in windows of a minute.
type attempts[Who comparable] struct {
	most  int
	mu    sync.Mutex
	since time.Time
	tried map[Who]int
}

func newAttempts[Who comparable](most int) *attempts[Who] {
	return &attempts[Who]{most: most, tried: map[Who]int{}}
}

// begin counts an attempt before it is made, so that many at once are bounded
// too; what is not to count gives it back. When there are none left it says how
// long to wait.
func (a *attempts[Who]) begin(who Who) (giveBack func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.since) >= window {
		a.since = now
		clear(a.tried)
	}
	if _, known := a.tried[who]; !known && len(a.tried) >= maxCounted {
		var all Who
		who = all
	}
	if a.tried[who] >= a.most {
		return func() {}, a.since.Add(window).Sub(now)
	}
	a.tried[who]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.tried[who] > 0 {
			a.tried[who]--
		}
	}, 0
}
