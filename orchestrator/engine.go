// Package orchestrator is the state of record: the only package that speaks to
// Redis. A method of [Engine] that changes something calls one verb, which is one
// atomic step: the change and its event are written together. Methods that wait
// call a verb several times, and a few decide several tasks one after another.
package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Config of a Store.
type Config struct {
	// Redis says where the store is. Timeouts default to 1 s. A script may take
	// twice the read timeout, and 2 s at least, with the connections that it makes.
	// Retries are always off: a repeated script would be a second effect.
	Redis redis.UniversalOptions
	// Namespaces this process serves. Defaults to ["default"].
	Namespaces []string
	// Sealer makes lease tokens and encrypts secrets, see [NewSealer]. Required.
	Sealer *seal.Sealer
	// ProxyURL is put into leases: where adapters and agents find the tool
	// proxy. Defaults to "".
	ProxyURL string
	// Memory says that the store is an in-process miniredis, reached through
	// Redis.Dialer. Defaults to false.
	Memory bool
	// Witness is the directory in which this process keeps the floor of each namespace. It must be
	// on a disk that outlives both the process and the store. Processes of one machine may share
	// it. Only a process with one may found or adopt a store and grant leases; any other answers
	// 503 until one has. Defaults to "": none.
	Witness string
	// Tickets is a directory in the memory of the machine, for [Store.CloseMarked]: what is in it is
	// on no disk and gone when the machine starts. Only a process that owns its store and holds a lock
	// on it may set it. Defaults to "": every restart of the store is adopted.
	Tickets string
	// Address names the store in the names of the witness files. It is for a store whose address
	// changes with every start. Defaults to the address in Redis.
	Address string
	// DailyLimit caps what the tasks of a namespace that are submitted on one day
	// (UTC) may spend together, in both dimensions; a change holds from the next
	// task on. Defaults to nil: no cap.
	DailyLimit *budget.Envelope
	// TaskEnvelope is what a task gets that names no envelope. Defaults to
	// budget.Default().
	TaskEnvelope *budget.Envelope
	// Quotas bound what agents can keep in the store.
	Quotas Quotas
	// Wake says how wake policies are read. Servers of one store need the same settings, since digests of
	// policies cover them. Defaults to heartbeat.Defaults().
	Wake heartbeat.Settings
	// Unmetered has the agent names whose sessions the scheduler may wake although their model calls do not go
	// through the tool proxy, so that no budget limits them. It does not matter for metered sessions.
	Unmetered map[string]bool
	// SessionLimits bound what agent sessions spend outside of tasks. Servers of one store need the same limits.
	// Defaults to nil: those of [DefaultSessionLimits].
	SessionLimits *SessionLimits
	// Workspaces says how long adapters keep workspaces.
	Workspaces picket.WorkspaceRetention
	// Found lets a namespace that neither the store nor the witness knows begin
	// with floor 0, so that its tokens read 1, 2, 3. Otherwise the floor is taken
	// from the clock, in case it did exist once. Defaults to false.
	Found bool
	// OnAdopt is told, in a goroutine of its own, that a store was adopted by
	// this process: whatever was registered in it may be gone. Defaults to nil.
	OnAdopt func(ctx context.Context, e *Engine)
	// Fault makes named points fail, for tests: "redis.<script>.before" (not
	// sent), "redis.<script>.after" (reply lost), "witness.write",
	// "witness.fsync", "witness.rename", "witness.dirsync", the same of "stopmark" at a marked
	// close, "ticket.write", "stopmark.remove" and "stopmark.removed". Defaults to nil.
	Fault func(point string) error
	// Now is the time of day that a floor without a memory is taken from. It is
	// for tests. Defaults to time.Now.
	Now func() time.Time
	// NoBatch sends every verb in a call of its own, never in a batch with others.
	// Defaults to false.
	NoBatch bool
	// Log receives what nobody asked for. Defaults to slog.Default().
	Log *slog.Logger
}

// NewSealer returns the Sealer of one or two secret keys of at least 32 bytes. The first
// key seals, and both open, so a key can be replaced while leases live.
func NewSealer(keys ...[]byte) (*seal.Sealer, error) { return seal.New(keys...) }

// Store is a connection to one Redis and the engines of the namespaces in it.
type Store struct {
	cfg     Config
	conn    *store.Store
	budgets atomic.Pointer[budgets]
	limits  string // of sessions, as scripts read them
	engines map[string]*Engine
}

// Engine is one namespace: its tasks, leases, hand-offs, reviews and events.
// All methods may be called from any number of goroutines and processes.
//
// An error is a *[picket.Error] with a code; compare it by [errors.Is]. CodeUnavailable means that the store
// cannot be used now, or that ctx ended; repeat the call with the same idempotency key. If [picket.ErrUnknown] is
// its cause, a change may have been made. Any other error is CodeInternal by [picket.CodeOf].
type Engine struct {
	namespace     string
	store         *Store
	records       *store.Namespace
	keys          *keyCache
	refusedWrites counters[picket.Code]
	violations    counters[ViolationCount] // Count is 0 in the keys
	clockDrifts   atomic.Int64             // heartbeats of agents whose clock is off
	metrics       *leaseMetrics
	log           *slog.Logger
	refreshPolicy func(ctx context.Context, name string) error // nil: there is no directory of policy files
	policyHolder  string                                       // the name under which this process has that directory
}

