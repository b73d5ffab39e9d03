package adapter

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// Anyone who is told that it is dead, or not known, has no agent left when it
// registers again, and works on.
func TestDeadAdapterStopsBeforeItRegistersAgain(t *testing.T) {
	for name, lose := range map[string]func(*runningAdapter){
		"dead":         func(w *runningAdapter) { w.s.Kill(w.a.AgentID()) },
		"store lost":   func(w *runningAdapter) { w.s.ForgetAgents() },
		"dead, silent": func(w *runningAdapter) { w.s.AdvanceClock(time.Hour) },
		"dead, a reply lost": func(w *runningAdapter) {
			w.s.Fail("/api/v1/agents/", adaptertest.DropReply, 1)
			w.s.Kill(w.a.AgentID())
		},
		"dead, the registration lost": func(w *runningAdapter) {
			w.s.Kill(w.a.AgentID())
			w.s.AwaitCalls(context.Background(), "/v1/run/exit", 1)
			w.s.Fail("/api/v1/agents", adaptertest.DropReply, 2)
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := startRunningAdapter(t, 300*time.Second)
			before := w.s.AgentView("").Record.Incarnation
			left := -1
			w.s.OnRegister = func(picket.Registration) { left = w.liveAgents() }
			lose(w)
			v := w.await(t, name, func(v adaptertest.AgentView) bool { return v.Record.Incarnation > before })
			if left != 0 {
				t.Errorf("%s: %d agents ran when it registered again", name, left)
			}
			if run := w.s.View(w.id).Runs[0]; run.ExitReport == nil || run.ExitReport.Class != picket.ExitLeaseLost {
				run, err := w.s.Await(withTimeout(t, time.Minute), w.id,
					func(v adaptertest.View) bool { return v.Runs[0].ExitReport != nil })
				if err != nil || run.Runs[0].ExitReport.Class != picket.ExitLeaseLost {
					t.Errorf("%s: %+v", name, run)
				}
			}
			w.await(t, "the task again", reportsTasks(w.id))
			for _, hb := range w.s.AgentView("").Heartbeats {
				if hb.At.After(v.Registrations[len(v.Registrations)-1].At) && hb.Incarnation != v.Record.Incarnation {
					t.Errorf("%s: a heartbeat of incarnation %d after that", name, hb.Incarnation)
				}
			}
			for _, asked := range w.s.AgentView("").Acquires {
				if asked.At.After(v.Registrations[len(v.Registrations)-1].At) &&
					asked.Incarnation != v.Record.Incarnation {
					t.Errorf("%s: asked under incarnation %d after that", name, asked.Incarnation)
				}
			}
			w.end(t)
		})
	}
}

// A lease that is granted while its adapter dies is not worked on.
func TestLeaseGrantedToADeadAdapterIsNotWorkedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		launched := 0
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) { launched++; runFor(time.Hour)(p) },
			func(c *Config) { c.Health, c.PinnedOnly = quickThresholds, true })
		id := s.Queue(adaptertest.Task{Retries: 9, OnExit: picket.OnExitComplete})
		restore := s.Fail("/v1/lease/renew", adaptertest.Hang, -1)
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if err := s.AwaitCalls(withTimeout(t, time.Minute), "/v1/lease/renew", 1); err != nil {
			t.Fatal(err)
		}
		s.Kill(a.AgentID())
		if _, err := s.AwaitAgent(withTimeout(t, time.Hour), "", registered(2)); err != nil {
			t.Fatal(err)
		}
		restore()
		if _, err := s.Await(withTimeout(t, 3*time.Hour), id, inReview); err != nil {
			t.Fatal(err)
		}
		if launched != 1 {
			t.Errorf("launched %d times", launched)
		}
		drain()
		if err := ended(); err != nil {
			t.Fatal(err)
		}
	})
}

