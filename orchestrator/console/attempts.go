package console

import (
	"net/netip"
	"sync"
	"time"
)

const (
	// maxAttempts is how many wrong keys an address may try a minute.
	maxAttempts = 10
	// maxAddresses bounds the memory of it: when so many addresses try at once,
	// all of them share what is left.
	maxAddresses = 10_000
	window       = time.Minute
)

// attempts counts wrong keys by remote address, in windows of a minute.
type attempts struct {
	mu    sync.Mutex
	since time.Time
	tried map[netip.Prefix]int
}

func newAttempts() *attempts { return &attempts{tried: map[netip.Prefix]int{}} }

// begin counts an attempt before it is made, so that many at once are bounded
// too; a right key gives it back. When there are none left it says how long a
// wrong one has to wait.
func (a *attempts) begin(from netip.Prefix) (giveBack func(), wait time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if now.Sub(a.since) >= window {
		a.since = now
		clear(a.tried)
	}
	if _, known := a.tried[from]; !known && len(a.tried) >= maxAddresses {
		from = netip.Prefix{}
	}
	if a.tried[from] >= maxAttempts {
		return func() {}, a.since.Add(window).Sub(now)
	}
	a.tried[from]++
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.tried[from] > 0 {
			a.tried[from]--
		}
	}, 0
}
