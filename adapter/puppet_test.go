package adapter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// puppet is a process that a test holds the strings of.
type puppet struct {
	job    Job
	done   chan struct{}
	end    func()
	exit   Exited
	onTerm func(*puppet) // Defaults to nothing: SIGTERM is ignored.
	mu     sync.Mutex
	got    []string

	stopped atomic.Bool // every process of it
}

func (p *puppet) PID() int              { return 0 }
func (p *puppet) Done() <-chan struct{} { return p.done }
func (p *puppet) Exit() Exited          { return p.exit }
func (p *puppet) Containment() string   { return picket.ContainmentGroup }
func (p *puppet) Terminate() {
	p.sent("TERM")
	p.mu.Lock()
	heed := p.onTerm
	p.mu.Unlock()
	if heed != nil {
		heed(p)
	}
}
func (p *puppet) Kill() { p.sent("KILL"); p.exits(Exited{Code: 137, Signal: "SIGKILL"}) }

func (p *puppet) sent(signal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.got = append(p.got, signal)
}

func (p *puppet) exits(e Exited) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
	default:
		p.exit = e
		p.end()
	}
}

// puppets is a launcher whose processes do what play says, in a goroutine.
type puppets func(p *puppet)

func (play puppets) Holds() string { return picket.ContainmentGroup }

func (play puppets) Launch(_ context.Context, job Job) (Process, error) {
	p := &puppet{job: job, done: make(chan struct{})}
	p.end = closeOnce(p.done)
	go play(p)
	return p, nil
}

// stage is an adapter in a bubble: memory for a network, puppets for agents.
func stage(t *testing.T, play puppets, change ...func(*Config)) (*Adapter, *adaptertest.Server) {
	s := adaptertest.New()
	start := time.Now()
	cfg := Config{
		BaseURL: s.URL, Key: adaptertest.Key, HTTP: s.HTTPClient(), Launcher: play, StateDir: t.TempDir(),
		clock: func() time.Duration { return time.Since(start) },
	}
	for _, f := range change {
		f(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return a, s
}

// forever is an agent that never ends by itself.
func forever(*puppet) {}

// lasting is an agent that ends by itself with code 0.
func lasting(d time.Duration) puppets {
	return func(p *puppet) {
		select {
		case <-time.After(d):
			p.exits(Exited{})
		case <-p.done:
		}
	}
}
