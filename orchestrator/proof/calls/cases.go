package calls

import (
	"strings"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Readers are the scripts that change nothing.
var Readers = []string{"agent", "agents", "pools", "evidence", "bundle",
	"bundle_read", "conversation", "explain", "handoffs", "identify", "keys", "leases",
	"list", "client_tasks", "log", "reports", "reviews", "stats", "task",
	"envelope", "ledger", "spending", "await_exec", "can_exec", "webhook_list", "review_ids", "totals", "policy",
	"policy_history", "policies", "agent_sessions", "prompt", "prompts", "wake_facts", "wakes",
	"session_capability", "agent_context", "owns_name", "push_list"}

func All() []Case {
	var all []Case
	for _, cases := range [][]Case{taskCases, leaseCases, evidenceCases, peopleCases, operatorCases, sweepCases,
		adoptionCases, agentCases, moneyCases, treeCases, webhookCases, loginCases, keyCases, messageCases,
		policyCases, sessionCases, wakeCases, capabilityCases, endpointCases, pushCases} {
		all = append(all, cases...)
	}
	return all
}

func Asked(key string) picket.Caller {
	return picket.Caller{
		Actor:       "key_test",
		Idempotency: picket.Idempotency{Key: strings.Repeat(key, 64), Body: strings.Repeat("b", 64)},
	}
}

func (w *Env) Submitted(spec picket.TaskSpec) {
	w.T.Helper()
	if spec.Title == "" {
		spec.Title = "a task"
	}
	var err error
	w.Task, err = w.Direct.Submit(w.Ctx, kit.Operator, spec)
	kit.OK(w.T, err)
}

func (w *Env) acquired() {
	w.T.Helper()
	leases, err := w.Direct.Acquire(w.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1",
		WorkspaceRoot: "/srv/runs"})
	kit.OK(w.T, err)
	if len(leases) != 1 {
		w.T.Fatalf("acquired %d leases", len(leases))
	}
	w.run = leases[0].RunID
	w.Held, err = rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	kit.OK(w.T, err)
}

// sendBundle sends the first n pieces of a bundle.
func (w *Env) sendBundle(b kit.Bundle, n int) {
	w.T.Helper()
	for i := range n {
		_, err := w.Direct.RunBundlePiece(w.Ctx, w.Held, b.Piece(i))
		kit.OK(w.T, err)
	}
}

// leased is a set-up with one task that is leased.
func leased(spec picket.TaskSpec) func(w *Env) {
	return func(w *Env) {
		w.Submitted(spec)
		w.acquired()
	}
}

// Confirmed is leased by an agent that has confirmed its lease.
func Confirmed(spec picket.TaskSpec) func(w *Env) {
	return func(w *Env) {
		leased(spec)(w)
		_, err := w.Direct.Renew(w.Ctx, w.Held)
		kit.OK(w.T, err)
	}
}

var retriesOnCrash = picket.TaskSpec{
	Retry: &picket.Retry{MaxAttempts: kit.Ptr(3), On: []picket.ExitClass{picket.ExitCrash}},
}

var taskCases = []Case{
	{
		Name:  "submit",
		Setup: func(*Env) {},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Submit(w.Ctx, Asked("1"),
				picket.TaskSpec{
					Title:  "t",
					Role:   "coder",
					Labels: map[string]string{"team": "a"},
					Input:  picket.RawJSON(`{"n":1}`),
				})
		},
	},
	{Name: "submit/fixes", Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		_, err := w.Direct.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Submit(w.Ctx, Asked("1"), picket.TaskSpec{Title: "t", Fixes: w.Task.TaskID})
	}},
	{
		Name: "grant",
		Setup: func(w *Env) {
			w.Submitted(picket.TaskSpec{Input: picket.RawJSON(`"one"`)})
			w.Submitted(picket.TaskSpec{Priority: kit.Ptr(9)})
			w.Submitted(picket.TaskSpec{Role: "other"})
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			leases, err := e.Acquire(w.Ctx, Asked("1"),
				picket.AcquireRequest{AgentID: "a1", Max: kit.Ptr(3), WorkspaceRoot: "/srv/runs"})
			for i := range leases {
				leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return leases, err
		},
	},
	{Name: "undeliver", AnswerVaries: "a repeat finds nothing left to give back", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.Undeliver(w.Ctx, w.run)
		}},
	{
		Name:          "unwait",
		NeverRepeated: "a waiter that stays ends with its wait",
		Setup: func(w *Env) {
			kit.OK(w.T, w.Raw.ZAdd(w.Ctx, "pk:{default}:waiters",
				kit.ZMember(float64(w.now.Milliseconds()+20_000), "waiter_1 a1  ")).
				Err())
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			kit.ForgetWaiter(w.Ctx, e, "waiter_1 a1  ")
			return nil, nil
		},
	},
}

