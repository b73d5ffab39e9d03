package toolproxy_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// eyes counts how often the end of a lease is waited for.
type eyes struct {
	*purse
	watches, open int
}

func (e *eyes) AwaitEnd(ctx context.Context, _ picket.Held, _ time.Duration) (bool, error) {
	e.watches++
	e.open++
	defer func() { e.open-- }()
	<-ctx.Done()
	return false, ctx.Err()
}

// A run is watched once, however many calls it makes one after the other, and
// no longer than a moment after the last.
func TestARunIsWatchedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, door := till(t, fromOne), &eyes{purse: newPurse(100 * cent)}
		call := func(effects picket.Effects) {
			if _, err := p.Metered(t.Context(), door, aHeld, toolproxy.MeteredCall{Tool: "free", Effects: effects, Dispatch: answers(`{}`)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		call(picket.EffectsNone)
		if door.watches != 0 {
			t.Error("a call without effects is watched")
		}
		for range 5 {
			call(picket.EffectsExternal)
			time.Sleep(9 * time.Second)
		}
		if door.watches != 1 || door.open != 1 {
			t.Errorf("%d watches, %d open", door.watches, door.open)
		}
		time.Sleep(2 * time.Second)
		if synctest.Wait(); door.open != 0 {
			t.Error("the watch goes on without calls")
		}
		call(picket.EffectsExternal)
		if door.watches != 2 || door.open != 1 {
			t.Errorf("called again: %d watches, %d open", door.watches, door.open)
		}
		p.Close()
		if synctest.Wait(); door.open != 0 {
			t.Error("the watch outlives the proxy")
		}
		call(picket.EffectsExternal)
		if door.open != 0 {
			t.Error("a call during the stop is watched for ever")
		}
	})
}
