// Package orchestrator is the state of record: the only room that speaks
// Redis. One method of [Engine] is one script is one atomic transition; every
// change and its event are written in the same step.
package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Config of a Store.
type Config struct {
	// Redis says where the store is. Timeouts default to 1 s and retries are
	// always off: a repeated script would be a second effect.
	Redis redis.UniversalOptions
	// Namespaces this process serves. Defaults to ["default"].
	Namespaces []string
	// Sealer makes lease capabilities. Required.
	Sealer *picket.Sealer
	// ProxyURL is put into leases: where adapters and agents find the tool
	// proxy. Defaults to "".
	ProxyURL string
	// Memory says that the store is an in-process miniredis, reached through
	// Redis.Dialer. Defaults to false.
	Memory bool
	// Witness is the directory in which this process keeps the floor of each
	// namespace, on a disk that outlives both the process and the store;
	// processes of one machine may share it. Only a process with one may found
	// or adopt a store and grant leases; any other answers 503 until one has.
	// Defaults to "": none.
	Witness string
	// HousePerDay caps what the tasks of a namespace that are submitted on one day
	// (UTC) may spend together, in both dimensions; a change holds from the next
	// task on. Defaults to nil: no cap.
	HousePerDay *budget.Envelope
	// TaskEnvelope is what a task gets that names no envelope. Defaults to
	// budget.Default().
	TaskEnvelope *budget.Envelope
	// Quotas bound what agents can keep in the store.
	Quotas Quotas
	// Found lets a namespace that neither the store nor the witness knows begin
	// with floor 0, so that its tokens read 1, 2, 3. Otherwise the floor is taken
	// from the clock, in case it did exist once. Defaults to false.
	Found bool
	// Adopted is told, in a goroutine of its own, that a store was adopted by
	// this process: whatever was registered in it may be gone. Defaults to nil.
	Adopted func(ctx context.Context, e *Engine)
	// Fault makes named points fail, for tests: "redis.<script>.before" (not
	// sent), "redis.<script>.after" (reply lost), "witness.write",
	// "witness.fsync", "witness.rename", "witness.dirsync". Defaults to nil.
	Fault func(point string) error
	// clock is the time of day that a floor without a memory is taken from.
	// Defaults to time.Now; tests set it.
	clock func() time.Time
	// NoPipeline sends every script on its own instead of sharing round trips.
	// Defaults to false.
	NoPipeline bool
	// Log receives what nobody asked for. Defaults to slog.Default().
	Log *slog.Logger
}

// Store is a connection to one Redis and the engines of the namespaces in it.
type Store struct {
	cfg     Config
	gate    *gate
	allowed atomic.Pointer[allowance]
	plain   redis.UniversalClient // blocking reads and subscriptions
	bare    redis.UniversalClient // looks at stores that have not been adopted yet
	tasks   sync.WaitGroup        // in the background
	engines map[string]*Engine
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
}

// Engine is one namespace: its tasks, leases, hand-offs, reviews and events.
// All methods may be called from any number of goroutines and processes.
type Engine struct {
	namespace  string
	store      *Store
	wakes      *hub
	tails      *hub
	callers    *keyCache
	refused    counters
	violations violationCounters
	drifts     atomic.Int64 // heartbeats of agents whose clock is off
	activity   *activity
	witness    *witness     // nil: this process adopts nothing
	granted    grants       // what this process knows of the number of grants
	suspect    atomic.Int64 // new connections that led to a store which has to be greeted first
	log        *slog.Logger
}

