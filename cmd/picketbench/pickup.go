package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
)

const pickupText = "submit until the first act of a fresh process, one idle worker on each side; the process is the same everywhere, `/bin/sh` that writes a byte into a pipe. " +
	"Picket: HTTP submit, a waiting adapter, lease, first renewal, launch. asynq and river: enqueue through their libraries, a handler that starts the process; no HTTP and no lease. " +
	"Redis with fsync always, PostgreSQL as initdb leaves it, fsync on too. Every peer is measured as it comes (asynq looks each 1 s; river listens, then holds back 100 ms) and again with its shortest waits (1 ms). " +
	"Work comes after a random pause of up to a peer's own polling interval (50 ms for Picket and for a peer at its fastest), so that the time at which a peer polls has no influence; *just idle* is up to 50 ms for both."

// starter is a contender of the race from submit to process.
type starter struct {
	name   string
	submit func(context.Context) error
	idle   func(context.Context) error // returns when the worker waits for work
	pause  time.Duration               // the longest pause before work comes
	starts int                         // a round
	cry    *pipeMouth
	random *rand.Rand
	stages func(began time.Time) map[string]time.Duration // of the last start; nil for a peer
}

// round submits work to the idle worker, one piece after the other.
func (s *starter) round(ctx context.Context) (sample, error) {
	var took times
	stages := map[string]times{}
	for range s.starts {
		if err := s.idle(ctx); err != nil {
			return sample{}, err
		}
		if err := pause(ctx, time.Duration(s.random.Int64N(int64(s.pause)))); err != nil {
			return sample{}, err
		}
		began := time.Now()
		if err := s.submit(ctx); err != nil {
			return sample{}, err
		}
		at, err := s.cry.heard(ctx)
		if err != nil {
			return sample{}, err
		}
		took.add(at.Sub(began))
		if s.stages == nil {
			continue
		}
		for name, d := range s.stages(began) {
			t := stages[name]
			t.add(d)
			stages[name] = t
		}
	}
	q := quantiles(took.millis(), 0.5)
	for name, t := range stages {
		q.More["p50 "+name] = round(t.millis().at(0.5), 3)
	}
	return q, nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// pipeMouth is a named pipe into which started processes cry.
type pipeMouth struct {
	path string
	file *os.File
}

// openMouth makes a pipe below a folder that goes with its server.
func openMouth(folder string) (*pipeMouth, error) {
	m := &pipeMouth{}
	dir, err := os.MkdirTemp(folder, "mouth")
	if err == nil {
		m.path = filepath.Join(dir, "cry")
		err = syscall.Mkfifo(m.path, 0o600)
	}
	if err == nil {
		m.file, err = os.OpenFile(m.path, os.O_RDWR, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("make pipe: %w", err)
	}
	return m, nil
}

// command is the process that every contender starts.
func (m *pipeMouth) command() []string { return []string{"/bin/sh", "-c", "echo >" + m.path} }

// start runs the process and waits for its end, as a handler does.
func (m *pipeMouth) start(ctx context.Context) error {
	c := m.command()
	return exec.CommandContext(ctx, c[0], c[1:]...).Run()
}

// heard returns when a process has cried.
func (m *pipeMouth) heard(ctx context.Context) (time.Time, error) {
	if err := m.file.SetReadDeadline(time.Now().Add(30 * time.Second)); err != nil {
		return time.Time{}, err
	}
	var b [1]byte
	_, err := m.file.Read(b[:])
	if err != nil {
		return time.Time{}, fmt.Errorf("wait for the process: %w", errors.Join(err, ctx.Err()))
	}
	return time.Now(), nil
}

// pickup measures Picket against each peer at each setting.
func pickup(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "always")
	if err != nil {
		return err
	}
	defer server.stop()
	ours, closeOurs, err := startPicket(ctx, b, server)
	if err != nil {
		return err
	}
	defer closeOurs()
	for _, r := range races {
		if err := ours.against(ctx, b, server, r); err != nil {
			return err
		}
	}
	return nil
}

// race is a peer at one of its settings, after one kind of pause.
type race struct {
	name    string
	start   func(context.Context, *bench, *redisServer, bool) (*starter, func(), error)
	fastest bool
	pause   time.Duration // for both sides; 0: each its own
	goals   [2]*goal
}

var races = []race{
	{"river as it comes", startRiver, false, 0, [2]*goal{atLeast(10), atLeast(50)}},
	{"river as it comes, just idle", startRiver, false, 50 * time.Millisecond, [2]*goal{atLeast(10), atLeast(50)}},
	{"river at its fastest", startRiver, true, 0, [2]*goal{}},
	{"asynq as it comes", startAsynq, false, 0, [2]*goal{}},
	{"asynq at its fastest", startAsynq, true, 0, [2]*goal{}},
}

// against measures Picket beside one peer.
func (s *starter) against(ctx context.Context, b *bench, server *redisServer, r race) error {
	l := line{
		Scenario: "pickup",
		Case:     r.name,
		Layer:    "http",
		Unit:     "ms",
		Fsync:    "always",
		Must:     r.goals[0],
		Moonshot: r.goals[1],
	}
	theirs, closeTheirs, err := r.start(ctx, b, server, r.fastest)
	switch {
	case errors.Is(err, errNoPostgres):
		fmt.Fprintf(b.log, "pickup, %s: left out: %v\n", r.name, err)
		l.LeftOut = err.Error()
		b.add(l, faster, server.version)
		return nil
	case err != nil:
		return fmt.Errorf("start %s: %w", r.name, err)
	}
	defer closeTheirs()
	if r.pause > 0 {
		theirs.pause = r.pause
	}
	if l.Sides, err = b.inTurn(ctx, "pickup, "+r.name, "ms", contender{"picket", s.round},
		contender{theirs.name, theirs.round}); err != nil {
		return err
	}
	b.add(l, faster, server.version)
	return nil
}

// startPicket serves Picket over HTTP with one adapter that takes one task at
// a time.
func startPicket(ctx context.Context, b *bench, r *redisServer) (*starter, func(), error) {
	store, sealer, err := openStore(ctx, r, true)
	if err != nil {
		return nil, nil, err
	}
	site, err := openSite(ctx, store, sealer, 4)
	if err != nil {
		return nil, nil, err
	}
	mouth, err := openMouth(r.dir)
	if err != nil {
		return nil, nil, err
	}
	var seen sync.Map // when the adapter's last event of a kind happened
	worker, err := adapter.New(adapter.Config{
		BaseURL: site.client.URL(), Key: site.client.Key(), HTTP: site.http, AgentID: "agent_bench",
		Command: mouth.command(), StateDir: filepath.Join(r.dir, "adapter"), Wait: 50 * time.Second,
		OnEvent: func(e adapter.Event) { seen.Store(e.Kind, e.At) },
	})
	if err != nil {
		return nil, nil, err
	}
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- worker.Run(working) }()
	engine := store.Engine("default")
	s := &starter{
		name:   "picket",
		pause:  50 * time.Millisecond,
		starts: b.pick(100, 10),
		cry:    mouth,
		random: rand.New(rand.NewPCG(1, 2)),
	}
	s.idle = func(ctx context.Context) error { return awaitWaiter(ctx, engine) }
	s.stages = func(began time.Time) map[string]time.Duration {
		to := map[string]time.Duration{}
		for name, kind := range map[string]adapter.EventKind{
			"to lease":   adapter.EventAcquired,
			"to renewal": adapter.EventRenewed,
			"to launch":  adapter.EventLaunched,
		} {
			if at, ok := seen.Load(kind); ok {
				to[name] = at.(time.Time).Sub(began)
			}
		}
		return to
	}
	s.submit = func(ctx context.Context) error {
		return clientEntry(site).submit(ctx, picket.TaskSpec{
			Title: "pickup", Input: payload(b.plan), Review: picket.ReviewByNone, OnExit: picket.OnExitComplete,
		})
	}
	return s, func() {
		stop()
		<-ended
		site.close()
		store.Close()
		mouth.file.Close()
	}, nil
}
