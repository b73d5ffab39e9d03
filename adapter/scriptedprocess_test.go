package adapter

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// scriptedProcess is a process that a test holds the strings of.
type scriptedProcess struct {
	job       process.Job
	done      chan struct{}
	closeDone func()
	exit      process.Exited
	onTerm    func(*scriptedProcess) // Defaults to nothing: SIGTERM is ignored.
	mu        sync.Mutex
	signals   []string

	stopped atomic.Bool // every process of it
}

func (p *scriptedProcess) PID() int              { return 0 }
func (p *scriptedProcess) Done() <-chan struct{} { return p.done }
func (p *scriptedProcess) Exit() process.Exited  { return p.exit }
func (p *scriptedProcess) Containment() string   { return picket.ContainmentGroup }
func (p *scriptedProcess) Terminate() {
	p.recordSignal("TERM")
	p.mu.Lock()
	heed := p.onTerm
	p.mu.Unlock()
	if heed != nil {
		heed(p)
	}
}
func (p *scriptedProcess) Kill() {
	p.recordSignal("KILL")
	p.endWith(process.Exited{Code: 137, Signal: "SIGKILL"})
}

func (p *scriptedProcess) recordSignal(signal string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.signals = append(p.signals, signal)
}

func (p *scriptedProcess) endWith(e process.Exited) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.done:
	default:
		p.exit = e
		p.closeDone()
	}
}

// scriptedLauncher is a launcher whose processes do what play says, in a goroutine.
type scriptedLauncher func(p *scriptedProcess)

func (play scriptedLauncher) PlannedContainment() string { return picket.ContainmentGroup }

func (play scriptedLauncher) Launch(_ context.Context, job process.Job) (process.Process, error) {
	p := &scriptedProcess{job: job, done: make(chan struct{})}
	p.closeDone = closeOnce(p.done)
	go play(p)
	return p, nil
}

// newScriptedAdapter is an adapter in a bubble: memory for a network, puppets for agents.
func newScriptedAdapter(t *testing.T, play scriptedLauncher, change ...func(*Config)) (*Adapter, *adaptertest.Server) {
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

// runForever is an agent that never ends on its own.
func runForever(*scriptedProcess) {}

// runFor is an agent that ends on its own with code 0.
func runFor(d time.Duration) scriptedLauncher {
	return func(p *scriptedProcess) {
		select {
		case <-time.After(d):
			p.endWith(process.Exited{})
		case <-p.done:
		}
	}
}