// Open connects to the store and makes the record of a namespace that has none.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Sealer == nil {
		return nil, errors.New("open store: a sealer is needed")
	}
	if len(cfg.Namespaces) == 0 {
		cfg.Namespaces = []string{"default"}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	cfg.Quotas = cfg.Quotas.withDefaults()
	if cfg.clock == nil {
		cfg.clock = time.Now
	}
	for _, ns := range cfg.Namespaces {
		if err := picket.CheckNamespace("namespace", ns); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	// MaxRedirects is the driver's retries on a cluster.
	cfg.Redis.MaxRetries, cfg.Redis.MaxRedirects = -1, -1
	cfg.Redis.DialerRetries = 1
	cfg.Redis.ContextTimeoutEnabled = true
	cfg.Redis.ReadTimeout = cmp.Or(cfg.Redis.ReadTimeout, time.Second)
	cfg.Redis.WriteTimeout = cmp.Or(cfg.Redis.WriteTimeout, time.Second)
	cfg.Redis.DialTimeout = cmp.Or(cfg.Redis.DialTimeout, time.Second)

	if cfg.Memory && cfg.Redis.Dialer == nil {
		return nil, errors.New("open store: a store in memory needs a dialer, it has no address")
	}

	scripts, err := compile(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, gate: &gate{scripts: scripts, fault: cfg.Fault}, engines: map[string]*Engine{}}
	s.Allow(cfg.HousePerDay, cfg.TaskEnvelope)
	s.bare = redis.NewUniversalClient(&cfg.Redis)
	s.gate.room = newRoom(cfg, s.bare)
	s.cfg.Redis.OnConnect = s.onConnect
	s.plain = redis.NewUniversalClient(&s.cfg.Redis)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// open settles every namespace before the first script runs.
func (s *Store) open(ctx context.Context) error {
	for _, ns := range s.cfg.Namespaces {
		e := &Engine{
			namespace: ns,
			store:     s,
			callers:   newKeyCache(),
			activity:  newActivity(),
			log:       s.cfg.Log.With("namespace", ns),
		}
		e.wakes = newHub(s.plain, wakeChannel(ns), e.log, e.callers.heard)
		e.tails = newHub(s.plain, eventChannel(ns), e.log, nil)
		if s.cfg.Witness != "" {
			var err error
			if e.witness, err = openWitness(s.cfg.Witness, ns, address(s.cfg.Redis), s.cfg.Fault); err != nil {
				return fmt.Errorf("open namespace %s: %w", ns, err)
			}
		}
		s.engines[ns] = e
	}
	for _, l := range []*line{&s.gate.clock, &s.gate.work} {
		var err error
		if *l, err = newLine(s.cfg); err != nil {
			return fmt.Errorf("open store: %w", err)
		}
	}
	for _, ns := range s.cfg.Namespaces {
		e := s.engines[ns]
		// A process that adopts nothing may start before one that does.
		if err := e.greet(ctx, s.gate.on(s.bare, ns), false); err != nil &&
			(e.witness != nil || errors.Is(err, errStoreNewer)) {
			return fmt.Errorf("open namespace %s: %w", ns, err)
		} else if err != nil {
			e.log.Warn("the store cannot be used yet", "err", err)
		}
		e.wakes.start(s.ctx)
	}
	return nil
}

// address names a store as the configuration does.
func address(o redis.UniversalOptions) string {
	return fmt.Sprint(o.Addrs, o.MasterName, o.DB)
}

// Keep looks at the stores of all namespaces once a second until ctx ends, so
// that one that was replaced is adopted even when nobody acquires.
func (s *Store) Keep(ctx context.Context) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		for _, e := range s.Engines() {
			if err := e.meet(ctx); err != nil && ctx.Err() == nil {
				e.log.Debug("look at the store", "err", err)
			}
		}
	}
}

// background runs what nobody waits for; Close does.
func (s *Store) background(do func(ctx context.Context)) {
	s.tasks.Go(func() { do(s.ctx) })
}

func newLine(cfg Config) (line, error) {
	l := line{client: redis.NewUniversalClient(&cfg.Redis)}
	if cfg.NoPipeline || cfg.Memory { // a store in this process is no round trip away
		return l, nil
	}
	var err error
	l.pipe, err = l.client.AsyncAutoPipeline()
	return l, err
}

// Close ends the subscriptions and connections. Long polls answer as if their
// wait ran out.
func (s *Store) Close() error {
	s.stop()
	s.tasks.Wait()
	for _, e := range s.engines {
		e.wakes.close()
		e.tails.close()
	}
	var errs []error
	for _, l := range []line{s.gate.clock, s.gate.work} {
		if l.pipe != nil {
			errs = append(errs, l.pipe.Close())
		}
		if l.client != nil {
			errs = append(errs, l.client.Close())
		}
	}
	return errors.Join(append(errs, s.plain.Close(), s.bare.Close())...)
}

// Engine returns the engine of a namespace, nil when this process does not
// serve it.
func (s *Store) Engine(namespace string) *Engine { return s.engines[namespace] }

// Engines lists the engines in the order of the configuration.
func (s *Store) Engines() []*Engine {
	out := make([]*Engine, 0, len(s.engines))
	for _, ns := range s.cfg.Namespaces {
		out = append(out, s.engines[ns])
	}
	return out
}

// Calls counts the scripts run by this process, for metrics.
func (s *Store) Calls() []Calls { return s.gate.stats() }

// Namespace is the name of the engine's namespace.
func (e *Engine) Namespace() string { return e.namespace }

func (e *Engine) run(ctx context.Context, name string, args ...any) (any, error) {
	return e.settled(ctx, func() (any, error) { return e.store.gate.run(ctx, e.namespace, name, args...) })
}
