package adapter

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// overdueProcess is a puppet whose shim saw its deadline pass before the adapter did.
type overdueProcess struct{ *scriptedProcess }

func (overdueProcess) Overdue() bool { return true }

type overdueLauncher struct{}

func (overdueLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	p, err := scriptedLauncher(func(p *scriptedProcess) { p.endWith(process.Exited{Code: 137, Signal: "SIGKILL"}) }).
		Launch(ctx, job)
	return overdueProcess{p.(*scriptedProcess)}, err
}

// An agent that the deadline ended is not a crash, no matter who was first to end it.
func TestOverdueIsALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, nil, func(c *Config) { c.Launcher = overdueLauncher{} })
		lease := s.Grant(adaptertest.Task{})
		res, err := a.RunLease(t.Context(), lease)
		if err != nil || res.Ending != EndLost || res.Exit.Class != picket.ExitLeaseLost || res.Exit.Signal == nil {
			t.Errorf("ended %s with %+v, %v", res.Ending, res.Exit, err)
		}
		if v := s.View(lease.TaskID); v.Runs[0].Released != nil || v.Runs[0].ExitReport == nil {
			t.Errorf("reported as %+v", v.Runs[0])
		}
	})
}
