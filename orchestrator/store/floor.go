package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
)

// A store can forget what it acknowledged: an older file is restored, a replica that lagged is
// promoted. Tokens rise all the same. Every grant is above a floor that this machine keeps outside
// the store. If the server process is another one, it is adopted before it grants anything, which
// raises the floor.

// floorRange is how many tokens and sequence numbers one floor is good for.
const floorRange = 1 << 21

// maxClockAhead is a clock that is wrong for certain: a floor taken from it would
// leave no room below 2^53, where numbers in the store stop being exact.
const maxClockAhead = 60 * 365 * 24 * time.Hour

// adoptionPause is how long an adoption takes at least, if another server was adopted before. That one
// may trust for TRUST milliseconds (lua/part/_identity.lua) that it is still the same server.
const adoptionPause = 20 * time.Millisecond

// floorEpoch is the time from which the clock's floor counts seconds. Such floors rise even if the
// store and the witness have forgotten the last one.
var floorEpoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// ensureAdopted makes sure that the store is the one this process may work with. One
// that is new is adopted, by a process that keeps a witness; any other process
// is refused until somebody has. exhausted asks for a new floor in any case.
func (n *Namespace) ensureAdopted(ctx context.Context, run scriptFunc, exhausted bool) error {
	if n.store.ctx.Err() != nil {
		return Stopping(nil) // a late call must not adopt a store that was taken out of service
	}
	s, err := n.readStoreState(ctx, run)
	if err != nil {
		return err
	}
	if err := n.store.checkServer(s); err != nil {
		return err
	}
	if s.isOld() { // an older state was put back under a process that runs
		n.startMigration(s)
		return storeMigrating(s.Format, s.Known)
	}
	if n.witness == nil {
		if !s.isAdopted() {
			return n.notAdopted(s)
		}
		return nil
	}
	if w := n.witness.current(); s.isAdopted() && s.floor == w.Floor && s.Store == w.StoreID && !exhausted {
		n.NoteGrants(s.floor, s.Granted, s.Seq) // also those of an earlier process
		return nil
	}
	return n.witness.withLock(func() error { return n.adopt(ctx, run, exhausted) })
}

// Check looks at the store past the shared connections. It adopts the store if
// that is needed and this process may; otherwise it returns CodeUnavailable.
func (n *Namespace) Check(ctx context.Context) error {
	return n.ensureAdopted(ctx, n.uncheckedRun(), false)
}

// retryAdopted runs a transition again after the store turned out to be another one
// and was settled; nothing has been done by the first try.
func (n *Namespace) retryAdopted(ctx context.Context, try func() (any, error)) (any, error) {
	if err := n.resolveDoubts(ctx); err != nil {
		return nil, err
	}
	for range 3 {
		got, err := try()
		exhausted := errors.Is(err, errFloorExhausted)
		if !exhausted && !errors.Is(err, errStoreLost) && !errors.Is(err, errStoreChanged) {
			return got, err
		}
		if n.witness == nil {
			return nil, err
		}
		if err := n.ensureAdopted(ctx, n.uncheckedRun(), exhausted); err != nil {
			return nil, err
		}
	}
	return try()
}

// resolveDoubts greets a store of which a new connection brought doubts.
func (n *Namespace) resolveDoubts(ctx context.Context) error {
	doubts := n.doubts.Load()
	if doubts == 0 {
		return nil
	}
	if err := n.Check(ctx); err != nil {
		return err
	}
	n.doubts.CompareAndSwap(doubts, 0) // not those that came meanwhile
	return nil
}

func (n *Namespace) notAdopted(s storeState) error {
	what, why := "was restarted or restored", errStoreChanged
	if s.Store == "" {
		what, why = "does not have it", errStoreLost
	}
	r := picket.Refuse(picket.CodeUnavailable,
		"Start `picket serve orchestrator` for it. If one runs, wait a moment and repeat the same request.",
		"namespace %s: the store %s, and no orchestrator has adopted it yet", n.name, what)
	r.RetryAfter = time.Second
	return r.WithCause(why)
}

// checkServer refuses servers that could not keep what they promise.
func (s *Store) checkServer(seen storeState) error {
	if seen.Role == "slave" {
		return Unavailable("this Redis is a replica", fmt.Errorf("READONLY"))
	}
	if s.cfg.Memory != (seen.Role == "memory") {
		return picket.Refuse(picket.CodeUnavailable, "Give the Redis user the right +info.",
			"the Redis server does not tell who it is, so a restart could not be noticed")
	}
	return nil
}

