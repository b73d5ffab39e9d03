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
	// DailyLimit caps what the tasks of a namespace that are submitted on one day
	// (UTC) may spend together, in both dimensions; a change holds from the next
	// task on. Defaults to nil: no cap.
	DailyLimit *budget.Envelope
	// TaskEnvelope is what a task gets that names no envelope. Defaults to
	// budget.Default().
	TaskEnvelope *budget.Envelope
	// Quotas bound what agents can keep in the store.
	Quotas Quotas
	// Found lets a namespace that neither the store nor the witness knows begin
	// with floor 0, so that its tokens read 1, 2, 3. Otherwise the floor is taken
	// from the clock, in case it did exist once. Defaults to false.
	Found bool
	// OnAdopt is told, in a goroutine of its own, that a store was adopted by
	// this process: whatever was registered in it may be gone. Defaults to nil.
	OnAdopt func(ctx context.Context, e *Engine)
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
	cfg             Config
	runner          *scriptRunner
	budgets         atomic.Pointer[budgets]
	logClient       redis.UniversalClient // blocking reads and subscriptions
	uncheckedClient redis.UniversalClient // looks at stores that have not been adopted yet
	goroutines      sync.WaitGroup        // in the background
	engines         map[string]*Engine
	ctx             context.Context // ends with Close
	stop            context.CancelFunc
}

// Engine is one namespace: its tasks, leases, hand-offs, reviews and events.
// All methods may be called from any number of goroutines and processes.
type Engine struct {
	namespace     string
	store         *Store
	wakeups       *notifier
	newEvents     *notifier
	keys          *keyCache
	refusedWrites refusalCounters
	violations    violationCounters
	clockDrifts   atomic.Int64 // heartbeats of agents whose clock is off
	metrics       *leaseMetrics
	witness       *witness     // nil: this process adopts nothing
	knownGrants   grantCount   // what this process knows of the number of grants
	doubts        atomic.Int64 // new connections that led to a store which has to be greeted first
	log           *slog.Logger
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

	scripts, err := newScripts(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, runner: &scriptRunner{scripts: scripts, fault: cfg.Fault}, engines: map[string]*Engine{}}
	s.SetBudgets(cfg.DailyLimit, cfg.TaskEnvelope)
	s.uncheckedClient = redis.NewUniversalClient(&cfg.Redis)
	s.runner.headroom = newHeadroom(cfg, s.uncheckedClient)
	s.cfg.Redis.OnConnect = s.onConnect
	s.logClient = redis.NewUniversalClient(&s.cfg.Redis)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.openNamespaces(ctx); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// openNamespaces settles every namespace before the first script runs.
func (s *Store) openNamespaces(ctx context.Context) error {
	for _, ns := range s.cfg.Namespaces {
		e := &Engine{
			namespace: ns,
			store:     s,
			keys:      newKeyCache(),
			metrics:   newLeaseMetrics(),
			log:       s.cfg.Log.With("namespace", ns),
		}
		e.wakeups = newNotifier(s.logClient, wakeChannel(ns), e.log, e.keys.handleMessage)
		e.newEvents = newNotifier(s.logClient, eventChannel(ns), e.log, nil)
		if s.cfg.Witness != "" {
			var err error
			if e.witness, err = openWitness(s.cfg.Witness, ns, storeAddress(s.cfg.Redis), s.cfg.Fault); err != nil {
				return fmt.Errorf("open namespace %s: %w", ns, err)
			}
		}
		s.engines[ns] = e
	}
	for _, l := range []*scriptConn{&s.runner.urgent, &s.runner.normal} {
		var err error
		if *l, err = newScriptConn(s.cfg); err != nil {
			return fmt.Errorf("open store: %w", err)
		}
	}
	for _, ns := range s.cfg.Namespaces {
		e := s.engines[ns]
		// A process that adopts nothing may start before one that does.
		if err := e.ensureAdopted(ctx, s.runner.through(s.uncheckedClient, ns), false); err != nil &&
			(e.witness != nil || errors.Is(err, errStoreNewer)) {
			return fmt.Errorf("open namespace %s: %w", ns, err)
		} else if err != nil {
			e.log.Warn("the store cannot be used yet", "err", err)
		}
		e.wakeups.start(s.ctx)
	}
	return nil
}

// storeAddress names a store as the configuration does.
func storeAddress(o redis.UniversalOptions) string {
	return fmt.Sprint(o.Addrs, o.MasterName, o.DB)
}

// Monitor looks at the stores of all namespaces once a second until ctx ends, so
// that one that was replaced is adopted even when nobody acquires.
func (s *Store) Monitor(ctx context.Context) error {
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-every.C:
		}
		for _, e := range s.Engines() {
			if err := e.checkStore(ctx); err != nil && ctx.Err() == nil {
				e.log.Debug("look at the store", "err", err)
			}
		}
	}
}

// background runs what nobody waits for; Close does.
func (s *Store) background(do func(ctx context.Context)) {
	s.goroutines.Go(func() { do(s.ctx) })
}

func newScriptConn(cfg Config) (scriptConn, error) {
	l := scriptConn{client: redis.NewUniversalClient(&cfg.Redis)}
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
	s.goroutines.Wait()
	for _, e := range s.engines {
		e.wakeups.close()
		e.newEvents.close()
	}
	var errs []error
	for _, l := range []scriptConn{s.runner.urgent, s.runner.normal} {
		if l.pipe != nil {
			errs = append(errs, l.pipe.Close())
		}
		if l.client != nil {
			errs = append(errs, l.client.Close())
		}
	}
	return errors.Join(append(errs, s.logClient.Close(), s.uncheckedClient.Close())...)
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

// ScriptStats counts the scripts run by this process, for metrics.
func (s *Store) ScriptStats() []ScriptStats { return s.runner.scriptStats() }

// Namespace is the name of the engine's namespace.
func (e *Engine) Namespace() string { return e.namespace }

func (e *Engine) run(ctx context.Context, name string, args ...any) (any, error) {
	return e.retryAdopted(ctx, func() (any, error) { return e.store.runner.run(ctx, e.namespace, name, args...) })
}

// Ready is nil when the store answers and is adopted, the witness can be kept
// and a reaper ticks; otherwise it says what is wrong and what to do.
func (e *Engine) Ready(ctx context.Context) error {
	s, err := e.Stats(ctx)
	if err != nil {
		return err
	}
	if err := e.checkStore(ctx); err != nil {
		return err
	}
	if err := e.restoreWitness(); err != nil {
		return err
	}
	if !s.NoReaper() {
		return nil
	}
	since := "yet"
	if s.LastTick != 0 {
		since = fmt.Sprintf("for %d s", s.SinceTickMs/1000)
	}
	return picket.Refuse(picket.CodeUnavailable, "Start one with: picket serve reaper",
		"no reaper: nothing has kept store time %s, so leases do not expire", since)
}
