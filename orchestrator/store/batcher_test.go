package store

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// batches is a batcher whose batches a test answers.
type batches struct {
	*batcher
	sent chan []*item
	done chan struct{}
}

func newBatches(urgent bool) *batches {
	b := &batches{sent: make(chan []*item, 10), done: make(chan struct{})}
	b.batcher = newBatcher(urgent, func(items []*item) {
		b.sent <- items
		<-b.done
		for _, it := range items {
			it.reply = it.args[0]
		}
	})
	return b
}

// call makes calls, whose answers the test does not wait for.
func (b *batches) call(t *testing.T, names ...string) {
	t.Helper()
	for _, name := range names {
		go func() {
			if got, err := b.do(t.Context(), nil, []any{name}, 1); err != nil || got != name {
				t.Errorf("%s is answered with %v, %v", name, got, err)
			}
		}()
		synctest.Wait()
	}
}

// wantSent wants the sizes of the batches that were sent since the last look.
func (b *batches) wantSent(t *testing.T, want ...int) {
	t.Helper()
	synctest.Wait()
	got := []int{}
	for len(b.sent) > 0 {
		got = append(got, len(<-b.sent))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("batches of %v calls were sent, want %v", got, want)
	}
}

// Two batches are under way at most. What comes meanwhile is the next one.
func TestCallsWaitForTheNextBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(false)
		b.call(t, "a", "b", "c", "d")
		b.wantSent(t, 1, 1)
		b.done <- struct{}{}
		b.wantSent(t, 2)
		b.call(t, "e")
		b.wantSent(t)
		close(b.done)
		b.wantSent(t, 1)
		if b.underWay != 0 {
			t.Errorf("%d batches are under way", b.underWay)
		}
	})
}

// One batch of urgent calls is under way. While it is slow, there is a second one, and no third.
func TestUrgentCallsDoNotWaitForASlowBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(true)
		b.call(t, "a", "b", "c")
		b.wantSent(t, 1)
		time.Sleep(slowBatch + time.Millisecond)
		b.wantSent(t, 2)
		b.call(t, "d")
		time.Sleep(slowBatch + time.Millisecond)
		b.wantSent(t)
		b.done <- struct{}{} // one of both; the other is slow
		b.wantSent(t, 1)
		b.done <- struct{}{}
		b.done <- struct{}{}
		b.wantSent(t)
		b.call(t, "e", "f")
		b.wantSent(t, 1)
		close(b.done)
		b.wantSent(t, 1)
		if b.underWay != 0 || b.slow != 0 {
			t.Errorf("%d batches are under way, %d are slow", b.underWay, b.slow)
		}
	})
}

// A call whose context has ended while it waited is not sent, even if nobody has withdrawn it yet.
func TestAnEndedContextIsNotSent(t *testing.T) {
	b := newBatches(false)
	ctx, cancel := context.WithCancel(t.Context())
	ended := &item{ctx: ctx, args: []any{"ended"}, size: 1, done: make(chan struct{})}
	goes := &item{ctx: t.Context(), args: []any{"goes"}, size: 1, done: make(chan struct{})}
	b.waiting, b.bytes, b.underWay = []*item{ended, goes}, 2, 1
	cancel()
	if got := b.next(); len(got) != 1 || got[0] != goes || b.bytes != 0 || len(b.waiting) != 0 {
		t.Errorf("the next batch has %d calls; %d calls and %d bytes wait", len(got), len(b.waiting), b.bytes)
	}
	if <-ended.done; picket.CodeOf(ended.err) != picket.CodeUnavailable || errors.Is(ended.err, picket.ErrUnknown) {
		t.Errorf("the call is answered with %v", ended.err)
	}
}

// A call that is given up while it waits is never sent, and one that was sent has an unknown outcome.
func TestACallIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBatches(true)
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := b.do(ctx, nil, []any{"x"}, 1)
				errs <- err
			}()
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if first, second := <-errs, <-errs; fmt.Sprint(first) == fmt.Sprint(second) {
			t.Errorf("both are answered with %v", first)
		}
		close(b.done)
		b.wantSent(t, 1)
	})
}
