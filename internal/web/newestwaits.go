package web

import (
	"context"
	"errors"
	"sync"
)

// NewestWaits keeps one open wait for each key, so that a caller that connects again does not pile up waits: the newer
// wait displaces the older. It knows the waits of this process alone. The zero value is ready.
type NewestWaits[K comparable] struct {
	mu   sync.Mutex
	open map[K]*context.CancelCauseFunc
}

var errDisplaced = errors.New("a newer wait of the same caller took its place")

// Begin makes the caller the one wait of its key. The context ends when a newer one begins, and [Displaced] tells. Call
// end when the wait is over.
func (w *NewestWaits[K]) Begin(ctx context.Context, key K) (_ context.Context, end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	mine := &cancel
	w.mu.Lock()
	defer w.mu.Unlock()
	if older := w.open[key]; older != nil {
		(*older)(errDisplaced)
	}
	if w.open == nil {
		w.open = map[K]*context.CancelCauseFunc{}
	}
	w.open[key] = mine
	return ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.open[key] == mine {
			delete(w.open, key)
		}
		cancel(nil)
	}
}

// Displaced reports whether a newer wait has ended this one.
func Displaced(ctx context.Context) bool { return errors.Is(context.Cause(ctx), errDisplaced) }
