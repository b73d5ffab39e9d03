package adapter

import (
	"context"
	"slices"
	"sync"
	"time"
)

// postQueue brings what a run has to tell to the proxy, in its order and without ever
// making anybody wait. What waits stays until it has arrived or was refused.
type postQueue[T any] struct {
	post    func(ctx context.Context, items []T) error
	most    int                  // how many items go into one post
	same    func(a, b T) bool    // whether a waiting item is the one that was posted
	final   func(err error) bool // whether nothing is taken any more after an error; nil: never
	onStore func(waiting []T)    // told, under the lock, what waits after each change; nil: nobody

	mu      sync.Mutex
	waiting []T
	closed  bool
	changed chan struct{} // has room for one: something changed
}

// update changes what waits, unless the queue is closed.
func (q *postQueue[T]) update(edit func(waiting []T) []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.store(edit(q.waiting))
		wakeUp(q.changed)
	}
}

func (q *postQueue[T]) store(waiting []T) {
	q.waiting = waiting
	if q.onStore != nil {
		q.onStore(waiting)
	}
}

// close lets run end as soon as everything has arrived.
func (q *postQueue[T]) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	wakeUp(q.changed)
}

// run posts until everything has arrived after close, until ctx ends, or until nothing is
// taken any more.
func (q *postQueue[T]) run(ctx context.Context) {
	pace := backoff{least: 200 * time.Millisecond, most: 5 * time.Second}
	for {
		items, open := q.first()
		if len(items) == 0 {
			if !open {
				return
			}
			select {
			case <-q.changed:
				continue
			case <-ctx.Done():
				return
			}
		}
		try, cancel := context.WithTimeout(ctx, reportTimeout)
		err := q.post(try, items)
		cancel()
		if isRetryable(err) {
			if !pace.pause(ctx) {
				return
			}
			continue
		}
		if q.final != nil && q.final(err) {
			return
		}
		pace.reset()
		q.remove(items)
	}
}

// first copies the items of the next post.
func (q *postQueue[T]) first() (items []T, open bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.waiting[:min(len(q.waiting), q.most)]), !q.closed
}

// remove forgets items that were posted, except those that have changed since.
func (q *postQueue[T]) remove(items []T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.store(slices.DeleteFunc(q.waiting, func(w T) bool {
		return slices.ContainsFunc(items, func(posted T) bool { return q.same(w, posted) })
	}))
}
