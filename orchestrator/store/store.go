// Package store is the orchestrator's way to Redis. It runs the scripts, words
// their refusals, wakes those who wait, and keeps the floor of the fencing tokens
// outside of Redis, so that tokens rise even when a store forgets.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// Config is the part of the Config of package orchestrator that concerns the store.
// The fields are described there.
type Config struct {
	Redis      redis.UniversalOptions
	Namespaces []string
	Memory     bool
	Witness    string
	Tickets    string
	Address    string
	Found      bool
	Fault      func(point string) error
	Now        func() time.Time
	NoBatch    bool
	Log        *slog.Logger
}

// Store is a connection to one Redis and the namespaces of this process in it.
type Store struct {
	cfg             Config
	runner          *scriptRunner
	logClient       redis.UniversalClient // blocking reads and subscriptions
	uncheckedClient redis.UniversalClient // looks at stores that have not been adopted yet
	namespaces      []*Namespace          // in the order of the configuration
	goroutines      sync.WaitGroup        // in the background
	ctx             context.Context       // ends with Close
	stop            context.CancelFunc
}

// New checks the configuration and prepares the namespaces. Their hooks
// can be set before [Store.Open].
func New(cfg Config) (*Store, error) {
	if len(cfg.Namespaces) == 0 {
		cfg.Namespaces = []string{"default"}
	}
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	for _, ns := range cfg.Namespaces {
		if err := picket.CheckNamespace("namespace", ns); err != nil {
			return nil, err
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
		return nil, errors.New("a store in memory needs a dialer, it has no address")
	}
	program, err := builtin()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, runner: &scriptRunner{
		program: program,
		scripts: newScripts(program),
		memory:  cfg.Memory,
		noBatch: cfg.NoBatch,
		now:     cfg.Now,
		timeout: max(2*time.Second, 2*cfg.Redis.ReadTimeout),
		fault:   cfg.Fault,
	}}
	for _, name := range cfg.Namespaces {
		s.namespaces = append(s.namespaces, &Namespace{name: name, store: s, log: cfg.Log.With("namespace", name)})
	}
	return s, nil
}

// Namespaces returns the namespaces in the order of the configuration.
func (s *Store) Namespaces() []*Namespace { return s.namespaces }

// Open connects to the store. It converts namespaces of an earlier format, and adopts
// the namespaces, before the first script runs. A process that keeps no witness may start before one that does, so its
// namespaces need not be ready when Open returns. After an error, the store is
// closed.
func (s *Store) Open(ctx context.Context) error {
	s.uncheckedClient = redis.NewUniversalClient(&s.cfg.Redis)
	s.runner.headroom = newHeadroom(s.cfg.Memory, s.uncheckedClient)
	s.cfg.Redis.OnConnect = s.onConnect
	s.logClient = redis.NewUniversalClient(&s.cfg.Redis)
	s.ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	if err := s.openNamespaces(ctx); err != nil {
		return errors.Join(err, s.Close())
	}
	return nil
}

func (s *Store) openNamespaces(ctx context.Context) error {
	for _, n := range s.namespaces {
		if err := n.open(); err != nil {
			return fmt.Errorf("open namespace %s: %w", n.name, err)
		}
	}
	s.runner.urgent, s.runner.normal = redis.NewUniversalClient(&s.cfg.Redis), redis.NewUniversalClient(&s.cfg.Redis)
	for _, n := range s.namespaces {
		if err := n.convert(ctx); err != nil {
			return fmt.Errorf("open namespace %s: %w", n.name, err)
		}
		n.resume(ctx)
		err := n.Check(ctx)
		if err != nil && (n.witness != nil || errors.Is(err, errStoreNewer)) {
			return fmt.Errorf("open namespace %s: %w", n.name, err)
		}
		if err != nil {
			n.log.Warn("the store cannot be used yet", "err", err)
		}
		n.wakeups.start(s.ctx)
	}
	return nil
}

// storeAddress names a store as the configuration does.
func storeAddress(cfg Config) string {
	addresses := cfg.Redis.Addrs
	if cfg.Address != "" {
		addresses = []string{cfg.Address}
	}
	return fmt.Sprint(addresses, cfg.Redis.MasterName, cfg.Redis.DB)
}

// Monitor looks at the stores of all namespaces once a second until ctx ends, so
// that one that was replaced is adopted even when nobody acquires. Once an hour it
// tidies the libraries.
func (s *Store) Monitor(ctx context.Context) error {
	every, hourly := time.NewTicker(time.Second), time.NewTicker(time.Hour)
	defer every.Stop()
	defer hourly.Stop()
	s.tidyLibraries(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hourly.C:
			s.tidyLibraries(ctx)
		case <-every.C:
			s.checkNamespaces(ctx)
		}
	}
}

func (s *Store) checkNamespaces(ctx context.Context) {
	for _, n := range s.namespaces {
		if err := n.Check(ctx); err != nil && ctx.Err() == nil {
			n.log.Debug("look at the store", "err", err)
		}
	}
}

// Background runs a function whose end only Close waits for. Its context ends
// with Close.
func (s *Store) Background(do func(ctx context.Context)) {
	s.goroutines.Go(func() { do(s.ctx) })
}

// Close ends the subscriptions and connections. Long polls return as if their
// wait ran out.
func (s *Store) Close() error { return s.close(func() {}) }

// close calls last when nothing but the unchecked client is left.
func (s *Store) close(last func()) error {
	s.stop()
	s.goroutines.Wait()
	for _, n := range s.namespaces {
		if n.newEvents != nil {
			n.wakeups.close()
			n.newEvents.close()
		}
	}
	var errs []error
	for _, c := range []redis.UniversalClient{s.runner.urgent, s.runner.normal} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	errs = append(errs, s.logClient.Close())
	last()
	return errors.Join(append(errs, s.uncheckedClient.Close())...)
}
