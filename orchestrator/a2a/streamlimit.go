package a2a

import (
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// streamLimiter bounds how many streams and waiting sends of one key are open at once.
type streamLimiter struct {
	most int
	mu   sync.Mutex
	open map[streamKey]int
}

type streamKey struct{ namespace, key string }

// acquire lets one more stream of a key in, until leave is called.
func (l *streamLimiter) acquire(who picket.Principal) (leave func(), err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	of := streamKey{who.Namespace, who.KeyID}
	if l.open[of] >= l.most {
		refusal := picket.Refuse(picket.CodeRateLimited, "Close streams that nobody reads, or send with returnImmediately.",
			"the key has %d open streams and waiting requests here, which is the most", l.most).With("limit", l.most)
		refusal.RetryAfter = 5 * time.Second
		return nil, refusal
	}
	l.open[of]++
	return sync.OnceFunc(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.open[of]--; l.open[of] == 0 {
			delete(l.open, of)
		}
	}), nil
}