// adopt compares witness and store and brings the lower one up, until they
// agree. It runs while nobody else can raise this witness.
func (n *Namespace) adopt(ctx context.Context, run scriptFunc, exhausted bool) error {
	for range 10 {
		s, err := n.readStoreState(ctx, run)
		if err != nil {
			return err
		}
		w := n.witness.current()
		// Another store under an old floor was founded by somebody who knew
		// nothing of this one.
		other := w.StoreID != "" && s.Store != w.StoreID && s.floor <= w.Floor
		if s.isAdopted() && s.floor >= w.Floor && !other && !exhausted {
			return n.witness.raise(floorRecord{StoreID: s.Store, Floor: s.floor, Ceiling: ceiling(s.Seq, w.Ceiling)})
		}
		err = n.takeOver(ctx, run, s, w)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errAdoptLost) {
			return err
		}
		exhausted = false // another process has given the store a new floor
	}
	return Unavailable("other processes keep adopting the store", nil)
}

// takeOver takes a store over: the new floor is in the witness before it is in the
// store, so no crash in between can make it forgotten.
func (n *Namespace) takeOver(ctx context.Context, run scriptFunc, s storeState, w floorRecord) error {
	clock := n.store.cfg.Now
	floor := newFloor(s.floor, w.Floor, clock())
	if s.Store == "" && w.isEmpty() && n.store.cfg.Found {
		floor = 0
	}
	if clock().Sub(floorEpoch) > maxClockAhead {
		return picket.Refuse(picket.CodeUnavailable, "Set the clock of this machine, then repeat the same request.",
			"the clock of this machine is far ahead (%s)", clock())
	}
	fresh := "store_" + ulid.Make().String()
	start := max(floor, w.Ceiling)
	next := floorRecord{StoreID: s.Store, Floor: floor, Ceiling: ceiling(max(s.Seq, start), w.Ceiling)}
	if next.StoreID == "" {
		next.StoreID = fresh
	}
	// The floor is that of the next second, and is adopted then. A process that
	// has nothing but its clock, since this adoption was lost, too, gets a higher one.
	if err := waitForClock(ctx, clock, floorEpoch.Add(time.Duration(floor/floorRange)*time.Second)); err != nil {
		return err
	}
	if s.Adopted != "" {
		if err := wait(ctx, adoptionPause); err != nil {
			return err
		}
	}
	if err := n.witness.raise(next); err != nil {
		return err
	}
	if _, err := run(ctx, "adopt", s.Server, s.Store, s.Adopted, s.Floor, fresh, floor, start); err != nil {
		return err
	}
	if floor > 0 {
		n.logAdoption(s, w, floor)
	}
	if n.OnAdopt != nil {
		n.OnAdopt(floor)
	}
	return nil
}

// logAdoption logs an adoption: a restart is nothing special, lost transitions are.
func (n *Namespace) logAdoption(s storeState, w floorRecord, floor int64) {
	switch log := n.log.With("floor", floor); {
	case s.Store == "" && !w.isEmpty():
		log.Warn("the store has lost this namespace, it starts again: what ran is refused now")
	case s.Store != "" && s.floor < w.Floor:
		log.Warn("the store is older than what this machine knows, so transitions were lost: agents reclaim the leases that are left")
	default:
		log.Info("the store was restarted, replaced or is new: agents reclaim their leases")
	}
}

// waitForClock waits for the clock to reach a time, 2 s at most: a clock that was
// set back is made up for by the witness.
func waitForClock(ctx context.Context, clock func() time.Time, t time.Time) error {
	left := t.Sub(clock())
	if left <= 0 || left > 2*time.Second {
		return nil
	}
	return wait(ctx, left)
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return Unavailable("the store is being adopted", ctx.Err())
	}
}

func newFloor(store, witness int64, clock time.Time) int64 {
	seconds := max(0, int64(clock.Sub(floorEpoch)/time.Second))
	return max(store, witness, seconds*floorRange) + floorRange
}

