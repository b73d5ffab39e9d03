package calls

import (
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// rich is a task that can pay for some calls.
var rich = picket.TaskSpec{BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: 1_000_000_000}}

// theCall is the one call of a case, with figures that divide by nothing.
func theCall() picket.CallRequest {
	return picket.CallRequest{
		CallID:       "kcall",
		Nonce:        "n1",
		Tool:         "http_request",
		Hash:         "h1",
		Reserve:      budget.Envelope{Tokens: 7, USD: 300_000_001},
		PriceVersion: "v1",
		Effects:      picket.EffectsNone,
		TimeoutMs:    30_000,
		Keyed:        true,
	}
}

func actsOutside() picket.CallRequest {
	c := theCall()
	c.Effects = picket.EffectsExternal
	return c
}

func (w *Env) reserveOn(e *orchestrator.Engine, c picket.CallRequest) (any, error) {
	r, err := e.Reserve(w.Ctx, w.Held, c)
	r.LeaseTTLMs = 0 // computed now
	return r, err
}

func (w *Env) settlement(o picket.CallOutcome) picket.Settlement {
	return picket.Settlement{
		CallID:  "kcall",
		TaskID:  w.Held.TaskID,
		Nonce:   "n1",
		Outcome: o,
		Cost:    budget.Envelope{Tokens: 3, USD: 100_000_001},
		Result:  picket.RawJSON(`{"n":1}`),
		Detail:  "200",
	}
}

// reserved is a set-up with a call under way.
func reserved(c picket.CallRequest) func(w *Env) {
	return func(w *Env) {
		Confirmed(rich)(w)
		_, err := w.Direct.Reserve(w.Ctx, w.Held, c)
		kit.OK(w.T, err)
	}
}

// endedAs is a set-up with a call that has ended.
func endedAs(o picket.CallOutcome) func(w *Env) {
	return func(w *Env) {
		reserved(theCall())(w)
		_, err := w.Direct.Settle(w.Ctx, w.settlement(o))
		kit.OK(w.T, err)
	}
}

func reserveCall(w *Env, e *orchestrator.Engine) (any, error) {
	return w.reserveOn(e, theCall())
}

func settleDone(w *Env, e *orchestrator.Engine) (any, error) {
	return e.Settle(w.Ctx, w.settlement(picket.CallDone))
}

func cents(n int64, tokens int64) *budget.Envelope {
	return &budget.Envelope{Tokens: tokens, USD: budget.Money(n * 10_000_000)}
}

const whyCallRepeats = "each look is a sign of life of its own"