var leaseCases = []Case{
	{
		Name:         "renew",
		RepeatCounts: "a renewal extends the lease from when it is made, and is counted",
		Setup:        leased(picket.TaskSpec{}),
		Call:         func(w *Env, e *orchestrator.Engine) (any, error) { return e.Renew(w.Ctx, w.Held) },
	},
	{Name: "get_task", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.HeldTask(w.Ctx, w.Held, "g1") }},
	{Name: "find_agents", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.FindAgents(w.Ctx, w.Held, "g1", picket.AgentSearch{Needs: []string{"go"}})
		}},
	{Name: "report", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Report(w.Ctx, w.Held, "r1", picket.Progress{Summary: "half way", NextStep: "the rest"})
		}},
	{Name: "emission", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Emit(w.Ctx, w.Held, "r1", picket.ArtifactChunk{Parts: []picket.Part{{Data: picket.RawJSON(`1`)}}})
		}},
	{Name: "emission/status", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.EmitStatus(w.Ctx, w.Held, "r1", picket.StatusMessage{Message: "half way"})
		}},
	{Name: "report/nudged", Setup: repeatedReports(4),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Report(w.Ctx, w.Held, "r5", picket.Progress{Summary: "again"})
		}},
	{Name: "report/loops", Setup: repeatedReports(9), // the tenth, which ends the run
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			_, err := e.Report(w.Ctx, w.Held, "r10", picket.Progress{Summary: "again"})
			if picket.CodeOf(err) == picket.CodeLeaseReleased {
				return picket.CodeLeaseReleased, nil
			}
			return nil, err
		}},
	{Name: "watch", Setup: repeatedReports(5), // delivers a nudge once; what is lost comes with the next renewal
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			_, _, err := e.Watch(w.Ctx, w.Held, 0)
			return nil, err
		}},
	{Name: "complete", Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`{"n":1}`), Summary: "done"})
		}},
	{Name: "complete/unreviewed", Setup: Confirmed(picket.TaskSpec{Review: picket.ReviewByNone}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`{"n":1}`), Summary: "done"})
		}},
	{
		Name:          "advance",
		OtherWhenFull: "the lease ends and none is granted",
		Setup: func(w *Env) {
			leased(picket.TaskSpec{})(w)
			w.Submitted(picket.TaskSpec{Input: picket.RawJSON(`"next"`)})
			w.Submitted(picket.TaskSpec{})
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			got, err := e.Advance(w.Ctx, w.Held, Asked("1"),
				picket.AdvanceRequest{Output: picket.RawJSON(`{"n":1}`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
			for i := range got.Leases {
				got.Leases[i].LeaseTTLMs = 0 // computed now; leaseExpiresAt says the same
			}
			return got, err
		},
	},
	{
		Name:           "advance/unreviewed",
		PassesWhenFull: true,
		Setup:          Confirmed(picket.TaskSpec{Review: picket.ReviewByNone}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Advance(w.Ctx, w.Held, kit.Operator,
				picket.AdvanceRequest{Output: picket.RawJSON(`1`), Acquire: picket.AcquireRequest{AgentID: "a1"}})
		},
	},
	{
		Name:  "request_help",
		Setup: leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.RequestHelp(w.Ctx, w.Held,
				picket.HelpRequest{
					Question:        "which one?",
					Options:         []string{"a", "b"},
					DeadlineSeconds: kit.Ptr(60),
					OnDeadline:      picket.OnDeadlineDeny,
				})
		},
	},
	{Name: "release", Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Release(w.Ctx, w.Held, picket.Exit{Class: picket.ExitReleased})
		}},
	{
		Name:  "release/crash",
		Setup: Confirmed(retriesOnCrash),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Release(w.Ctx, w.Held,
				picket.Exit{Class: picket.ExitCrash, Code: kit.Ptr(1), Detail: "the last lines"})
		},
	},
	{
		Name:  "fail",
		Setup: Confirmed(retriesOnCrash),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Fail(w.Ctx, w.Held, "no luck", true)
		},
	},
	{
		Name: "complete/reply",
		Setup: Confirmed(picket.TaskSpec{Review: picket.ReviewByNone, Client: &picket.ClientTask{ContextID: "c1",
			MessageID: "m1", TakesMessage: true}}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			text := "hello"
			return e.Reply(w.Ctx, w.Held, picket.Reply{Parts: []picket.Part{{Text: &text}}})
		},
	},
	{
		Name:  "fail/rejected",
		Setup: Confirmed(retriesOnCrash),
		Call:  func(w *Env, e *orchestrator.Engine) (any, error) { return e.Decline(w.Ctx, w.Held, "not for me") },
	},
	{
		Name:  "fail/final",
		Setup: Confirmed(retriesOnCrash),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Fail(w.Ctx, w.Held, "no way", false)
		},
	},
}

