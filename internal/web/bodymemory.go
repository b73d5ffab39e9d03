package web

import (
	"container/list"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// maxHeldBodies bounds what all request bodies of this process take together,
// in bytes, from their first byte until their request is answered. One body may
// have a megabyte; without this bound, clients who send it slowly or never to
// its end would take that as often as they can connect.
const maxHeldBodies = 16 << 20

// maxHeldLargeBodies bounds the bodies of requests that called [CountAsLarge]. One of them may have
// several megabytes. They are counted apart, so that a few of them do not take the room of all
// other requests.
const maxHeldLargeBodies = 32 << 20

// One of each for the whole process, as its memory is.
var (
	heldBodies      = newBodyMemory(maxHeldBodies)
	heldLargeBodies = newBodyMemory(maxHeldLargeBodies)
)

// errNoBodyMemory ends the reading of a body that there is no room for.
var errNoBodyMemory = errors.New("no room for more request bodies")

// bodyMemory counts the bodies that are held. If there is no room for a new body, the body
// that has been arriving for longest is cut off, because an honest client sends its body
// soon.
type bodyMemory struct {
	mu       sync.Mutex
	freed    *sync.Cond // signalled when a request ends
	limit    int64
	total    int64
	arriving list.List // of *timedBody, the oldest first
	evicting int       // bodies that were cut and are not let go yet
}

func newBodyMemory(most int64) *bodyMemory {
	h := &bodyMemory{limit: most}
	h.freed = sync.NewCond(&h.mu)
	return h
}

// add counts n more bytes of b, and waits for their room. It reports false when
// b has to end.
func (h *bodyMemory) add(b *timedBody, n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.element == nil && !b.evicted {
		b.element = h.arriving.PushBack(b)
	}
	for !b.evicted && h.total+n > h.limit {
		if h.evicting == 0 && h.evictOldest() == b {
			break
		}
		h.freed.Wait()
	}
	if b.evicted {
		return false
	}
	b.size += n
	h.total += n
	return true
}

func (h *bodyMemory) evictOldest() *timedBody {
	b := h.arriving.Front().Value.(*timedBody)
	h.dequeue(b)
	b.evicted = true
	h.evicting++
	h.freed.Broadcast()                       // it may wait for room itself
	_ = b.rc.SetReadDeadline(time.Unix(1, 0)) // or for its client
	return b
}

// finished takes b, which is in or given up, out of those that can be cut.
func (h *bodyMemory) finished(b *timedBody) (cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dequeue(b)
	return b.evicted
}

// release is for the end of the request.
func (h *bodyMemory) release(b *timedBody) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dequeue(b)
	h.total -= b.size
	b.size = 0
	if b.evicted {
		h.evicting--
	}
	h.freed.Broadcast()
}

// ForgetBody gives back the memory of a body that was read to its end, before the request is answered. A request that
// waits without a bound calls it when it needs its body no more, or such requests would take the room of all others.
func ForgetBody(c echo.Context) {
	if b, ok := c.Request().Body.(*timedBody); ok && b.done.Load() {
		b.memory.release(b)
	}
}

// CountAsLarge counts the body of the request apart from those of other requests. It must be called before the body is
// read.
func CountAsLarge(c echo.Context) {
	if b, ok := c.Request().Body.(*timedBody); ok {
		b.memory = heldLargeBodies
	}
}

func (h *bodyMemory) dequeue(b *timedBody) {
	if b.element != nil {
		h.arriving.Remove(b.element)
		b.element = nil
	}
}

// timedBody lifts the read deadline once the body is in. After any other end
// the deadline stays, or the server would read the rest of the body for ever.
type timedBody struct {
	io.ReadCloser
	rc     *http.ResponseController
	done   atomic.Bool // read to its end, or beyond reading
	memory *bodyMemory // which counts it

	// The lock of the memory protects what follows.
	element *list.Element // in the line of arriving bodies
	size    int64         // bytes counted
	evicted bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !b.memory.add(b, int64(n)) || err != nil && b.memory.finished(b) {
		return 0, errNoBodyMemory
	}
	if err != nil && b.done.CompareAndSwap(false, true) && err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// drain reads what a refused client still sends, within bounds: a connection
// that is closed under a writing client takes the answer away with it.
func (b *timedBody) drain(r *http.Request) {
	b.memory.release(b)
	if b.done.Load() {
		return
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(drainBodyTimeout))
	if r.Header.Get("Expect") == "" { // otherwise the client waits for 100 Continue
		_, _ = io.CopyN(io.Discard, b.ReadCloser, maxDrain)
	}
}

func bodyMemoryRefusal(err error) *picket.Error {
	e := picket.Refuse(picket.CodeUnavailable, "Wait a moment and repeat the same request; nothing else is needed.",
		"the server holds as many request bodies as it can")
	e.RetryAfter = time.Second
	return e.WithCause(err)
}

// chunk is how much of a body is read at a time. Pieces are used again: what is
// read only to be refused would be garbage faster than it is collected.
type chunk [8 << 10]byte

var chunkPool = sync.Pool{New: func() any { return new(chunk) }}

// readUpTo reads at most limit+1 bytes. It takes hardly more memory than has
// come.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	var all []*chunk
	defer func() {
		for _, p := range all {
			chunkPool.Put(p)
		}
	}()
	size := 0
	for left := int(limit) + 1; left > 0; {
		p := chunkPool.Get().(*chunk)
		all = append(all, p)
		n, err := io.ReadFull(r, p[:min(len(p), left)])
		size, left = size+n, left-n
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	body := make([]byte, 0, size)
	for _, p := range all {
		body = append(body, p[:min(len(p), size-len(body))]...)
	}
	return body, nil
}
