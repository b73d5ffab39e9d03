package adapter

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

// watchTimeout is how long one watch waits at the proxy.
const watchTimeout = 50 * time.Second

// watchLease reports every change of the lease until it has ended or ctx ends. Errors other than a
// definite loss are left to the keeper, and the watch is repeated. known are the programs that need
// not be sent again.
func watchLease(ctx context.Context, p *Proxy, known func() []string, changed func(picket.Watch)) {
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for ctx.Err() == nil {
		asked := time.Now()
		w, news, err := p.Watch(ctx, watchTimeout, known()...)
		if news && w.State == picket.WatchReclaim {
			news = false
			_, err = p.Reclaim(ctx)
		}
		if leaseLost(err) {
			w, news = picket.Watch{State: picket.WatchLost}, true
		}
		if news {
			changed(w)
			if w.State != picket.WatchHeld {
				return
			}
		}
		if err == nil {
			pace.reset()
			if time.Since(asked) > time.Second {
				continue
			}
		}
		// An error, or a server that answers at once: it is not to be hammered.
		if !pace.pause(ctx) {
			return
		}
	}
}
