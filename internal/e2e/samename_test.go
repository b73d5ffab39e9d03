//go:build linux

package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// once is an agent that says which worker it is of and completes when told to.
func once(name string) string {
	return fmt.Sprintf(`echo %s >"$E2E/at"; read x <"$E2E/go"; exec picket tool mark_complete --output %s`, name, name)
}

// Two workers are started under one name: one works, the other says what is
// wrong and what to do, and takes over when the first one ends. They never work
// at the same time, whether they share a machine or not.
func TestTwoWorkersOfOneName(t *testing.T) {
	for where, is := range map[string]struct {
		says string
		ends []string // of the first registration
	}{
		"on one machine": {"another adapter on this machine has this agent id",
			[]string{"active > deregistered: deregistered", "deregistered > active: re_registered"}},
		"on two machines": {"this agent id is alive elsewhere",
			[]string{"active > unhealthy: heartbeat_timeout", "unhealthy > dead: heartbeat_timeout",
				"dead > active: re_registered"}},
	} {
		t.Run(where, func(t *testing.T) {
			w := newTestEnv(t)
			w.up()
			at := w.fifo("at")
			w.fifo("go")
			first := w.worker("twin", once("first"), briskFlags...)
			w.lifecycle("twin", picket.AgentActive, picket.ReasonRegistered, 1)
			hire := w.worker
			if where == "on two machines" {
				hire = w.elsewhere
			}
			second := hire("twin", once("second"), briskFlags...)
			second.says(is.says)
			if text := second.err.text(); !strings.Contains(text, "remedy=") ||
				!strings.Contains(text, "agent id of its own") {
				t.Errorf("it does not say what to do:\n%s", text)
			}
			for n := range 2 {
				s := spec(fmt.Sprint("one at a time ", n), 60)
				s.Agent, s.Review = "twin", picket.ReviewByNone
				task := w.submit(s)
				if who := at.take(); who != "first" {
					t.Errorf("%s has it", who)
				}
				w.give("go")
				w.of(task.TaskID, picket.EventTaskCompleted)
			}
			w.expectStatuses(t, "twin", "registering > active: registered")
			if second.ended() || first.ended() {
				t.Fatalf("a worker is gone:\n%s", tail(second.err.text()))
			}
			first.kill()
			w.lifecycle("twin", picket.AgentActive, picket.ReasonReRegistered, 1)
			s := spec("the other one", 60)
			s.Agent, s.Review = "twin", picket.ReviewByNone
			task := w.submit(s)
			if who := at.take(); who != "second" {
				t.Errorf("%s has it", who)
			}
			w.give("go")
			w.of(task.TaskID, picket.EventTaskCompleted)
			w.expectStatuses(t, "twin", append([]string{"registering > active: registered"}, is.ends...)...)
		})
	}
}

// A worker with a name of its own that was killed comes back at once: its lock
// proves that the process before it is dead, so nobody waits the five minutes
// until it is known to be. Its task goes on with it.
func TestKilledWorkerComesBackUnderItsName(t *testing.T) {
	w := newTestEnv(t)
	w.up()
	at := w.fifo("at")
	w.fifo("go")
	first := w.worker("fixed", once("first"))
	w.lifecycle("fixed", picket.AgentActive, picket.ReasonRegistered, 1)
	s := spec("interrupted", 300)
	s.Review = picket.ReviewByNone
	task := w.submit(s)
	at.take()
	before := w.agent("fixed")
	first.kill()
	began := time.Now()
	w.worker("fixed", once("second"))
	again := w.lifecycle("fixed", picket.AgentActive, picket.ReasonReRegistered, 1)
	if who := at.take(); who != "second" {
		t.Errorf("%s has it", who)
	}
	t.Logf("a killed worker worked on its task again after %s; it would have been dead after %d s",
		time.Since(began).Round(time.Millisecond), before.Heartbeat.DeadAfterSeconds)
	w.give("go")
	w.of(task.TaskID, picket.EventTaskCompleted)
	if now := w.agent("fixed"); now.Incarnation <= before.Incarnation || now.Status != picket.AgentActive {
		t.Errorf("it was %+v and is %+v", before, now)
	}
	w.expectStatuses(t, "fixed", "registering > active: registered", "active > deregistered: deregistered",
		"deregistered > active: re_registered")
	if got := w.task(task.TaskID); got.Attempts != 2 || got.Failures != 0 || got.Runs[0].EndedAt > again.At+1 {
		t.Errorf("%d attempts and %d failures; the first run ended at %s, the registration was at %s", got.Attempts,
			got.Failures, got.Runs[0].EndedAt, again.At)
	}
}
