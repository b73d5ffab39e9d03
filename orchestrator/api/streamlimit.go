package api

import (
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// streamRetryAfter is when a reader for whom there was no room may ask again.
const streamRetryAfter = 5 * time.Second

// streamLimiter bounds how many streams one key reads at once from this process: each
// holds a connection and a page of events, for as long as its reader likes.
type streamLimiter struct {
	limit int
	mu    sync.Mutex
	open  map[streamKey]int
}

type streamKey struct {
	namespace string
	key       string
}

func newStreamLimiter(most int) *streamLimiter {
	return &streamLimiter{limit: most, open: map[streamKey]int{}}
}

// acquire lets one more stream of a key in, until leave is called. It refuses
// with [picket.CodeRateLimited].
func (r *streamLimiter) acquire(who picket.Principal) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := streamKey{who.Namespace, who.KeyID}
	if r.open[of] >= r.limit {
		refusal := picket.Refuse(picket.CodeRateLimited,
			"Close streams that nobody reads, or give every program a key of its own: picket key create NAME --scope reviewer",
			"the key %s reads %d streams of events here already", who.Name, r.limit).With("limit", r.limit)
		refusal.RetryAfter = streamRetryAfter
		return nil, refusal
	}
	r.open[of]++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.open[of]--; r.open[of] == 0 {
			delete(r.open, of)
		}
	}, nil
}
