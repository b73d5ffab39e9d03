package llm

import (
	"io"
	"sync"
	"time"

	"github.com/picket-dev/picket"
)

// maxCallsPerRun is how many requests of a run may be under way at once. Each of them
// holds its whole body, and one event of its answer.
const maxCallsPerRun = 8

// callLimiter counts the requests of each run. The zero value is ready.
type callLimiter struct {
	mu     sync.Mutex
	active map[string]int
}

// admit lets one more in, until leave is called.
func (g *callLimiter) admit(run string) (leave func(), err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.active[run] >= maxCallsPerRun {
		return nil, tooManyCalls()
	}
	if g.active == nil {
		g.active = map[string]int{}
	}
	g.active[run]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.active[run]--; g.active[run] == 0 {
			delete(g.active, run)
		}
	}, nil
}

func tooManyCalls() error {
	refusal := picket.Refuse(picket.CodeRateLimited, "Wait until one of them has ended.",
		"%d calls of models are under way in this run already", maxCallsPerRun)
	refusal.RetryAfter = time.Second
	return refusal
}

// discardableBody is a body that is freed once it was sent, because the answer may take
// many minutes after that.
type discardableBody struct {
	mu    sync.Mutex
	whole []byte
}

// open returns a reader of the body. The transport opens it again if a connection turns
// out to be closed.
func (p *discardableBody) open() (io.ReadCloser, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return &discardableReader{left: p.whole}, nil
}

// discard frees the body. Readers that are open keep what they have not read.
func (p *discardableBody) discard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole = nil
}

type discardableReader struct {
	mu   sync.Mutex // it may be closed while it is read
	left []byte
}

func (r *discardableReader) Read(b []byte) (int, error) {
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

func (r *discardableReader) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.left = nil
	return nil
}
