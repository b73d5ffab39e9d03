package adapter

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/picket-dev/picket"
)

// watchTimeout is how long one watch waits at the proxy.
const watchTimeout = 50 * time.Second

// watchLease tells every change of the lease until it has ended or ctx ends.
// Errors other than a definite loss are for the keeper to judge; the watch
// just comes back. known are the programs that it need not tell of.
func watchLease(ctx context.Context, p *Proxy, known func() []string, changed func(picket.Watch)) {
	const least, most = 200 * time.Millisecond, 5 * time.Second
	for wait := least; ctx.Err() == nil; {
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
		if err == nil && time.Since(asked) > time.Second {
			wait = least
			continue
		}
		// An error, or a server that answers at once: it is not to be hammered.
		if !sleep(ctx, wait/2+rand.N(wait)) {
			return
		}
		if err != nil {
			wait = min(2*wait, most)
		}
	}
}