var moneyCases = []Case{
	{Name: "reserve", Setup: leased(rich), Call: reserveCall},
	{Name: "reserve/external", Setup: Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return w.reserveOn(e, actsOutside()) }},
	{Name: "reserve/never_left", Setup: endedAs(picket.CallUndispatched), Call: reserveCall},
	{
		Name:         "reserve/exceeded",
		RepeatCounts: "each refusal is told",
		Setup:        Confirmed(picket.TaskSpec{BudgetEnvelope: cents(1, 0)}),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			_, err := e.Reserve(w.Ctx, w.Held, theCall())
			if picket.CodeOf(err) == picket.CodeBudgetExceeded {
				return picket.CodeBudgetExceeded, nil
			}
			return nil, err
		},
	},
	{Name: "settle", Setup: reserved(theCall()), Call: settleDone},
	{Name: "settle/overrun", Setup: reserved(theCall()),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			s := w.settlement(picket.CallFailed)
			s.Cost = budget.Envelope{Tokens: 1001, USD: 2_000_000_000}
			return e.Settle(w.Ctx, s)
		}},
	{Name: "settle/undispatched", Setup: reserved(theCall()),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Settle(w.Ctx, w.settlement(picket.CallUndispatched))
		}},
	{Name: "settle/uncertain", Setup: reserved(theCall()),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Settle(w.Ctx, w.settlement(picket.CallUncertain))
		}},
	{Name: "settle/corrects", Setup: endedAs(picket.CallUncertain), Call: settleDone},
	{Name: "settle/late", Setup: func(w *Env) {
		reserved(theCall())(w)
		_, err := w.Direct.Cancel(w.Ctx, kit.Operator, w.Task.TaskID, "no need")
		kit.OK(w.T, err)
	}, Call: settleDone},
	{Name: "settle/lets_go_on", Setup: func(w *Env) { // a task that waits for the end of the call
		reserved(actsOutside())(w)
		_, err := w.Direct.Expire(w.Ctx, kit.Operator, w.Task.TaskID, "test")
		kit.OK(w.T, err)
	}, Call: settleDone},
	{Name: "reap_hold", AnswerVaries: whyFewer, Setup: func(w *Env) {
		reserved(theCall())(w)
		w.JumpStoreTime(time.Minute)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.SettleOverdueCalls(w.Ctx, 100) }},
	// Running totals: the difference is charged once, a repeat finds none.
	{
		Name:         "usage",
		AnswerVaries: "a repeat finds nothing that is not charged yet",
		Setup:        Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.ReportUsage(w.Ctx, w.Held,
				picket.UsageReport{Source: "claude", Session: "s1", Tokens: 123, USD: 12_300_000})
		},
	},
	{
		Name:         "usage/session",
		AnswerVaries: "a repeat finds nothing that is not charged yet",
		Setup:        Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.ReportUsage(w.Ctx, w.Held,
				picket.UsageReport{Source: "claude", Session: "s1", Scope: "session", Tokens: 2001, USD: 5_000_000_000})
		},
	},
	{Name: "top_up", Setup: Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.Ctx, Asked("1"), w.Task.TaskID, picket.TopUp{Tokens: 5, USD: 200_000_000, Reason: "more"})
		}},
	{Name: "top_up/answers", Setup: asksForMoney,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.Ctx, Asked("1"), w.Task.TaskID, picket.TopUp{USD: 200_000_000})
		}},
	{Name: "top_up/keeps_parked", Setup: asksForMoney,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.Ctx, Asked("1"), w.Task.TaskID, picket.TopUp{USD: 200_000_000, KeepParked: true})
		}},
	{Name: "top_up/house", Setup: Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.Ctx, Asked("1"), "house", picket.TopUp{USD: 200_000_000})
		}},
	{Name: "await_top_up", RepeatCounts: whyCallRepeats, Setup: Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.AwaitTopUp(w.Ctx, w.Held, 0) }},
	{Name: "await_top_up/funds", RepeatCounts: whyCallRepeats, Setup: Confirmed(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.Funds(w.Ctx, w.Held) }},
	{Name: "reserve/nudged", Setup: repeatedCalls(4),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return w.reserveOn(e, repeatedCall("c5")) }},
	{Name: "settle/failed", Setup: repeatedCalls(2),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			c := repeatedCall("c2")
			return e.Settle(w.Ctx, picket.Settlement{CallID: c.CallID, TaskID: w.Held.TaskID, Nonce: c.Nonce,
				Outcome: picket.CallFailed})
		}},
	{Name: "order_exec", Setup: startsProcesses,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return nil, e.OrderExec(w.Ctx, w.Held, kit.ExecOrder("c1"))
		}},
	{Name: "exec_result", Setup: func(w *Env) {
		startsProcesses(w)
		kit.OK(w.T, w.Direct.OrderExec(w.Ctx, w.Held, kit.ExecOrder("c1")))
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		return nil, e.ExecResult(w.Ctx, w.Held, "c1", picket.ExecResult{Code: kit.Ptr(0), Stdout: "fine"})
	}},
}

// asksForMoney is a set-up with a task that is parked because a call was refused.
func asksForMoney(w *Env) {
	Confirmed(picket.TaskSpec{BudgetEnvelope: cents(15, 10)})(w)
	_, err := w.Direct.Reserve(w.Ctx, w.Held, theCall())
	if picket.CodeOf(err) != picket.CodeBudgetExceeded {
		w.T.Fatalf("the call is answered %v", err)
	}
	_, err = w.Direct.RequestHelp(w.Ctx, w.Held, picket.HelpRequest{Question: "more?", Kind: picket.HandoffBudget})
	kit.OK(w.T, err)
}

