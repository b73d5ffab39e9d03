package mcp

import (
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// An upstream that does not stop saying that its lists have changed is read
// ever more seldom; one that is quiet again is read at once.
func TestListRefreshesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, ended := make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		var all []time.Time
		read := func() []time.Time {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		u := newUpstreamClient(Upstream{Name: "up"}, slog.New(slog.DiscardHandler), nil, nil)
		loop := func() {
			u.refreshLoop(t.Context(), gone, func() {
				mu.Lock()
				all = append(all, time.Now())
				mu.Unlock()
				time.Sleep(100 * time.Millisecond) // what changes during a reading counts
			})
		}
		go func() {
			loop()
			close(ended)
		}()
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			u.markChanged()
			time.Sleep(10 * time.Millisecond)
		}
		reads := read()
		if n := len(reads); n < 15 || n > 35 {
			t.Errorf("%d readings in 10 minutes of changes without end", n)
		}
		for i := range reads[1:] {
			if pause := reads[i+1].Sub(reads[i]); pause < 200*time.Millisecond {
				t.Errorf("a pause of %s", pause)
			}
		}
		time.Sleep(4 * time.Minute) // it is quiet
		before := time.Now()
		u.markChanged()
		reads = read()
		if last := reads[len(reads)-1]; !last.Equal(before) {
			t.Errorf("after a quiet time it is read after %s", before.Sub(last))
		}
		n := len(reads)
		time.Sleep(50 * time.Millisecond)
		u.markChanged() // during that reading
		time.Sleep(200 * time.Millisecond)
		if got := len(read()); got != n+1 {
			t.Errorf("%d readings for a change during a reading", got-n)
		}
		time.Sleep(100 * time.Millisecond)
		u.markChanged() // in the pause after it
		synctest.Wait()
		close(gone)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("a pause outlasts the connection")
		}
	})
}
