package adapter

import (
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// An agent that stops itself and its child is found out and killed on every
// level of containment there is here, though it would be renewed for ever.
func TestStoppedTreeIsEnded(t *testing.T) {
	rig.SkipShort(t)
	for _, level := range picket.Containments {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := adaptertest.Start(t)
			a, err := New(Config{BaseURL: s.URL, Key: adaptertest.Key, StateDir: t.TempDir(), Containment: level,
				Command: []string{"sh", "-c", `sleep 1000 & kill -STOP $! $$; wait`}})
			if err != nil {
				t.Skipf("%s does not work here: %v", level, err)
			}
			lease := s.Grant(adaptertest.Task{})
			res, err := a.RunLease(t.Context(), lease)
			run := s.View(lease.TaskID).Runs[0]
			if err != nil || run.Released == nil || run.Released.Class != picket.ExitStalled ||
				!strings.Contains(run.Released.Detail, "stopped") {
				t.Fatalf("%+v, %v", res, err)
			}
			if res.Exit.Signal == nil || *res.Exit.Signal != "SIGKILL" {
				t.Errorf("ended by %+v", res.Exit)
			}
		})
	}
}
