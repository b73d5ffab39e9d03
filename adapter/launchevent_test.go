package adapter

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
)

// plainLauncher is a launcher that does not know beforehand how it holds a tree.
type plainLauncher struct{ process.Launcher }

// checkedLauncher asks a question at the moment of a launch, and may refuse it.
type checkedLauncher struct {
	scriptedLauncher
	ask func() error
}

func (c checkedLauncher) Launch(ctx context.Context, job process.Job) (process.Process, error) {
	if err := c.ask(); err != nil {
		return nil, err
	}
	return c.scriptedLauncher.Launch(ctx, job)
}

// A process is announced before there is one: at the launch the log has it.
func TestAnnouncedBeforeTheLaunch(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var s *adaptertest.Server
			var lease picket.Lease
			asked := false
			a, s := newScriptedAdapter(t, nil, func(c *Config) {
				c.Launcher = checkedLauncher{runFor(time.Second), func() error {
					asked = true
					if events := s.View(lease.TaskID).Runs[0].Events; len(events) != 1 ||
						events[0].Type != picket.EventRunLaunched || events[0].Containment != picket.ContainmentGroup {
						t.Errorf("at the launch the log has %+v", events)
					}
					if refuses {
						return errors.New("no such program")
					}
					return nil
				}}
			})
			lease = s.Grant(adaptertest.Task{})
			a.RunLease(t.Context(), lease)
			// What never began is over: nobody waits for it.
			if exit := s.View(lease.TaskID).Runs[0].Released; !asked || exit == nil ||
				refuses && (exit.Class != picket.ExitCrash || *exit.Code != 127) {
				t.Errorf("asked %t, released as %+v", asked, exit)
			}
		})
	}
}

// A proxy that is away does not hold up the launch for long, and is told later.
func TestAnnouncedLate(t *testing.T) {
	for _, kind := range []adaptertest.Fault{adaptertest.Unavailable, adaptertest.Hang, adaptertest.DropReply} {
		synctest.Test(t, func(t *testing.T) {
			var began time.Time
			a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
				began = time.Now()
				runFor(time.Minute)(p)
			})
			lease := s.Grant(adaptertest.Task{OnExit: picket.OnExitComplete})
			s.Fail("/v1/run/events", kind, 2)
			start := time.Now()
			if _, err := a.RunLease(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			if waited := began.Sub(start); waited > 3*time.Second {
				t.Errorf("trouble %d: launched after %s", kind, waited)
			}
			if events := s.View(lease.TaskID).Runs[0].Events; len(events) == 0 ||
				events[0].Type != picket.EventRunLaunched {
				t.Errorf("trouble %d: %+v", kind, events)
			}
		})
	}
}

// Anyone who cannot say beforehand how a tree is held says it afterwards.
func TestAnnouncementIsCorrected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, nil, func(c *Config) { c.Launcher = plainLauncher{runFor(time.Second)} })
		lease := s.Grant(adaptertest.Task{})
		if _, err := a.RunLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		events := s.View(lease.TaskID).Runs[0].Events
		if len(events) != 2 || events[0].Containment != "" || events[1].Containment != picket.ContainmentGroup {
			t.Errorf("%+v", events)
		}
	})
}
