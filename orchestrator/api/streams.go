package api

import (
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// retryReader is when a reader for whom there was no room may ask again.
const retryReader = 5 * time.Second

// streams bounds how many streams one key reads at once from this process: each
// holds a connection and a page of events, for as long as its reader likes.
type streams struct {
	most int
	mu   sync.Mutex
	open map[streamer]int
}

type streamer struct {
	namespace string
	key       string
}

func newStreams(most int) *streams { return &streams{most: most, open: map[streamer]int{}} }

// enter lets one more stream of a key in, until leave is called. It refuses
// with [picket.CodeRateLimited].
func (r *streams) enter(who picket.Principal) (leave func(), err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := streamer{who.Namespace, who.KeyID}
	if r.open[of] >= r.most {
		refusal := picket.Refuse(picket.CodeRateLimited,
			"Close streams that nobody reads, or give every program a key of its own: picket key create NAME --scope reviewer",
			"the key %s reads %d streams of events here already", who.Name, r.most).With("limit", r.most)
		refusal.RetryAfter = retryReader
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
