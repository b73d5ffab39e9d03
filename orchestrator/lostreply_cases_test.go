package orchestrator_test

import (
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// readers are the scripts that change nothing.
var readers = []string{"agent", "agents", "pools", "evidence", "explain", "handoffs", "identify", "keys", "leases",
	"list", "log", "reports", "reviews", "stats", "task",
	"envelope", "ledger", "await_exec", "can_exec", "webhook_list", "review_ids"}

func replyCases() []replyCase {
	var all []replyCase
	for _, cases := range [][]replyCase{taskCases, leaseCases, evidenceCases, peopleCases, operatorCases, sweepCases,
		adoptionCases, agentCases, moneyCases, treeCases, webhookCases, loginCases, keyCases} {
		all = append(all, cases...)
	}
	return all
}

func asked(key string) picket.Caller {
	return picket.Caller{
		Actor:       "key_test",
		Idempotency: picket.Idempotency{Key: strings.Repeat(key, 64), Body: strings.Repeat("b", 64)},
	}
}

func (w *replyEnv) submitted(spec picket.TaskSpec) {
	w.t.Helper()
	if spec.Title == "" {
		spec.Title = "a task"
	}
	var err error
	w.task, err = w.direct.Submit(w.ctx, operator, spec)
	ok(w.t, err)
}

func (w *replyEnv) acquired() {
	w.t.Helper()
	leases, err := w.direct.Acquire(w.ctx, operator, picket.AcquireRequest{AgentID: "a1", WorkspaceRoot: "/srv/runs"})
	ok(w.t, err)
	if len(leases) != 1 {
		w.t.Fatalf("acquired %d leases", len(leases))
	}
	w.run = leases[0].RunID
	w.held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	ok(w.t, err)
}

// leased is a set-up with one task that is leased.
func leased(spec picket.TaskSpec) func(w *replyEnv) {
	return func(w *replyEnv) {
		w.submitted(spec)
		w.acquired()
	}
}

// confirmed is leased by an agent that has been heard of.
func confirmed(spec picket.TaskSpec) func(w *replyEnv) {
	return func(w *replyEnv) {
		leased(spec)(w)
		_, err := w.direct.Renew(w.ctx, w.held)
		ok(w.t, err)
	}
}

var retriesOnCrash = picket.TaskSpec{
	Retry: &picket.Retry{MaxAttempts: ptr(3), On: []picket.ExitClass{picket.ExitCrash}},
}

var taskCases = []replyCase{
	{
		name:  "submit",
		setup: func(*replyEnv) {},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Submit(w.ctx, asked("1"),
				picket.TaskSpec{
					Title:  "t",
					Role:   "coder",
					Labels: map[string]string{"team": "a"},
					Input:  picket.RawJSON(`{"n":1}`),
				})
		},
	},
	{name: "submit/fixes", setup: func(w *replyEnv) {
		confirmed(picket.TaskSpec{})(w)
		_, err := w.direct.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Submit(w.ctx, asked("1"), picket.TaskSpec{Title: "t", Fixes: w.task.TaskID})
	}},
	{
		name: "grant",
		setup: func(w *replyEnv) {
			w.submitted(picket.TaskSpec{Input: picket.RawJSON(`"one"`)})
			w.submitted(picket.TaskSpec{Priority: ptr(9)})
			w.submitted(picket.TaskSpec{Role: "other"})
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			leases, err := e.Acquire(w.ctx, asked("1"),
				picket.AcquireRequest{AgentID: "a1", Max: ptr(3), WorkspaceRoot: "/srv/runs"})
			for i := range leases {
				leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return leases, err
		},
	},
	{name: "undeliver", answerVaries: "a repeat finds nothing left to give back", setup: leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.Undeliver(w.ctx, w.run)
		}},
	{
		name:          "unwait",
		neverRepeated: "a waiter that stays ends with its wait",
		setup: func(w *replyEnv) {
			ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:waiters",
				zMember(float64(w.now.Milliseconds()+20_000), "waiter_1 a1  ")).
				Err())
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			orchestrator.ForgetWaiter(w.ctx, e, "waiter_1 a1  ")
			return nil, nil
		},
	},
}