// An operator who removes an adapter ends its work, and it does not come back.
func TestRemovedByAnOperator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var a *Adapter
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.Health = quickThresholds })
		id := s.Queue(adaptertest.Task{})
		ended := runAsync(t.Context(), a)
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", reportsTasks(id)); err != nil {
			t.Fatal(err)
		}
		s.Pause(true)
		s.Deregister(a.AgentID())
		err := ended()
		var e *picket.Error
		if !errors.As(err, &e) || e.Code != picket.CodeAgentGone || e.Remedy == "" {
			t.Errorf("it ended with %v", err)
		}
		if v := s.AgentView(""); len(v.Registrations) != 1 || v.Record.Status != picket.AgentDeregistered {
			t.Errorf("%d registrations, %s", len(v.Registrations), v.Record.Status)
		}
		if r := s.View(id).Runs[0]; r.ExitReport == nil || r.ExitReport.Class != picket.ExitLeaseLost {
			t.Errorf("%+v", r)
		}
	})
}

// However a drain comes from the registry, it is the same: nothing new, what
// runs finishes, and Run returns without an error.
func TestDrainedByTheRegistry(t *testing.T) {
	timeout := 7200
	for name, order := range map[string]func(*adaptertest.Server, string){
		"command": func(s *adaptertest.Server, id string) {
			s.CommandAgent(id, picket.AgentCommand{Command: picket.CommandDrain, DrainTimeoutSeconds: &timeout})
		},
		"status": func(s *adaptertest.Server, id string) { s.Drain(id, 2*time.Hour) },
	} {
		for _, busy := range []bool{true, false} {
			synctest.Test(t, func(t *testing.T) {
				a, s := newScriptedAdapter(t, runFor(time.Hour), func(c *Config) { c.Max = 2 })
				id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
				if !busy {
					s.Pause(true)
				}
				ended := runAsync(t.Context(), a)
				if err := s.AwaitCalls(withTimeout(t, time.Minute), "/api/v1/leases", 1); err != nil {
					t.Fatal(err)
				}
				if busy {
					if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", reportsTasks(id)); err != nil {
						t.Fatal(err)
					}
				}
				order(s, a.AgentID())
				time.Sleep(time.Minute)
				s.Pause(false)
				late := s.Queue(adaptertest.Task{})
				if err := ended(); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				v := s.AgentView("")
				if state := s.View(id).State; busy && state != picket.TaskReview ||
					v.Record.Status != picket.AgentDeregistered {
					t.Errorf("%s: the task is %s, the agent %s", name, state, v.Record.Status)
				}
				if s.View(late).Token != 0 {
					t.Errorf("%s: it took another task", name)
				}
				if moves := v.Transitions; moves[0] != picket.ReasonDrainInitiated || len(moves) != 2 {
					t.Errorf("%s: %v", name, moves)
				}
				if last := v.Heartbeats[len(v.Heartbeats)-1]; last.Status != picket.AgentDraining {
					t.Errorf("%s: it still calls itself %s", name, last.Status)
				}
			})
		}
	}
}

// A drain whose time is over ends the work, and the adapter does not come back.
func TestDrainTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever,
			func(c *Config) { c.Health = quickThresholds; c.Health.DrainTimeout = time.Minute })
		id := s.Queue(adaptertest.Task{})
		ctx, drain := context.WithCancel(t.Context())
		ended := runAsync(ctx, a)
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", reportsTasks(id)); err != nil {
			t.Fatal(err)
		}
		s.Pause(true)
		start := time.Now()
		drain()
		if err := ended(); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took < time.Minute || took > 70*time.Second {
			t.Errorf("it took %s", took)
		}
		if v := s.AgentView(""); v.Record.Status != picket.AgentDead || len(v.Registrations) != 1 {
			t.Errorf("%s, %d registrations", v.Record.Status, len(v.Registrations))
		}
	})
}

// An operator's drain without any time is the end, too.
func TestDrainWithoutTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runForever, func(c *Config) { c.Health = quickThresholds })
		id := s.Queue(adaptertest.Task{})
		ended := runAsync(t.Context(), a)
		if _, err := s.AwaitAgent(withTimeout(t, time.Minute), "", reportsTasks(id)); err != nil {
			t.Fatal(err)
		}
		s.Drain(a.AgentID(), 0)
		if err := ended(); err != nil {
			t.Error(err)
		}
		if v := s.AgentView(""); v.Record.Status != picket.AgentDead || len(v.Registrations) != 1 ||
			s.View(id).Token != 1 {
			t.Errorf("%s, %d registrations, token %d", v.Record.Status, len(v.Registrations), s.View(id).Token)
		}
	})
}

