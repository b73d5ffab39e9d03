package toolproxy_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// countingBackend counts how often the end of a lease is waited for.
type countingBackend struct {
	*fakeEnvelope
	watches atomic.Int64
	open    atomic.Int64
}

func (e *countingBackend) AwaitEnd(ctx context.Context, _ picket.LeaseCredential, _ time.Duration) (bool, error) {
	e.watches.Add(1)
	e.open.Add(1)
	defer e.open.Add(-1)
	<-ctx.Done()
	return false, ctx.Err()
}

// A run is watched once, however many calls it makes one after the other, and
// no longer than a moment after the last.
func TestARunIsWatchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, door := newPricedProxy(t, fromOne), &countingBackend{fakeEnvelope: newFakeEnvelope(100 * cent)}
		call := func(effects picket.Effects) {
			if _, err := p.Metered(t.Context(), door, aHeld,
				toolproxy.MeteredCall{Tool: "free", Effects: effects, Dispatch: answers(`{}`)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		call(picket.EffectsNone)
		if door.watches.Load() != 0 {
			t.Error("a call without effects is watched")
		}
		for range 5 {
			call(picket.EffectsExternal)
			time.Sleep(9 * time.Second)
		}
		if door.watches.Load() != 1 || door.open.Load() != 1 {
			t.Errorf("%d watches, %d open", door.watches.Load(), door.open.Load())
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); door.open.Load() != 0 {
			t.Error("the watch goes on without calls")
		}
		call(picket.EffectsExternal)
		if door.watches.Load() != 2 || door.open.Load() != 1 {
			t.Errorf("called again: %d watches, %d open", door.watches.Load(), door.open.Load())
		}
		p.Close()
		if synctest.Wait(); door.open.Load() != 0 {
			t.Error("the watch outlives the proxy")
		}
		call(picket.EffectsExternal)
		if door.open.Load() != 0 {
			t.Error("a call during the stop is watched for ever")
		}
	})
}
