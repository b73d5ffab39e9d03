package orchestrator_test

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
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

func (w *replyEnv) reserveOn(e *orchestrator.Engine, c picket.CallRequest) (any, error) {
	r, err := e.Reserve(w.ctx, w.held, c)
	r.LeaseTTLMs = 0 // computed now
	return r, err
}

func (w *replyEnv) settlement(o picket.CallOutcome) picket.Settlement {
	return picket.Settlement{
		CallID:  "kcall",
		TaskID:  w.held.TaskID,
		Nonce:   "n1",
		Outcome: o,
		Cost:    budget.Envelope{Tokens: 3, USD: 100_000_001},
		Result:  picket.RawJSON(`{"n":1}`),
		Detail:  "200",
	}
}

// reserved is a set-up with a call under way.
func reserved(c picket.CallRequest) func(w *replyEnv) {
	return func(w *replyEnv) {
		confirmed(rich)(w)
		_, err := w.direct.Reserve(w.ctx, w.held, c)
		ok(w.t, err)
	}
}

// endedAs is a set-up with a call that has ended.
func endedAs(o picket.CallOutcome) func(w *replyEnv) {
	return func(w *replyEnv) {
		reserved(theCall())(w)
		_, err := w.direct.Settle(w.ctx, w.settlement(o))
		ok(w.t, err)
	}
}

func reserveCall(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return w.reserveOn(e, theCall())
}

func settleDone(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return e.Settle(w.ctx, w.settlement(picket.CallDone))
}

func cents(n int64, tokens int64) *budget.Envelope {
	return &budget.Envelope{Tokens: tokens, USD: budget.Money(n * 10_000_000)}
}

const whyCallRepeats = "each look is a sign of life of its own"

var moneyCases = []replyCase{
	{name: "reserve", setup: leased(rich), call: reserveCall},
	{name: "reserve/external", setup: confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return w.reserveOn(e, actsOutside()) }},
	{name: "reserve/never_left", setup: endedAs(picket.CallUndispatched), call: reserveCall},
	{
		name:         "reserve/exceeded",
		repeatCounts: "each refusal is told",
		setup:        confirmed(picket.TaskSpec{BudgetEnvelope: cents(1, 0)}),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			_, err := e.Reserve(w.ctx, w.held, theCall())
			if picket.CodeOf(err) == picket.CodeBudgetExceeded {
				return picket.CodeBudgetExceeded, nil
			}
			return nil, err
		},
	},
	{name: "settle", setup: reserved(theCall()), call: settleDone},
	{name: "settle/overrun", setup: reserved(theCall()),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			s := w.settlement(picket.CallFailed)
			s.Cost = budget.Envelope{Tokens: 1001, USD: 2_000_000_000}
			return e.Settle(w.ctx, s)
		}},
	{name: "settle/undispatched", setup: reserved(theCall()),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Settle(w.ctx, w.settlement(picket.CallUndispatched))
		}},
	{name: "settle/uncertain", setup: reserved(theCall()),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Settle(w.ctx, w.settlement(picket.CallUncertain))
		}},
	{name: "settle/corrects", setup: endedAs(picket.CallUncertain), call: settleDone},
	{name: "settle/late", setup: func(w *replyEnv) {
		reserved(theCall())(w)
		_, err := w.direct.Cancel(w.ctx, operator, w.task.TaskID, "no need")
		ok(w.t, err)
	}, call: settleDone},
	{name: "settle/lets_go_on", setup: func(w *replyEnv) { // a task that waits for the end of the call
		reserved(actsOutside())(w)
		_, err := w.direct.Expire(w.ctx, operator, w.task.TaskID, "test")
		ok(w.t, err)
	}, call: settleDone},
	{name: "reap_hold", answerVaries: whyFewer, setup: func(w *replyEnv) {
		reserved(theCall())(w)
		w.jumpStoreTime(time.Minute)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.SettleOverdueCalls(w.ctx, 100) }},
	// Running totals: the difference is charged once, a repeat finds none.
	{
		name:         "usage",
		answerVaries: "a repeat finds nothing that is not charged yet",
		setup:        confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.ReportUsage(w.ctx, w.held,
				picket.UsageReport{Source: "claude", Session: "s1", Tokens: 123, USD: 12_300_000})
		},
	},
	{
		name:         "usage/session",
		answerVaries: "a repeat finds nothing that is not charged yet",
		setup:        confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.ReportUsage(w.ctx, w.held,
				picket.UsageReport{Source: "claude", Session: "s1", Scope: "session", Tokens: 2001, USD: 5_000_000_000})
		},
	},
	{name: "top_up", setup: confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.ctx, asked("1"), w.task.TaskID, picket.TopUp{Tokens: 5, USD: 200_000_000, Reason: "more"})
		}},
	{name: "top_up/house", setup: confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.TopUp(w.ctx, asked("1"), "house", picket.TopUp{USD: 200_000_000})
		}},
	{name: "await_top_up", repeatCounts: whyCallRepeats, setup: confirmed(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.AwaitTopUp(w.ctx, w.held, 0) }},
	{name: "order_exec", setup: startsProcesses,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return nil, e.OrderExec(w.ctx, w.held, execOrder("c1"))
		}},
	{name: "exec_result", setup: func(w *replyEnv) {
		startsProcesses(w)
		ok(w.t, w.direct.OrderExec(w.ctx, w.held, execOrder("c1")))
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return nil, e.ExecResult(w.ctx, w.held, "c1", picket.ExecResult{Code: ptr(0), Stdout: "fine"})
	}},
}