// Commands are carried out once, however often they come, and reported until
// that was heard.
func TestCommands(t *testing.T) {
	for _, kind := range []adaptertest.Fault{0, adaptertest.DropReply} {
		synctest.Test(t, func(t *testing.T) {
			w := startRunningAdapter(t, 300*time.Second)
			if kind != 0 {
				w.s.Fail("/api/v1/agents/", kind, 4)
			}
			w.s.CommandAgent(w.a.AgentID(), picket.AgentCommand{Command: picket.CommandPing})
			w.s.CommandAgent(w.a.AgentID(),
				picket.AgentCommand{Command: picket.CommandStopTask, TaskID: w.id, Reason: "enough"})
			w.s.CommandAgent(w.a.AgentID(),
				picket.AgentCommand{Command: picket.CommandStopTask, TaskID: "task_elsewhere"})
			heard := func(adaptertest.AgentView) bool { return len(w.s.Pending(w.a.AgentID())) == 0 }
			for !heard(adaptertest.AgentView{}) {
				time.Sleep(time.Second)
			}
			run := w.s.View(w.id).Runs[0]
			if run.Released == nil || run.Released.Class != picket.ExitReleased {
				t.Errorf("trouble %d: %+v", kind, run)
			}
			if told := w.log.told(); len(told) != 1 || told[0][:4] != "dead" {
				t.Errorf("trouble %d: %v", kind, told)
			}
			// The task is back here, and nobody stops it for a command of before.
			w.await(t, "the task again", reportsTasks(w.id))
			time.Sleep(time.Minute)
			if n := w.liveAgents(); n != 1 || len(w.s.View(w.id).Runs) != 2 {
				t.Errorf("trouble %d: %d agents, %d runs", kind, n, len(w.s.View(w.id).Runs))
			}
			var said []string
			for _, hb := range w.s.AgentView("").Heartbeats {
				said = append(said, hb.HandledCommands...)
			}
			if slices.Sort(said); len(slices.Compact(said)) != 3 {
				t.Errorf("trouble %d: handled %v", kind, said)
			}
			w.end(t)
		})
	}
}

// A task that the registry knows no lease of is stopped; one whose agent has
// just handed its result in ends on its own.
func TestTaskWithoutALeaseIsStopped(t *testing.T) {
	for _, done := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := startRunningAdapter(t, 300*time.Second, func(c *Config) { c.Linger = time.Minute })
			w.s.Pause(true)
			w.s.Fail("/v1/lease/watch", adaptertest.Hang, 1) // it is not told
			w.await(t, "a heartbeat", reportsTasks(w.id))
			w.s.AwaitCalls(withTimeout(t, time.Hour), "/v1/lease/watch", len(w.s.Calls("/v1/lease/watch"))+1)
			ended := time.Now()
			if done {
				w.s.Complete(w.id, picket.RawJSON(`1`))
			} else {
				w.s.Expire(w.id)
			}
			w.await(t, "the end", reportsTasks())
			for w.liveAgents() > 0 {
				time.Sleep(time.Second)
			}
			if took := time.Since(ended); !done && took > 10*time.Second || done && took < time.Minute {
				t.Errorf("done %v: it took %s", done, took)
			}
			w.end(t)
		})
	}
}

// A command that comes again after it was handled is not carried out again.
func TestCommandIsTakenOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _ := newScriptedAdapter(t, runForever)
		s := newRegistration(&a.cfg, a.client, 1, 0, func() {})
		ping := picket.PendingCommand{
			CommandID:    "command_1",
			AgentCommand: picket.AgentCommand{Command: picket.CommandPing},
		}
		for range 3 {
			s.handleCommand(t.Context(), ping)
		}
		if !slices.Equal(s.heartbeat().HandledCommands, []string{"command_1"}) {
			t.Errorf("handled %v", s.heartbeat().HandledCommands)
		}
	})
}
