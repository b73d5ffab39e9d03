package toolproxy

import (
	"context"
	"errors"
	"sync"

	"github.com/picket-dev/picket"
)

// leaseWatches remembers the open watch of each run, so that a run that connects
// again does not pile up waits: the newer watch displaces the older. The zero
// value is ready.
type leaseWatches struct {
	mu    sync.Mutex
	byRun map[runKey]*context.CancelCauseFunc
}

// runKey names a run. It includes the task, because the MAC does not cover the task: an
// edited lease token must not displace the watch of the real one.
type runKey struct {
	namespace string
	task      string
	run       string
}

var errDisplaced = errors.New("a newer watch of this run took its place")

// add makes the caller the one watch of its run. The context ends when a
// newer one comes; leave must be called when the wait is over.
func (w *leaseWatches) add(ctx context.Context, held picket.LeaseCredential) (_ context.Context, leave func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	who, mine := runKey{held.Namespace, held.TaskID, held.RunID}, &cancel
	w.mu.Lock()
	defer w.mu.Unlock()
	if older := w.byRun[who]; older != nil {
		(*older)(errDisplaced)
	}
	if w.byRun == nil {
		w.byRun = map[runKey]*context.CancelCauseFunc{}
	}
	w.byRun[who] = mine
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.byRun[who] == mine {
			delete(w.byRun, who)
		}
		cancel(nil)
	}
}

// displaced reports whether a newer watch ended the wait.
func displaced(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errDisplaced) }
