package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A caller that waits for the end of a lease beside the adapter gets it, however the lease ends,
// and takes none of the adapter's commands.
func TestTheEndOfALeaseIsAwaited(t *testing.T) {
	for name, end := range map[string]func(f *fixture, h picket.LeaseCredential) error{
		"completed": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Complete(f.Ctx, h, picket.Completion{})
			return err
		},
		"cancelled": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
			return err
		},
		"expired": func(f *fixture, h picket.LeaseCredential) error {
			_, err := f.Expire(f.Ctx, kit.Operator, h.TaskID, "")
			return err
		},
	} {
		onBothStores(t, func(t *testing.T, f *fixture) {
			_, h := f.SubmitAndLease(t, picket.TaskSpec{})
			for range 5 { // a nudge waits
				_, err := f.HeldTask(f.Ctx, h, "")
				kit.OK(t, err)
			}
			if ended, err := f.AwaitEnd(f.Ctx, h, time.Millisecond); err != nil || ended {
				t.Fatalf("%s: ended %t at once: %v", name, ended, err)
			}
			w, changed, err := f.Watch(f.Ctx, h, time.Millisecond)
			if kit.OK(t, err); !changed || len(w.Commands) != 1 {
				t.Errorf("%s: the nudge has gone astray: %+v", name, w)
			}
			got := make(chan error, 1)
			go func() {
				ended, err := f.AwaitEnd(f.Ctx, h, 50*time.Second)
				if !ended {
					t.Errorf("%s: the wait is over before the lease", name)
				}
				got <- err
			}()
			kit.OK(t, end(f, h))
			kit.OK(t, <-got)
			if ended, err := f.AwaitEnd(f.Ctx, h, time.Minute); err != nil || !ended {
				t.Errorf("%s: asked afterwards: %t %v", name, ended, err)
			}
			stranger := h
			stranger.Secret = "x"
			_, err = f.AwaitEnd(f.Ctx, stranger, time.Minute)
			kit.Refused(t, err, picket.CodeLeaseExpired)
		})
	}
}
