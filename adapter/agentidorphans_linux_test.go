package adapter

import (
	"context"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// An adapter that waited for an agent id ends what its holder has left before it takes the
// holder's place, though it had looked for that when it started.
func TestOrphansOfThePreviousAgentIDOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, state := adaptertest.New(), t.TempDir()
		a := newFixedIDAdapter(t, s, state)
		holder, err := lockAgentIDDir(t.Context(), filepath.Join(state, agentIDsDir, fixed))
		if err != nil {
			t.Fatal(err)
		}
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		time.Sleep(time.Minute) // of the bubble: it waits
		lease := s.Grant(adaptertest.Task{})
		writeOrphan(t, &a.cfg, lease, process.Record{})
		before := len(s.Calls("/api/v1/agents"))
		holder.lock.Close() // it dies
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), fixed, registered(1)); err != nil {
			t.Fatal(err)
		}
		if run := s.View(lease.TaskID).Runs[0]; before != 0 || run.Released == nil {
			t.Errorf("registered after %d attempts beside a run that is %+v", before, run)
		}
		drain()
		if err := ended(); err != nil {
			t.Error(err)
		}
	})
}