// startsProcesses is a set-up with a run whose adapter takes orders.
func startsProcesses(w *replyEnv) {
	confirmed(picket.TaskSpec{})(w)
	ok(w.t, w.direct.RunEvents(w.ctx, w.held, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
}

var testSubtask = picket.Subtask{Title: "a part", Input: picket.RawJSON(`{"n":1}`), BudgetEnvelope: cents(40, 100)}

// delegated is a set-up with a subtask; task and held are the parent's.
func delegated(w *replyEnv) {
	confirmed(rich)(w)
	d, err := w.direct.Delegate(w.ctx, w.held, "d1", testSubtask)
	ok(w.t, err)
	w.child = d.TaskID
}

// childRuns is delegated with a lease of the subtask, and a call under way.
func childRuns(w *replyEnv) {
	delegated(w)
	parent := w.held
	w.acquired()
	_, err := w.direct.Reserve(w.ctx, w.held, theCall())
	ok(w.t, err)
	w.childHeld, w.held = w.held, parent
}

// childDone is childRuns with the subtask handed in.
func childDone(w *replyEnv) {
	childRuns(w)
	_, err := w.direct.Settle(w.ctx,
		picket.Settlement{
			CallID:  "kcall",
			TaskID:  w.child,
			Nonce:   "n1",
			Outcome: picket.CallDone,
			Cost:    budget.Envelope{Tokens: 3},
		})
	ok(w.t, err)
	_, err = w.direct.Complete(w.ctx, w.childHeld, picket.Completion{Output: picket.RawJSON(`"part"`)})
	ok(w.t, err)
}

func completeWith(c picket.Children) func(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.Complete(w.ctx, w.held, picket.Completion{Output: picket.RawJSON(`1`), Children: c})
	}
}

func reviewAs(decision string) func(w *replyEnv, e *orchestrator.Engine) (any, error) {
	return func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		return e.ReviewSubtask(w.ctx, w.held, "v1",
			picket.SubtaskReview{TaskID: w.child, Decision: decision, Note: "so"})
	}
}

var treeCases = []replyCase{
	{name: "delegate", setup: leased(rich),
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			return e.Delegate(w.ctx, w.held, "d1", testSubtask)
		}},
	{name: "await", repeatCounts: whyCallRepeats, setup: delegated,
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
			s, err := e.AwaitSubtask(w.ctx, w.held, w.child, 0)
			s.Because = nil // read beside
			return s, err
		}},
	{name: "review_subtask/approve", setup: childDone, call: reviewAs("approve")},
	{name: "review_subtask/reject", setup: childDone, call: reviewAs("reject")},
	{name: "complete/detach", setup: childRuns, call: completeWith(picket.ChildrenDetach)},
	{name: "complete/cancel_children", setup: childRuns, call: completeWith(picket.ChildrenCancel)},
	{name: "cancel/tree", setup: childRuns, call: cancelTask},
	{name: "settle/paid_above", setup: func(w *replyEnv) {
		childRuns(w)
		_, err := w.direct.Cancel(w.ctx, operator, w.child, "no need")
		ok(w.t, err)
	}, call: func(w *replyEnv, e *orchestrator.Engine) (any, error) {
		s := w.settlement(picket.CallDone)
		s.TaskID = w.child
		return e.Settle(w.ctx, s)
	}},
	{
		name:         "chore/tree",
		answerVaries: whyFewer,
		setup: func(w *replyEnv) { // as if a tree had been too large for one step
			childRuns(w)
			ok(w.t, w.raw.HSet(w.ctx, "pk:{default}:tree:"+w.task.TaskID, w.task.TaskID, "1").Err())
			ok(w.t, w.raw.ZAdd(w.ctx, "pk:{default}:chores",
				redis.Z{Score: 0, Member: "cancel:" + w.task.TaskID + ":" + w.task.TaskID}).Err())
		},
		call: func(w *replyEnv, e *orchestrator.Engine) (any, error) { return e.RunChores(w.ctx, 100) },
	},
}
