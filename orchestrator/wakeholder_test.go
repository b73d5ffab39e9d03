package orchestrator_test

import (
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// hold has a process take the directory of policies, or renew it.
func (f *fixture) hold(t *testing.T, holder string) {
	t.Helper()
	_, held, err := f.PolicyStore().Lock(f.Ctx, holder)
	kit.OK(t, err)
	if !held {
		t.Fatalf("%s does not get the directory", holder)
	}
}

// A session that was reported before a server took the directory is not woken until it is reported again. A renewal
// changes nothing, and neither does another server.
func TestSessionsAreUnknownAfterANewHolder(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		unknown := func(what string) {
			t.Helper()
			f.wantHealth(t, id, "detached/unknown/session_unhealthy/health_unknown")
			if d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSessionUnhealthy); d.WakeID != "" {
				t.Errorf("%s a wake was made: %+v", what, d)
			}
			kit.OK(t, f.report("a1", n, idleSession(id)))
		}
		healthy := func() {
			t.Helper()
			f.wantHealth(t, id, "idle/healthy/-/-")
			f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent)
			f.JumpStoreTime(t, time.Second)
		}
		healthy()
		f.hold(t, "a")
		unknown("after the first lock")
		healthy()
		f.hold(t, "a")
		healthy() // a renewal
		if _, held, err := f.PolicyStore().Lock(f.Ctx, "b"); err != nil || held {
			t.Errorf("two servers have the directory: %v, %v", held, err)
		}
		healthy()
		f.JumpStoreTime(t, mirror.Lease)
		f.hold(t, "b") // a was killed
		unknown("after another server took over")
		healthy()
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "b"))
		f.hold(t, "b") // it was started again
		unknown("after a restart")
		healthy()
	})
}

// While no server has the directory no wake is sent, also if the last one has stopped. Its release ends nothing else.
func TestNoWakeWithoutTheHolder(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		wakes := func(want picket.WakeReason) {
			t.Helper()
			kit.OK(t, f.report("a1", n, idleSession(id)))
			f.wantWake(t, picket.WakeRequest{DryRun: true}, want)
		}
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "nobody")) // there was never a directory
		wakes(picket.WakeReasonSent)
		f.hold(t, "a")
		wakes(picket.WakeReasonSent)
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "b")) // it is not that of b
		wakes(picket.WakeReasonSent)
		kit.OK(t, f.PolicyStore().Release(f.Ctx, "a"))
		kit.OK(t, f.report("a1", n, idleSession(id)))
		d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonInvalid)
		if len(d.Diagnostics) != 1 || d.Diagnostics[0].Code != "heartbeat_files_unread" {
			t.Errorf("the diagnostics are %+v", d.Diagnostics)
		}
		f.hold(t, "b") // at once: nobody has it
		wakes(picket.WakeReasonSent)
	})
}
