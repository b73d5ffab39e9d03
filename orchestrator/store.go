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
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
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
	// Memory says that the store is an in-process miniredis. Defaults to false.
	Memory bool
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
	plain   redis.UniversalClient // blocking reads and subscriptions
	engines map[string]*Engine
	ctx     context.Context // ends with Close
	stop    context.CancelFunc
}

// Engine is one namespace: its tasks, leases, hand-offs, reviews and events.
// All methods may be called from any number of goroutines and processes.
type Engine struct {
	namespace string
	store     *Store
	wakes     *hub
	tails     *hub
	callers   *keyCache
	refused   counters
	log       *slog.Logger
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
	for _, ns := range cfg.Namespaces {
		if err := picket.CheckNamespace("namespace", ns); err != nil {
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	cfg.Redis.MaxRetries = -1
	cfg.Redis.DialerRetries = 1
	cfg.Redis.ContextTimeoutEnabled = true
	cfg.Redis.ReadTimeout = cmp.Or(cfg.Redis.ReadTimeout, time.Second)
	cfg.Redis.WriteTimeout = cmp.Or(cfg.Redis.WriteTimeout, time.Second)
	cfg.Redis.DialTimeout = cmp.Or(cfg.Redis.DialTimeout, time.Second)

	scripts, err := compile(cfg.Memory)
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, plain: redis.NewUniversalClient(&cfg.Redis), gate: &gate{scripts: scripts}, engines: map[string]*Engine{}}
	for _, l := range []*line{&s.gate.clock, &s.gate.work} {
		if *l, err = newLine(cfg); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("open store: %w", err)
		}
	}
	for _, ns := range cfg.Namespaces {
		e := &Engine{namespace: ns, store: s, callers: newKeyCache(), log: cfg.Log.With("namespace", ns)}
		if _, err := s.gate.run(ctx, ns, "found", "store_"+ulid.Make().String()); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("open namespace %s: %w", ns, err)
		}
		e.wakes = newHub(s.plain, wakeChannel(ns), e.log, e.callers.heard)
		e.tails = newHub(s.plain, eventChannel(ns), e.log, nil)
		s.engines[ns] = e
	}
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	for _, e := range s.engines {
		e.wakes.start(s.ctx)
	}
	return s, nil
}

func newLine(cfg Config) (line, error) {
	l := line{client: redis.NewUniversalClient(&cfg.Redis)}
	if cfg.NoPipeline {
		return l, nil
	}
	var err error
	l.pipe, err = l.client.AsyncAutoPipeline()
	return l, err
}

// Close ends the subscriptions and connections. Long polls answer as if their
// wait ran out.
func (s *Store) Close() error {
	if s.stop != nil {
		s.stop()
	}
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
	return errors.Join(append(errs, s.plain.Close())...)
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
	return e.store.gate.run(ctx, e.namespace, name, args...)
}