// repeatedReports is a run that has made the same report n times in a row.
func repeatedReports(n int) func(w *Env) {
	return func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		for range n {
			_, err := w.Direct.Report(w.Ctx, w.Held, "", picket.Progress{Summary: "again"})
			kit.OK(w.T, err)
		}
	}
}

var evidenceCases = []Case{
	{
		Name: "run_exit",
		Setup: func(w *Env) { // a task that waits for this exit
			Confirmed(picket.TaskSpec{})(w)
			kit.OK(w.T, w.Direct.RunEvents(w.Ctx, w.Held,
				[]picket.RunEvent{{Type: picket.EventRunLaunched, Containment: picket.ContainmentGroup}}))
			_, err := w.Direct.Expire(w.Ctx, kit.Operator, w.Task.TaskID, "test")
			kit.OK(w.T, err)
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.RunExit(w.Ctx, w.Held,
				picket.Exit{Class: picket.ExitCrash, Signal: kit.Ptr("SIGKILL"), Detail: "the last lines"},
				picket.ContainmentGroup)
		},
	},
	{Name: "run_log", Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		_, err := w.Direct.RunLog(w.Ctx, w.Held, picket.LogWrite{Stream: "stdout", Offset: 0, Data: []byte("hello ")})
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.RunLog(w.Ctx, w.Held, picket.LogWrite{Stream: "stdout", Offset: 6, Data: []byte("world\r\n")})
	}},
	{Name: "run_evidence", Setup: func(w *Env) { // what was handed in before is replaced
		Confirmed(picket.TaskSpec{})(w)
		kit.OK(w.T, w.Direct.RunEvidence(w.Ctx, w.Held, picket.Evidence{Branch: "picket/t", Diff: "-a"}))
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, e.RunEvidence(w.Ctx, w.Held, picket.Evidence{Branch: "picket/t", Diff: "-a\n+b"})
	}},
	{Name: "bundle_piece", Setup: func(w *Env) { // an upload that was not finished is replaced
		Confirmed(picket.TaskSpec{})(w)
		w.sendBundle(kit.BundleOf(picket.BundlePieceSize+5, 'a'), 1)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.RunBundlePiece(w.Ctx, w.Held, kit.BundleOf(picket.BundlePieceSize+5, 'b').Piece(0))
	}},
	{Name: "bundle_piece/next", Setup: func(w *Env) {
		Confirmed(picket.TaskSpec{})(w)
		w.sendBundle(kit.BundleOf(picket.BundlePieceSize+5, 'a'), 1)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.RunBundlePiece(w.Ctx, w.Held, kit.BundleOf(picket.BundlePieceSize+5, 'a').Piece(1))
	}},
	{Name: "bundle_commit", Setup: func(w *Env) { // it replaces an earlier one
		Confirmed(picket.TaskSpec{})(w)
		w.sendBundle(kit.BundleOf(7, 'a'), 1)
		kit.OK(w.T, w.Direct.RunBundle(w.Ctx, w.Held, kit.BundleOf(7, 'a').About()))
		w.sendBundle(kit.BundleOf(picket.BundlePieceSize+5, 'b'), 2)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, e.RunBundle(w.Ctx, w.Held, kit.BundleOf(picket.BundlePieceSize+5, 'b').About())
	}},
	{
		Name:  "run_events",
		Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.Ctx, w.Held,
				[]picket.RunEvent{{
					Type:          picket.EventRunLaunched,
					Containment:   picket.ContainmentGroup,
					WorkspacePath: "/srv/here",
				}})
		},
	},
	{
		Name:  "run_events/timed",
		Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.Ctx, w.Held,
				[]picket.RunEvent{{Type: picket.EventAgentTimeoutWarning, ID: "e1"},
					{Type: picket.EventAgentTimedOut, ID: "e2"}})
		},
	},
	{
		Name:  "run_events/stalled",
		Setup: Confirmed(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.RunEvents(w.Ctx, w.Held,
				[]picket.RunEvent{{Type: picket.EventRunStalled, ID: "e1", IdleSeconds: kit.Ptr(60.0)}})
		},
	},
	{
		Name:          "refused",
		NeverRepeated: "the caller has had its refusal; only its event is at stake",
		RepeatCounts:  "each refusal is told",
		Setup:         leased(picket.TaskSpec{}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			e.RecordRefusedWrite(w.Ctx, w.Held, "complete", picket.Refuse(picket.CodeStaleFence, "Stop.", "superseded"))
			return nil, nil
		},
	},
}
