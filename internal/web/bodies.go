package web

import (
	"container/list"
	"errors"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
)

// maxHeldBodies bounds what all request bodies of this process take together,
// in bytes, from their first byte until their request is answered. One body may
// have a megabyte; without this bound, clients who send it slowly or never to
// its end would take that as often as they can connect.
const maxHeldBodies = 16 << 20

// held is one for the whole process, as its memory is.
var held = newHoldings(maxHeldBodies)

// errCrowded ends the reading of a body that there is no room for.
var errCrowded = errors.New("no room for more request bodies")

// holdings counts the bodies that are held. Who comes when there is no room
// takes that of the body that has been arriving for longest: an honest one is
// in soon, so it is the one that is being dragged out.
type holdings struct {
	mu       sync.Mutex
	room     *sync.Cond // signalled when a request ends
	most     int64
	sum      int64
	arriving list.List // of *timedBody, the oldest first
	cutting  int       // bodies that were cut and are not let go yet
}

func newHoldings(most int64) *holdings {
	h := &holdings{most: most}
	h.room = sync.NewCond(&h.mu)
	return h
}

// add counts n more bytes of b, and waits for their room. It reports false when
// b has to end.
func (h *holdings) add(b *timedBody, n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if b.place == nil && !b.cut {
		b.place = h.arriving.PushBack(b)
	}
	for !b.cut && h.sum+n > h.most {
		if h.cutting == 0 && h.cutOldest() == b {
			break
		}
		h.room.Wait()
	}
	if b.cut {
		return false
	}
	b.size += n
	h.sum += n
	return true
}

func (h *holdings) cutOldest() *timedBody {
	b := h.arriving.Front().Value.(*timedBody)
	h.leaveLine(b)
	b.cut = true
	h.cutting++
	h.room.Broadcast()                        // it may wait for room itself
	_ = b.rc.SetReadDeadline(time.Unix(1, 0)) // or for its client
	return b
}

// arrived takes b, which is in or given up, out of those that can be cut.
func (h *holdings) arrived(b *timedBody) (cut bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveLine(b)
	return b.cut
}

// forget is for the end of the request.
func (h *holdings) forget(b *timedBody) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.leaveLine(b)
	h.sum -= b.size
	b.size = 0
	if b.cut {
		h.cutting--
	}
	h.room.Broadcast()
}

func (h *holdings) leaveLine(b *timedBody) {
	if b.place != nil {
		h.arriving.Remove(b.place)
		b.place = nil
	}
}

// timedBody lifts the read deadline once the body is in. After any other end
// the deadline stays, or the server would read the rest of the body for ever.
type timedBody struct {
	io.ReadCloser
	rc   *http.ResponseController
	done atomic.Bool // read to its end, or beyond reading

	// The rest belongs to holdings, under its lock.
	place *list.Element // in the line of arriving bodies
	size  int64         // bytes counted
	cut   bool
}

func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 && !held.add(b, int64(n)) || err != nil && held.arrived(b) {
		return 0, errCrowded
	}
	if err != nil && b.done.CompareAndSwap(false, true) && err == io.EOF {
		_ = b.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// drain reads what a refused client still sends, within bounds: a connection
// that is closed under a writing client takes the answer away with it.
func (b *timedBody) drain(r *http.Request) {
	held.forget(b)
	if b.done.Load() {
		return
	}
	_ = b.rc.SetReadDeadline(time.Now().Add(drainBodyTimeout))
	if r.Header.Get("Expect") == "" { // else it waits for our leave to send
		_, _ = io.CopyN(io.Discard, b.ReadCloser, maxDrain)
	}
}

func crowded(err error) *picket.Error {
	e := picket.Refuse(picket.CodeUnavailable, "Wait a moment and repeat the same request; nothing else is needed.",
		"the server holds as many request bodies as it can")
	e.RetryAfter = time.Second
	return e.WithCause(err)
}

// piece is how much of a body is read at a time. Pieces are used again: what is
// read only to be refused would be garbage faster than it is collected.
type piece [8 << 10]byte

var pieces = sync.Pool{New: func() any { return new(piece) }}

// readUpTo reads at most limit+1 bytes. It takes hardly more memory than has
// come.
func readUpTo(r io.Reader, limit int64) ([]byte, error) {
	var all []*piece
	defer func() {
		for _, p := range all {
			pieces.Put(p)
		}
	}()
	size := 0
	for left := int(limit) + 1; left > 0; {
		p := pieces.Get().(*piece)
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
