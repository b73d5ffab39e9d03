package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

const (
	// mostInBatch and mostBatchBytes bound a batch, which keeps all other callers waiting.
	mostInBatch    = 64
	mostBatchBytes = 256 << 10
	// largeItem is the largest size of a call in a batch, in bytes. A larger call is sent alone, so that no call
	// waits behind it.
	largeItem = 64 << 10
	// mostArguments is how many arguments a call in a batch may have: a verb gets them through the stack of Lua.
	mostArguments = 1000
	// mostUnderWay is how many batches of one kind are under way at a time: while Redis runs one, the next
	// is written. Of urgent calls it is one, so that batches are larger and fewer. If it is slow, because its answer is
	// lost for example, a second one is sent.
	mostUnderWay = 2
	slowBatch    = 50 * time.Millisecond
	// mostWaiting and mostWaitingBytes bound the calls that wait for a batch. More are refused at once.
	mostWaiting      = 8192
	mostWaitingBytes = 64 << 20
)

// batchKey says which calls may be in one batch.
type batchKey struct {
	namespace string
	urgent    bool
}

// batcher collects the calls that come while enough batches are under way, and sends them to Redis as the
// next one. If fewer are under way, a call is sent at once. Each call has its own answer.
type batcher struct {
	send    func(items []*item) // answers all
	enough  int                 // batches under way that are not slow
	mu      sync.Mutex
	waiting []*item // in the order in which they came
	bytes   int64   // of all that wait
	// underWay counts batches, and slow those of them that take longer than slowBatch.
	underWay, slow int
}

// item is one call in a batch.
type item struct {
	ctx    context.Context // of the caller
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
	b, _ := g.batchers.LoadOrStore(key, newBatcher(key.urgent, func(items []*item) { g.sendBatch(key, items) }))
	return b.(*batcher)
}

func newBatcher(urgent bool, send func(items []*item)) *batcher {
	b := &batcher{send: send, enough: mostUnderWay}
	if urgent {
		b.enough = 1
	}
	return b
}

// do makes a call and waits for its answer. If ctx ends while the call still waits for its batch, it
// is not made; if it ends later, the outcome is unknown.
func (b *batcher) do(ctx context.Context, s *script, args []any, size int64) (any, error) {
	it := &item{ctx: ctx, script: s, args: args, size: size, done: make(chan struct{})}
	if !b.add(it) {
		return nil, Unavailable("too many calls wait for the store", nil)
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
	b.sendMore()
	return true
}

// sendMore has what waits sent, unless enough batches are under way. The caller has locked the batcher.
func (b *batcher) sendMore() {
	if len(b.waiting) > 0 && b.underWay < mostUnderWay && b.underWay-b.slow < b.enough {
		b.underWay++
		go b.work()
	}
}

// watch notices that a batch is slow, until the function that it returns is called.
func (b *batcher) watch() (stop func()) {
	if b.enough == mostUnderWay {
		return func() {}
	}
	slow, over := false, false
	timer := time.AfterFunc(slowBatch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if !over {
			slow = true
			b.slow++
			b.sendMore()
		}
	})
	return func() {
		timer.Stop()
		b.mu.Lock()
		defer b.mu.Unlock()
		over = true
		if slow {
			b.slow--
		}
	}
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
	defer b.watch()()
	b.send(items)
}

// next takes the next batch from the queue. If there is none, or others are enough, one batch fewer is under way.
func (b *batcher) next() (items []*item) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n, size := 0, int64(0)
	for b.underWay-b.slow <= b.enough && n < len(b.waiting) && len(items) < mostInBatch {
		it := b.waiting[n]
		if it.ctx.Err() != nil { // it is not sent
			it.err = Unavailable("the request was given up before it was sent", it.ctx.Err())
			close(it.done)
		} else if size += it.size; len(items) == 0 || size <= mostBatchBytes {
			items = append(items, it)
		} else {
			break
		}
		b.bytes -= it.size
		n++
	}
	if len(items) == 0 {
		b.underWay--
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
			if it.err = it.ctx.Err(); it.err != nil {
				it.err = Unavailable("the request was given up before it was sent", it.err)
				continue
			}
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