// startsProcesses is a set-up with a run whose adapter takes orders.
func startsProcesses(w *Env) {
	Confirmed(picket.TaskSpec{})(w)
	kit.OK(w.T, w.Direct.RunEvents(w.Ctx, w.Held, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
}

var testSubtask = picket.Subtask{Title: "a part", Input: picket.RawJSON(`{"n":1}`), BudgetEnvelope: cents(40, 100)}

// delegated is a set-up with a subtask; task and held are the parent's.
func delegated(w *Env) {
	Confirmed(rich)(w)
	d, err := w.Direct.Delegate(w.Ctx, w.Held, "d1", testSubtask)
	kit.OK(w.T, err)
	w.child = d.TaskID
}

// childRuns is delegated with a lease of the subtask, and a call under way.
func childRuns(w *Env) {
	delegated(w)
	parent := w.Held
	w.acquired()
	_, err := w.Direct.Reserve(w.Ctx, w.Held, theCall())
	kit.OK(w.T, err)
	w.childHeld, w.Held = w.Held, parent
}

// childDone is childRuns with the subtask handed in.
func childDone(w *Env) {
	childRuns(w)
	_, err := w.Direct.Settle(w.Ctx,
		picket.Settlement{
			CallID:  "kcall",
			TaskID:  w.child,
			Nonce:   "n1",
			Outcome: picket.CallDone,
			Cost:    budget.Envelope{Tokens: 3},
		})
	kit.OK(w.T, err)
	_, err = w.Direct.Complete(w.Ctx, w.childHeld, picket.Completion{Output: picket.RawJSON(`"part"`)})
	kit.OK(w.T, err)
}

func completeWith(c picket.Children) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.Complete(w.Ctx, w.Held, picket.Completion{Output: picket.RawJSON(`1`), Children: c})
	}
}

func reviewAs(decision string) func(w *Env, e *orchestrator.Engine) (any, error) {
	return func(w *Env, e *orchestrator.Engine) (any, error) {
		return e.ReviewSubtask(w.Ctx, w.Held, "v1",
			picket.SubtaskReview{TaskID: w.child, Decision: decision, Note: "so"})
	}
}

var treeCases = []Case{
	{Name: "delegate", Setup: leased(rich),
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			return e.Delegate(w.Ctx, w.Held, "d1", testSubtask)
		}},
	{Name: "await", RepeatCounts: whyCallRepeats, Setup: delegated,
		Call: func(w *Env, e *orchestrator.Engine) (any, error) {
			s, err := e.AwaitSubtask(w.Ctx, w.Held, w.child, 0)
			s.Because = nil // read beside
			return s, err
		}},
	{Name: "review_subtask/approve", Setup: childDone, Call: reviewAs("approve")},
	{Name: "review_subtask/reject", Setup: childDone, Call: reviewAs("reject")},
	{Name: "complete/detach", Setup: childRuns, Call: completeWith(picket.ChildrenDetach)},
	{Name: "complete/cancel_children", Setup: childRuns, Call: completeWith(picket.ChildrenCancel)},
	{Name: "cancel/tree", Setup: childRuns, Call: cancelTask},
	{Name: "settle/paid_above", Setup: func(w *Env) {
		childRuns(w)
		_, err := w.Direct.Cancel(w.Ctx, kit.Operator, w.child, "no need")
		kit.OK(w.T, err)
	}, Call: func(w *Env, e *orchestrator.Engine) (any, error) {
		s := w.settlement(picket.CallDone)
		s.TaskID = w.child
		return e.Settle(w.Ctx, s)
	}},
	{
		Name:         "chore/tree",
		AnswerVaries: whyFewer,
		Setup: func(w *Env) { // as if a tree had been too large for one step
			childRuns(w)
			kit.OK(w.T, w.Raw.HSet(w.Ctx, "pk:{default}:tree:"+w.Task.TaskID, w.Task.TaskID, "1").Err())
			kit.OK(w.T, w.Raw.ZAdd(w.Ctx, "pk:{default}:chores",
				redis.Z{Score: 0, Member: "cancel:" + w.Task.TaskID + ":" + w.Task.TaskID}).Err())
		},
		Call: func(w *Env, e *orchestrator.Engine) (any, error) { return e.RunChores(w.Ctx, 100) },
	},
}

// repeatedCall is one of the same paid calls in a row.
func repeatedCall(id string) picket.CallRequest {
	c := kit.PaidCall("0.01")
	c.CallID, c.Nonce, c.Hash = id, id, "h"
	return c
}

// repeatedCalls is a run that has made the same paid call n times in a row.
func repeatedCalls(n int) func(w *Env) {
	return func(w *Env) {
		Confirmed(rich)(w)
		for i := range n {
			_, err := w.Direct.Reserve(w.Ctx, w.Held, repeatedCall(fmt.Sprint("c", i+1)))
			kit.OK(w.T, err)
		}
	}
}
