package console_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// Anyone who has not seen that somebody stopped everything does not undo it, nor
// make less of it; the page says who it was and why. What stops is never
// refused, and the same form twice is one decision.
func TestAStaleFormDoesNotUndoAStop(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		ann, ben := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeOperator)
		must(t, o.Tick(t.Context()))
		const page, pause, resume = "/console/stop", "/console/pause", "/console/resume"
		late := ben.mustGet(page).hidden(pause) // a page on which nothing is paused
		first := append(ann.mustGet(page).hidden(pause), "reason", "a deploy")
		for range 2 {
			ann.follow(ann.post(pause, first...)).wantText(t, "Paused.", "“a deploy”")
		}
		o.passTime(2 * time.Second)

		p := ben.post(pause, append(late, "reason", "mine")...)
		if p.status != http.StatusConflict {
			t.Errorf("a pause beside another: %d", p.status)
		}
		p.wantText(t, "paused it already", ann.key.KeyID, "a deploy", `value="mine"`)

		soft := ann.mustGet(page).hidden(resume) // the pause of before is all she knows of
		o.passTime(2 * time.Second)
		ben.follow(ben.post(pause, append(late, "hard", "yes", "reason", "it burns", "once", ben.newNonce())...)).
			wantText(t, "Stopped.", "“it burns”")
		p = ann.post(resume, append(soft, "reason", "deployed")...)
		if p.status != http.StatusConflict {
			t.Errorf("a stop that was not seen is undone: %d", p.status)
		}
		p.wantText(t, "stopped it already", ben.key.KeyID, "it burns", `value="deployed"`)
		if _, err := o.Pause(t.Context(), picket.Caller{Actor: "test"}, false, "less"); err != nil {
			t.Error(err)
		}
		s, err := o.Stats(t.Context())
		must(t, err)
		if !s.Pause.Hard || s.Pause.Reason != "less" { // a pause after a stop is the newest, and no less hard
			t.Errorf("the stop has become %+v", s.Pause)
		}
		ann.follow(ann.submit(page, resume, "reason", "seen")).wantText(t, "Resumed.")
	})
}

// The lease that a person has seen is the one they take: the run that has the
// task by now keeps it.
func TestAStaleFormDoesNotExpireALaterLease(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeOperator)
		id, first := o.startRun(picket.TaskSpec{Title: "x"})
		task, leases := "/console/tasks/"+id, "/console/leases/"+id+"/expire"
		onTask, inList := s.mustGet(task).hidden(task+"/expire"), s.mustGet("/console/leases").hidden(leases)
		_, err := o.Release(t.Context(), first, picket.Exit{Class: picket.ExitReleased})
		must(t, err)
		again, err := o.Acquire(t.Context(), picket.Caller{Actor: "test"}, picket.AcquireRequest{AgentID: "a1"})
		must(t, err)
		if len(again) != 1 {
			t.Fatalf("leased %v", again)
		}
		for path, fields := range map[string][]string{task + "/expire": onTask, leases: inList} {
			p := s.post(path, append(fields, "reason", "it hangs")...)
			if p.status != http.StatusConflict {
				t.Errorf("%s: %d", path, p.status)
			}
			p.wantText(t, "has lost the task already", again[0].RunID, `value="it hangs"`)
		}
		if got, err := o.Task(t.Context(), id); err != nil || got.State != picket.TaskLeased {
			t.Errorf("the later run has lost it: %s, %v", got.State, err)
		}
		s.follow(s.submit(task, task+"/expire", "reason", "it hangs")).wantText(t, "The lease has been taken")
	})
}
