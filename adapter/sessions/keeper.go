package sessions

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/files"
)

// Keeper keeps the sessions of one agent. Make it with [New].
type Keeper struct {
	cfg    Config
	report chan struct{} // something has changed; room for one

	metered     atomic.Bool // the model calls of the agents go through the tool proxy
	meteredSeen atomic.Bool // a proxy has answered whether they do

	memory *memory
	lock   *os.File // of the state directory, held by every process as well

	end     context.CancelCauseFunc // ends Run
	sending context.Context         // of results; outlives the context of Run by a moment
	work    sync.WaitGroup          // prompts, ends of sessions, and results

	mu       sync.Mutex
	sessions []*session
}

// New checks a configuration. The error is a *[picket.Error] with CodeValidation.
func New(cfg Config) (*Keeper, error) {
	if err := cfg.fill(); err != nil {
		return nil, err
	}
	return &Keeper{cfg: cfg, report: make(chan struct{}, 1)}, nil
}

const (
	// lockTimeout bounds the wait for the processes of a keeper that was killed.
	lockTimeout = 30 * time.Second
	// lastResults is how long results are still sent after the context of Run has ended.
	lastResults = 5 * time.Second
)

// Run opens the sessions and serves them until ctx ends. Then it ends every process, reports the
// prompts under way as failed, and returns nil. It returns an error with [picket.CodeAgentGone] as
// soon as the server reports that the agent is gone, and an error of the system if the state directory
// cannot be used. When it returns, no process of a session is left. Call it once.
func (k *Keeper) Run(ctx context.Context) error {
	if err := k.open(ctx); err != nil {
		return err
	}
	defer k.lock.Close()
	ctx, k.end = context.WithCancelCause(ctx)
	defer k.end(nil)
	sending, stopSending := context.WithCancel(context.WithoutCancel(ctx))
	defer stopSending()
	k.sending = sending

	var loops sync.WaitGroup
	k.resumeDelivery()
	loops.Go(func() { k.reportAlways(ctx) })
	loops.Go(func() { k.pollAlways(ctx) })
	<-ctx.Done()
	gone := context.Cause(ctx)
	if !errors.Is(gone, picket.CodeAgentGone) {
		gone = nil
	}
	if gone != nil {
		stopSending()
	}
	defer time.AfterFunc(lastResults, stopSending).Stop()
	k.endSessions()
	loops.Wait()
	k.work.Wait()
	return gone
}

// Sessions is what the keeper would report now. It is empty before Run has opened the sessions.
func (k *Keeper) Sessions() []picket.SessionReport {
	list, _ := k.list()
	return list
}

// list reports every session, and answers those of them that were stopped.
func (k *Keeper) list() (list []picket.SessionReport, stopped []*session) {
	k.mu.Lock()
	all := slices.Clone(k.sessions)
	k.mu.Unlock()
	list = []picket.SessionReport{}
	for _, s := range all {
		r := s.describe()
		if r.State == picket.SessionStopped {
			stopped = append(stopped, s)
		}
		list = append(list, r)
	}
	return list, stopped
}

// changed has the sessions reported soon.
func (k *Keeper) changed() { signal(k.report) }

// find is the session with an id; nil: there is none.
func (k *Keeper) find(id string) *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sessions {
		if s.id == id {
			return s
		}
	}
	return nil
}

// forget takes sessions off the list.
func (k *Keeper) forget(gone []*session) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions = slices.DeleteFunc(k.sessions, func(s *session) bool { return slices.Contains(gone, s) })
}

// endSessions ends every prompt and every process.
func (k *Keeper) endSessions() {
	k.mu.Lock()
	all := slices.Clone(k.sessions)
	k.mu.Unlock()
	var ends sync.WaitGroup
	for _, s := range all {
		ends.Go(func() { s.close(errKeeperEnded) })
	}
	ends.Wait()
}

// open takes the state directory and finds the sessions in it.
func (k *Keeper) open(ctx context.Context) (err error) {
	for _, dir := range []string{k.cfg.StateDir, k.sessionsDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make the directory of sessions: %w", err)
		}
	}
	k.lock, err = files.LockFile(ctx, filepath.Join(k.cfg.StateDir, "lock"), lockTimeout)
	if err != nil {
		return fmt.Errorf("use the sessions in %s: %w", k.cfg.StateDir, err)
	}
	k.memory = openMemory(filepath.Join(k.cfg.StateDir, "commands"), k.cfg.Log)
	all, err := k.openSessions()
	if err != nil {
		k.lock.Close()
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.sessions = all
	return nil
}

// reportAlways reports the sessions on every change, and after every interval.
func (k *Keeper) reportAlways(ctx context.Context) {
	retry := retryPace()
	for ctx.Err() == nil {
		k.askIfMetered(ctx)
		list, stopped := k.list()
		err := k.call(ctx, requestTimeout, func(try context.Context) error {
			return k.cfg.Server.Report(try, picket.SessionsReport{Incarnation: k.cfg.Incarnation, Sessions: list})
		})
		if err != nil {
			k.cfg.Log.Warn("the agent sessions cannot be reported", "err", err)
			retry.pause(ctx, err)
			continue
		}
		retry.reset()
		k.forget(stopped)
		select {
		case <-ctx.Done():
		case <-k.report:
		case <-time.After(k.cfg.Interval):
		}
	}
}

// setMetered takes note of whether the model calls of the agents go through the tool proxy.
func (k *Keeper) setMetered(metered bool) {
	k.meteredSeen.Store(true)
	if k.metered.Swap(metered) != metered {
		k.changed()
	}
}

// askIfMetered asks the tool proxy of the server, until it has answered or a prompt has shown it.
func (k *Keeper) askIfMetered(ctx context.Context) {
	if k.meteredSeen.Load() || k.cfg.ProxyURL == "" {
		return
	}
	if metered, known := k.cfg.Preset.MeteredAt(ctx, http.DefaultClient, k.cfg.ProxyURL); known {
		k.setMetered(metered)
	}
}

// call makes a request, and ends the keeper if the agent is gone.
func (k *Keeper) call(ctx context.Context, atMost time.Duration, request func(try context.Context) error) error {
	try, cancel := context.WithTimeout(ctx, atMost)
	defer cancel()
	err := request(try)
	if errors.Is(err, picket.CodeAgentGone) {
		k.end(err)
	}
	return err
}
