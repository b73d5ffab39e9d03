package toolproxy

import (
	"io"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// maxThoughts is how many requests of a run may be under way at once: each
// holds its whole body, and one event of its answer.
const maxThoughts = 8

// gate counts the requests of each run. The zero value is ready.
type gate struct {
	mu     sync.Mutex
	inside map[string]int
}

// enter lets one more in, until leave is called.
func (g *gate) enter(run string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside[run] >= maxThoughts {
		return nil, busy()
	}
	if g.inside == nil {
		g.inside = map[string]int{}
	}
	g.inside[run]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.inside[run]--; g.inside[run] == 0 {
			delete(g.inside, run)
		}
	}, nil
}

func busy() error {
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait until one of them has ended.",
		"%d calls of models are under way in this run already", maxThoughts)
	refusal.RetryAfter = time.Second
	return refusal
}

// parcel is a body that is let go of when it was sent: an answer may take many
// minutes after that.
type parcel struct {
	mu    sync.Mutex
	whole []byte
}

// open begins to send it; a connection that turns out to be closed has it begin
// again.
func (p *parcel) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &parcelReader{left: p.whole}, nil
}

// drop lets go of it.
func (p *parcel) drop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = nil
}

type parcelReader struct {
	mu   sync.Mutex // it may be closed while it is read
	left []byte
}

func (r *parcelReader) Read(b []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.left) == 0 {
		r.left = nil
		return 0, io.EOF
	}
	n := copy(b, r.left)
	r.left = r.left[n:]
	return n, nil
}

func (r *parcelReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
	return nil
}