var leaseCases = []replyCase{
	{
		name:         "renew",
		repeatCounts: "a renewal extends the lease from when it is made, and is counted",
		setup:        leased(picket.TaskSpec{}),
		call:         func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.Renew(w.ctx, w.held) },
	},
	{name: "get_task", setup: leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.HeldTask(w.ctx, w.held, "g1") }},
	{name: "report", setup: leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Report(w.ctx, w.held, "r1", picket.Progress{Summary: "half way", NextStep: "the rest"})
		}},
	{name: "report/nudged", setup: repeatedReports(4),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Report(w.ctx, w.held, "r5", picket.Progress{Summary: "again"})
		}},
	{name: "report/loops", setup: repeatedReports(9), // the tenth, which ends the run
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			_, err := e.Report(w.ctx, w.held, "r10", picket.Progress{Summary: "again"})
			if picket.CodeOf(err) == picket.CodeLeaseReleased {
				return picket.CodeLeaseReleased, nil
			}
			return nil, err
		}},
	{name: "watch", setup: repeatedReports(5), // delivers a nudge once; what is lost comes with the next renewal
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			_, _, err := e.Watch(w.ctx, w.held, 0)
			return nil, err
		}},
	{name: "complete", setup: leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`{"n":1}`), Summary: "done"})
		}},
	{name: "complete/unreviewed", setup: confirmed(picket.TaskSpec{Review: picket.ReviewByNone}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`{"n":1}`), Summary: "done"})
		}},
	{
		name:          "advance",
		otherWhenFull: "the lease ends and none is granted",
		setup: func(w *replyEnv) {
			leased(picket.TaskSpec{})(w)
			w.submitted(picket.TaskSpec{Input: picket.RawJSON(`"next"`)})
			w.submitted(picket.TaskSpec{})
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			got, err := e.Advance(w.ctx, w.held, asked("1"),
				picket.AdvanceRequest{Output: picket.RawJSON(`{"n":1}`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
			for i := range got.Leases {
				got.Leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return got, err
		},
	},
	{
		name:           "advance/unreviewed",
		passesWhenFull: true,
		setup:          confirmed(picket.TaskSpec{Review: picket.ReviewByNone}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Advance(w.ctx, w.held, operator,
				picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
		},
	},
	{
		name:  "request_help",
		setup: leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.RequestHelp(w.ctx, w.held,
				picket.HelpRequest{
					Question:        "which one?",
					Options:         []string{"a", "b"},
					DeadlineSeconds: ptr(60),
					OnDeadline:      picket.OnDeadlineDeny,
				})
		},
	},
	{name: "release", setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Release(w.ctx, w.held, picket.Exit{Class: picket.ExitReleased})
		}},
	{
		name:  "release/crash",
		setup: confirmed(retriesOnCrash),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Release(w.ctx, w.held,
				picket.Exit{Class: picket.ExitCrash, Code: ptr(1), Detail: "the last lines"})
		},
	},
	{
		name:  "fail",
		setup: confirmed(retriesOnCrash),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Fail(w.ctx, w.held, "no luck", true)
		},
	},
	{
		name:  "fail/final",
		setup: confirmed(retriesOnCrash),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Fail(w.ctx, w.held, "no way", false)
		},
	},
}

// repeatedReports is a run that has made the same report n times in a row.
func repeatedReports(n int) func(w *replyEnv) {
	return func(w *replyEnv) {
		confirmed(picket.TaskSpec{})(w)
		for range n {
			_, err := w.direct.Report(w.ctx, w.held, "", picket.Progress{Summary: "again"})
			ok(w.t, err)
		}
	}
}

var evidenceCases = []replyCase{
	{
		name: "run_exit",
		setup: func(w *replyEnv) { // a task that waits for this exit
			confirmed(picket.TaskSpec{})(w)
			ok(w.t, w.direct.RunEvents(w.ctx, w.held,
				[]picket.RunEvent{{Type: picket.EventRunLaunched, Containment: picket.ContainmentGroup}}))
			_, err := w.direct.Expire(w.ctx, operator, w.task.TaskID, "test")
			ok(w.t, err)
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.RunExit(w.ctx, w.held,
				picket.Exit{Class: picket.ExitCrash, Signal: ptr("SIGKILL"), Detail: "the last lines"},
				picket.ContainmentGroup)
		},
	},
	{name: "run_log", setup: func(w *replyEnv) {
		confirmed(picket.TaskSpec{})(w)
		_, err := w.direct.RunLog(w.ctx, w.held, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("hello ")})
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.RunLog(w.ctx, w.held, picket.LogWrite{Stream: "stdout", Offset: 6, Data: []byte("world\r\n")})
	}},
	{name: "run_evidence", setup: func(w *replyEnv) { // what was handed in before is replaced
		confirmed(picket.TaskSpec{})(w)
		ok(w.t, w.direct.RunEvidence(w.ctx, w.held, picket.Evidence{Branch: "picket/t", Diff: "-a"}))
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return nil, e.RunEvidence(w.ctx, w.held, picket.Evidence{Branch: "picket/t", Diff: "-a\n+b"})
	}},
	{
		name:  "run_events",
		setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.ctx, w.held,
				[]picket.RunEvent{{
					Type:          picket.EventRunLaunched,
					Containment:   picket.ContainmentGroup,
					WorkspacePath: "/srv/here",
				}})
		},
	},
	{
		name:  "run_events/timed",
		setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.ctx, w.held,
				[]picket.RunEvent{{Type: picket.EventAgentTimeoutWarning, ID: "e1"},
					{Type: picket.EventAgentTimedOut, ID: "e2"}})
		},
	},
	{
		name:  "run_events/stalled",
		setup: confirmed(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.ctx, w.held,
				[]picket.RunEvent{{Type: picket.EventRunStalled, ID: "e1", IdleSeconds: ptr(60.0)}})
		},
	},
	{
		name:          "refused",
		neverRepeated: "the caller has had its refusal; only its event is at stake",
		repeatCounts:  "each refusal is told",
		setup:         leased(picket.TaskSpec{}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			e.RecordRefusedWrite(w.ctx, w.held, "complete", picket.Refuse(picket.CodeStaleFence, "Stop.", "superseded"))
			return nil, nil
		},
	},
}
