package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

const (
	// mostInBatch and mostBatchBytes bound a batch, which keeps all other callers waiting.
	mostInBatch    = 64
	mostBatchBytes = 256 << 10
	// largeItem is the most bytes of a call in a batch. A larger call is sent alone, so that no call
	// waits behind it.
	largeItem = 64 << 10
	// mostArguments is how many arguments a call in a batch may have: a verb gets them through the stack of Lua.
	mostArguments = 1000
	// mostUnderWay is how many batches of one kind are under way at a time: while Redis runs one, the next
	// is written.
	mostUnderWay = 2
	// mostWaiting and mostWaitingBytes bound the calls that wait for a batch. More are refused at once.
	mostWaiting      = 8192
	mostWaitingBytes = 64 << 20
)

// batchKey says which calls may be in one batch.
type batchKey struct {
	namespace string
	urgent    bool
}

// batcher collects the calls that come while mostUnderWay batches are under way, and sends them to Redis as the
// next one. If fewer are under way, a call is sent at once. Each call has its own answer.
type batcher struct {
	send func(items []*item) // answers all

	mu       sync.Mutex
	waiting  []*item // in the order in which they came
	bytes    int64   // of all that wait
	underWay int     // batches
}

// item is one call in a batch.
type item struct {
	script *script
	args   []any
	size   int64
	reply  any
	err    error
	done   chan struct{} // closed when reply and err are set
}

func (g *scriptRunner) batcher(s *script, namespace string) *batcher {
	key := batchKey{namespace, s.Urgent}
	if b, ok := g.batchers.Load(key); ok {
		return b.(*batcher)
	}
	b, _ := g.batchers.LoadOrStore(key, &batcher{send: func(items []*item) { g.sendBatch(key, items) }})
	return b.(*batcher)
}

// do makes a call and waits for its answer. If ctx ends while the call still waits for its batch, it
// is not made; if it ends later, the outcome is unknown.
func (b *batcher) do(ctx context.Context, s *script, args []any, size int64) (any, error) {
	it := &item{script: s, args: args, size: size, done: make(chan struct{})}
	if !b.add(it) {
		return nil, Unavailable("too many calls wait for the state of record", nil)
	}
	select {
	case <-it.done:
		return it.reply, it.err
	case <-ctx.Done():
	}
	if b.withdraw(it) {
		return nil, Unavailable("the request was given up before it was sent", ctx.Err())
	}
	select {
	case <-it.done:
		return it.reply, it.err
	default:
		return nil, ctx.Err()
	}
}

// add puts a call into the queue. It reports false if the queue is full.
func (b *batcher) add(it *item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= mostWaiting || b.bytes > mostWaitingBytes {
		return false
	}
	b.waiting = append(b.waiting, it)
	b.bytes += it.size
	if b.underWay < mostUnderWay {
		b.underWay++
		go b.work()
	}
	return true
}

// withdraw takes a call out of the queue. It reports false if the call was sent before.
func (b *batcher) withdraw(it *item) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, it)
	if i >= 0 {
		b.waiting = slices.Delete(b.waiting, i, i+1)
		b.bytes -= it.size
	}
	return i >= 0
}

// work sends batches until nothing waits.
func (b *batcher) work() {
	for {
		items := b.next()
		if len(items) == 0 {
			return
		}
		b.answer(items)
	}
}

// answer sends a batch and answers all its calls, even if sending panics.
func (b *batcher) answer(items []*item) {
	defer func() {
		v := recover()
		for _, it := range items {
			if v != nil {
				it.reply, it.err = nil, errors.Join(picket.ErrUnknown, fmt.Errorf("panic in a batch: %v", v))
			}
			close(it.done)
		}
	}()
	b.send(items)
}

// next takes the next batch from the queue. If there is none, one batch fewer is under way.
func (b *batcher) next() []*item {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, int64(0)
	for n < len(b.waiting) && n < mostInBatch {
		size += b.waiting[n].size
		if n > 0 && size > mostBatchBytes {
			break
		}
		n++
	}
	if n == 0 {
		b.underWay--
		return nil
	}
	items := slices.Clone(b.waiting[:n])
	for _, it := range items {
		b.bytes -= it.size
	}
	b.waiting = slices.Delete(b.waiting, 0, n)
	return items
}

// sendBatch sends calls as one and sets the outcome of each. A Redis over its maxmemory refuses a whole
// batch, unless all verbs in it have the flag allow-oom. Each call is then sent alone.
func (g *scriptRunner) sendBatch(key batchKey, items []*item) {
	ctx, cancel := context.WithTimeout(context.Background(), g.timeout)
	defer cancel()
	c := g.client(key.urgent)
	if len(items) == 1 {
		it := items[0]
		it.reply, it.err = g.call(ctx, c, it.script, key.namespace, it.args)
		return
	}
	n, allowOOM := 0, true
	for _, it := range items {
		n += 2 + len(it.args)
		allowOOM = allowOOM && slices.Contains(it.script.Flags, "allow-oom")
	}
	args := make([]any, 0, n)
	for _, it := range items {
		args = append(append(args, it.script.Name, len(it.args)), it.args...)
	}
	got, err := g.callFunction(ctx, c, g.program.Library().Batch(allowOOM), key.namespace, args)
	if isFull(err) { // nothing was done
		for _, it := range items {
			it.reply, it.err = g.call(ctx, c, it.script, key.namespace, it.args)
		}
		return
	}
	var replies []any
	if err == nil {
		replies, err = UnpackReplies(got)
	}
	if err == nil && len(replies) != 2*len(items) {
		err = fmt.Errorf("a batch of %d calls got %d values", len(items), len(replies))
	}
	for i, it := range items {
		switch {
		case err != nil:
			it.err = err
		case replies[2*i] == int64(1):
			said, _ := replies[2*i+1].(string)
			it.err = scriptError(said)
		default:
			it.reply = replies[2*i+1]
		}
	}
}

// isFull reports whether Redis has refused a call because it is full, or because it cannot take the library.
func isFull(err error) bool {
	return redis.HasErrorPrefix(err, "OOM") || picket.CodeOf(err) == picket.CodeStoreFull
}

// scriptError is what a script has refused with, as Redis tells it.
type scriptError string

var _ redis.Error = scriptError("")

func (e scriptError) Error() string { return string(e) }

// RedisError marks an error of the server.
func (e scriptError) RedisError() {}