// raiseCeiling raises the ceiling before the sequence numbers of the store reach it;
// nothing is voided by that. A million of them are left when it fails.
func (n *Namespace) raiseCeiling(seq int64) {
	w := n.witness.current()
	if ceiling(seq, w.Ceiling) == w.Ceiling {
		return
	}
	err := n.witness.withLock(func() error {
		w := n.witness.current()
		w.Ceiling = ceiling(seq, w.Ceiling)
		return n.witness.raise(w)
	})
	if err != nil {
		n.log.Error("the witness cannot be written: free its disk or fix its permissions", "err", err)
	}
}

// RestoreWitness puts back a witness file that was lost while this process runs,
// and tells when that cannot be done.
func (n *Namespace) RestoreWitness() error {
	if n.witness == nil {
		return nil
	}
	return n.witness.withLock(func() error {
		if err := n.witness.writable(); err != nil {
			return err
		}
		return n.witness.raise(n.witness.current())
	})
}

// ceiling leaves at least half a range above a sequence number.
func ceiling(seq, now int64) int64 {
	if seq+floorRange/2 < now {
		return now
	}
	return seq + floorRange
}

// onConnect checks every new connection before it carries anything: a server
// that was restarted, restored or promoted shows itself in no other way.
func (s *Store) onConnect(ctx context.Context, c *redis.Conn) error {
	for _, n := range s.namespaces {
		err := n.ensureAdopted(ctx, s.runner.through(c, n.name), false)
		switch {
		case err == nil, isOtherNode(err):
		case errors.Is(err, picket.ErrUnknown):
			return fmt.Errorf("check the store of namespace %s: %w", n.name, err)
		default: // its calls are refused until it is well; the other namespaces go on
			n.doubts.Add(1)
		}
	}
	return nil
}

// isOtherNode recognises a server that does not hold a namespace: another node of
// a cluster, or a sentinel.
func isOtherNode(err error) bool {
	reply, ok := errors.AsType[redis.Error](err)
	return ok && slices.ContainsFunc([]string{"MOVED ", "ASK ", "TRYAGAIN ", "CROSSSLOT ", "ERR unknown command"},
		func(prefix string) bool { return strings.HasPrefix(reply.Error(), prefix) })
}

// scriptFunc runs one script, through the script runner or on one connection alone.
type scriptFunc func(ctx context.Context, script string, args ...any) (any, error)

// storeState is what identify shows of a server and a namespace on it.
type storeState struct {
	identityReply
	floor      int64
	lostGrants bool // fewer grants than this process knows of
}

// identityReply is what the script identify answers.
type identityReply struct {
	Server  string `reply:"server"`
	Role    string `reply:"role"`    // of this server
	Store   string `reply:"store"`   // "" when the namespace is not there
	Adopted string `reply:"adopted"` // the identity that the namespace was adopted on
	Floor   string `reply:"floor"`   // as it stands there, for the comparison of adopt
	Seq     int64  `reply:"seq"`
	Granted int64  `reply:"granted"` // grants ever
	Format  int64  `reply:"format"`  // that is stored
	Known   int64  `reply:"known"`   // that this build stores
	// Migrating says how far the conversion to this format is; empty: none is under way.
	Migrating string `reply:"migrating"`
}

func (n *Namespace) readStoreState(ctx context.Context, run scriptFunc) (storeState, error) {
	floor, known := n.knownGrants.last() // before the store is asked: there it can only be more
	got, err := run(ctx, "identify")
	if err != nil {
		return storeState{}, err
	}
	r := NewReply("identify", got)
	var s storeState
	r.Decode(&s.identityReply)
	s.floor = ParseInt(s.Floor)
	s.lostGrants = s.floor == floor && s.Granted < known
	return s, r.Err
}

// isAdopted reports whether the namespace was adopted on this very server, and has
// not forgotten since.
func (s storeState) isAdopted() bool { return s.Store != "" && s.Adopted == s.Server && !s.lostGrants }

// grantCount is how many grants a process knows of, and under which floor. Fewer
// in the store mean that an older state was put back into a living server.
type grantCount struct {
	mu    sync.Mutex
	floor int64
	n     int64
}

func (g *grantCount) last() (floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.floor, g.n
}

func (g *grantCount) raise(floor, n int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if floor > g.floor {
		g.floor, g.n = floor, 0
	}
	if floor == g.floor {
		g.n = max(g.n, n)
	}
}