// Open connects to the store and makes the record of a namespace that has none. With a witness, an unreachable
// store is CodeUnavailable; without one, Open returns before the store can be used. A store that a later version
// has written is always CodeUnavailable, with the facts "storeFormat" and "knownFormat". Errors of the
// configuration and of the witness file may have no code.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if cfg.Sealer == nil {
		return nil, errors.New("open store: a sealer is needed")
	}
	cfg.Quotas = cfg.Quotas.withDefaults()
	cfg.Wake = cmp.Or(cfg.Wake, heartbeat.Defaults())
	if err := cfg.Wake.Check(); err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	if cfg.SessionLimits == nil {
		limits := DefaultSessionLimits()
		cfg.SessionLimits = &limits
	}
	limits, err := cfg.SessionLimits.argument()
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	cfg.Workspaces.Failed = cmp.Or(cfg.Workspaces.Failed, 7*24*time.Hour)
	cfg.Workspaces.Decided = cmp.Or(cfg.Workspaces.Decided, 24*time.Hour)
	cfg.Log = cmp.Or(cfg.Log, slog.Default())
	conn, err := store.New(store.Config{
		Redis:      cfg.Redis,
		Namespaces: cfg.Namespaces,
		Memory:     cfg.Memory,
		Witness:    cfg.Witness,
		Tickets:    cfg.Tickets,
		Address:    cfg.Address,
		Found:      cfg.Found,
		Fault:      cfg.Fault,
		Now:        cfg.Now,
		NoBatch:    cfg.NoBatch,
		Log:        cfg.Log,
	})
	if err != nil {
		return nil, fmt.Errorf("open store: %w", err)
	}
	s := &Store{cfg: cfg, conn: conn, limits: limits, engines: map[string]*Engine{}}
	s.SetBudgets(cfg.DailyLimit, cfg.TaskEnvelope)
	for _, records := range conn.Namespaces() {
		s.engines[records.Name()] = s.newEngine(records)
	}
	if err := conn.Open(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

func (s *Store) newEngine(records *store.Namespace) *Engine {
	e := &Engine{
		namespace: records.Name(),
		store:     s,
		records:   records,
		keys:      newKeyCache(),
		metrics:   newLeaseMetrics(),
		log:       s.cfg.Log.With("namespace", records.Name()),
	}
	records.OnMessage = e.keys.handleMessage
	records.OnAdopt = func(floor int64) {
		e.keys.forgetAll()
		if floor > 0 && s.cfg.OnAdopt != nil {
			s.conn.Background(func(ctx context.Context) { s.cfg.OnAdopt(ctx, e) })
		}
	}
	return e
}

// Monitor looks at the stores of all namespaces once a second until ctx ends, so
// that one that was replaced is adopted even when nobody acquires.
func (s *Store) Monitor(ctx context.Context) error { return s.conn.Monitor(ctx) }

// Close ends the subscriptions and connections. Long polls return as if their
// wait ran out.
func (s *Store) Close() error { return s.conn.Close() }

// CloseMarked is Close for a store whose server this process ends next. It marks the stop in
// each namespace, so that the next start with the same witness goes on under the same floor,
// without an adoption. From the mark on, nothing is granted before that start. If a stop
// cannot be marked, the next start adopts the store. It needs Config.Tickets.
func (s *Store) CloseMarked(ctx context.Context) error { return s.conn.CloseMarked(ctx) }

// Engine returns the engine of a namespace, nil when this process does not
// serve it.
func (s *Store) Engine(namespace string) *Engine { return s.engines[namespace] }

// Engines lists the engines in the order of the configuration.
func (s *Store) Engines() []*Engine {
	out := make([]*Engine, 0, len(s.engines))
	for _, records := range s.conn.Namespaces() {
		out = append(out, s.engines[records.Name()])
	}
	return out
}

// ScriptStats counts the scripts run by this process, for metrics.
func (s *Store) ScriptStats() []store.ScriptStats { return s.conn.ScriptStats() }

// Namespace is the name of the engine's namespace.
func (e *Engine) Namespace() string { return e.namespace }

// run runs a script.
func (e *Engine) run(ctx context.Context, name string, args ...any) *reply {
	got, err := e.records.Run(ctx, name, args...)
	return e.newReply(name, got, err)
}

// runChecked is run, unless its arguments were refused.
func (e *Engine) runChecked(ctx context.Context, refused error, name string, args ...any) *reply {
	if refused != nil {
		return e.newReply(name, nil, refused)
	}
	return e.run(ctx, name, args...)
}

// Ready is nil when the store answers and is adopted, the witness can be kept
// and a reaper ticks; otherwise it says what is wrong and what to do.
func (e *Engine) Ready(ctx context.Context) error {
	s, err := e.Stats(ctx)
	if err != nil {
		return err
	}
	if err := e.records.Check(ctx); err != nil {
		return err
	}
	if err := e.records.RestoreWitness(); err != nil {
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

// Connection returns what sends the scripts of a store. It is for tests that
// watch scripts at work or change them.
func (s *Store) Connection() *store.Store { return s.conn }

// Records returns the namespace of an engine. It is for tests that run a single
// script.
func (e *Engine) Records() *store.Namespace { return e.records }

// SetQuotas changes what agents may keep. It is for tests, and must not run
// beside other calls.
func (s *Store) SetQuotas(q Quotas) { s.cfg.Quotas = q.withDefaults() }
