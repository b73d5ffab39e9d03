package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/picket-dev/picket"
)

// A version that changes how records are stored converts a namespace when it opens it. The verb
// migrate does so in steps, each of which is bounded and can be repeated. The first step stores the
// new format, so servers of earlier versions refuse every call from then on. Until the last step all
// verbs of this version refuse, too. No verb runs, so store time stands still and no lease runs out.

// A step looks at about migrationKeys keys of the store, and converts migrationRecords records at most.
// It takes the server one or two milliseconds.
const (
	migrationKeys    = 500
	migrationRecords = 100
)

// migrationPause is how long a process waits after a step that has failed.
const migrationPause = time.Second

// migrationReply is what the script migrate answers: what all steps together have converted.
type migrationReply struct {
	Records int64 `reply:"records"`
	Tasks   int64 `reply:"tasks"` // of these records
	Done    bool  `reply:"done"`
}

// isOld reports whether a namespace is in an earlier format, or is being converted.
func (s storeState) isOld() bool { return s.Store != "" && (s.Format < s.Known || s.Migrating != "") }

// convert converts the namespace if that is needed and this process may. It returns when all is
// converted, or when ctx ends.
func (n *Namespace) convert(ctx context.Context) error {
	if n.witness == nil {
		return nil
	}
	s, err := n.readStoreState(ctx, n.uncheckedRun())
	if err != nil || !s.isOld() || n.store.checkServer(s) != nil {
		return nil // the check that follows reports the error
	}
	return n.migrate(ctx, s)
}

// startMigration converts the namespace in the background, unless that is under way.
func (n *Namespace) startMigration(s storeState) {
	if n.witness == nil || !n.migrating.CompareAndSwap(false, true) {
		return
	}
	n.store.Background(func(ctx context.Context) {
		defer n.migrating.Store(false)
		if err := n.migrate(ctx, s); err != nil && ctx.Err() == nil {
			n.log.Error("the store cannot be converted", "err", err)
		}
	})
}

// migrate makes steps until the namespace has the format of this version. Several processes may do
// so at once, because each step goes on where the last one of any process has stopped. A step that
// fails since the store is full or does not answer is made again.
func (n *Namespace) migrate(ctx context.Context, s storeState) error {
	log := n.log.With("from", s.Format, "to", s.Known)
	log.Warn("the conversion of the store to a new format begins; servers of earlier versions are refused from now on")
	began, told := time.Now(), time.Now()
	for {
		r, err := n.migrationStep(ctx)
		switch {
		case ctx.Err() != nil:
			return Unavailable("the store is being converted", ctx.Err())
		case err != nil && !n.canRetryMigration(ctx, err):
			return fmt.Errorf("convert the store: %w", err)
		case err != nil:
			log.Warn("the store is not converted yet, the last step is made again", "err", err)
			if err := wait(ctx, migrationPause); err != nil {
				return err
			}
		case r.Done:
			log.Info("the conversion of the store has ended", "records", r.Records, "tasks", r.Tasks,
				"took", time.Since(began).Round(time.Millisecond))
			return nil
		case time.Since(told) >= time.Second:
			told = time.Now()
			log.Info("the store is being converted", "records", r.Records, "tasks", r.Tasks)
		}
	}
}

func (n *Namespace) migrationStep(ctx context.Context) (r migrationReply, err error) {
	got, err := n.uncheckedRun()(ctx, "migrate", migrationKeys, migrationRecords)
	if err != nil {
		return r, err
	}
	reply := NewReply("migrate", got)
	reply.Decode(&r)
	return r, reply.Err
}

// canRetryMigration reports whether a step that has failed may succeed later.
func (n *Namespace) canRetryMigration(ctx context.Context, err error) bool {
	if errors.Is(err, errStoreNewer) {
		return false
	}
	s, asked := n.readStoreState(ctx, n.uncheckedRun())
	if asked == nil && n.store.checkServer(s) != nil { // it is a replica now
		return false
	}
	code := picket.CodeOf(err)
	return code == picket.CodeUnavailable || code == picket.CodeStoreFull
}

// uncheckedRun runs scripts past the shared connections, which are checked.
func (n *Namespace) uncheckedRun() scriptFunc {
	return n.store.runner.through(n.store.uncheckedClient, n.name)
}
