package orchestrator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// openExample opens an engine on a store in memory.
func openExample(ctx context.Context) (*orchestrator.Engine, func()) {
	memory, stop := rig.Memory()
	witness, err := os.MkdirTemp("", "witness")
	if err != nil {
		panic(err)
	}
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis:   memory.Redis,
		Memory:  memory.Memory,
		Sealer:  rig.Sealer(),
		Witness: witness,
		Found:   true,
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		panic(err)
	}
	return store.Engine("default"), func() {
		_ = store.Close()
		stop()
		_ = os.RemoveAll(witness)
	}
}

// acquireExample acquires one lease, without waiting for one.
func acquireExample(ctx context.Context, e *orchestrator.Engine) (picket.Lease, picket.LeaseCredential, error) {
	now := 0
	leases, err := e.Acquire(ctx, picket.Caller{Actor: "key_agent"},
		picket.AcquireRequest{AgentID: "agent-1", WaitSeconds: &now})
	if err != nil || len(leases) == 0 {
		return picket.Lease{}, picket.LeaseCredential{}, err
	}
	held, err := e.OpenLeaseToken(picket.AdvanceRequest{LeaseToken: leases[0].LeaseToken,
		FencingToken: leases[0].FencingToken})
	return leases[0], held, err
}

// A task is submitted, an agent takes it under a lease and completes it, and a
// person approves the result.
func ExampleEngine() {
	ctx := context.Background()
	e, stop := openExample(ctx)
	defer stop()
	by := picket.Caller{Actor: "key_operator"}

	task, err := e.Submit(ctx, by, picket.TaskSpec{Title: "count the files"})
	fmt.Println(task.State, err)
	lease, held, err := acquireExample(ctx, e)
	fmt.Println(lease.TaskID == task.TaskID, lease.FencingToken, err)
	state, err := e.Complete(ctx, held, picket.Completion{Output: picket.RawJSON(`{"files":12}`)})
	fmt.Println(state, err)
	task, err = e.Approve(ctx, by, task.TaskID, picket.Decision{})
	fmt.Println(task.State, string(task.Output), err)
	// Output:
	// queued <nil>
	// true 1 <nil>
	// review <nil>
	// completed {"files":12} <nil>
}

// Once an operator has expired a lease, its holder is refused.
func ExampleEngine_Renew() {
	ctx := context.Background()
	e, stop := openExample(ctx)
	defer stop()
	by := picket.Caller{Actor: "key_operator"}

	task, _ := e.Submit(ctx, by, picket.TaskSpec{Title: "count the files"})
	_, held, _ := acquireExample(ctx, e)
	renewal, err := e.Renew(ctx, held)
	fmt.Println(renewal.FencingToken, err)
	_, err = e.Expire(ctx, by, task.TaskID, "the machine was stolen")
	fmt.Println(err)
	_, err = e.Renew(ctx, held)
	fmt.Println(errors.Is(err, picket.CodeLeaseExpired))
	// Output:
	// 1 <nil>
	// <nil>
	// true
}

// A call is paid in two steps. The bound of its price is reserved before the call, and
// what it has cost is booked after it.
func ExampleEngine_Reserve() {
	ctx := context.Background()
	e, stop := openExample(ctx)
	defer stop()

	envelope := budget.Envelope{USD: budget.Money(1_000_000_000)} // 1 dollar
	_, _ = e.Submit(ctx, picket.Caller{Actor: "key_operator"},
		picket.TaskSpec{Title: "ask a model", BudgetEnvelope: &envelope})
	lease, held, _ := acquireExample(ctx, e)
	reserved, err := e.Reserve(ctx, held, picket.CallRequest{
		CallID:    "call-1",
		Nonce:     "1",
		Tool:      "search",
		Reserve:   budget.Envelope{USD: budget.Money(300_000_000)},
		Effects:   picket.EffectsNone,
		TimeoutMs: 1000,
	})
	fmt.Println("available:", reserved.Available.USD, err)
	settled, err := e.Settle(ctx, picket.Settlement{
		TaskID:  lease.TaskID,
		CallID:  "call-1",
		Nonce:   "1",
		Outcome: picket.CallDone,
		Cost:    budget.Envelope{USD: budget.Money(100_000_000)},
	})
	fmt.Println("available:", settled.Available.USD, err)
	// Output:
	// available: 0.7 <nil>
	// available: 0.9 <nil>
}

// An agent asks a person, and the next run gets the answer.
func ExampleEngine_Answer() {
	ctx := context.Background()
	e, stop := openExample(ctx)
	defer stop()
	by := picket.Caller{Actor: "key_operator"}

	_, _ = e.Submit(ctx, by, picket.TaskSpec{Title: "choose a colour"})
	_, held, _ := acquireExample(ctx, e)
	asked, err := e.RequestHelp(ctx, held, picket.HelpRequest{Kind: picket.HandoffQuestion, Question: "Which colour?"})
	fmt.Println(asked.State, err)
	task, err := e.Answer(ctx, by, asked.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"blue"`)})
	fmt.Println(task.State, err)
	lease, _, err := acquireExample(ctx, e)
	fmt.Println(lease.FencingToken, string(lease.Answers[0].Answer), err)
	// Output:
	// handoff <nil>
	// queued <nil>
	// 2 "blue" <nil>
}

// Tail waits for the next event of the log.
func ExampleEngine_Tail() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	e, stop := openExample(ctx)
	defer stop()

	last, _ := e.LastSeq(ctx)
	_, _ = e.Submit(ctx, picket.Caller{Actor: "key_operator"}, picket.TaskSpec{Title: "count the files"})
	fmt.Println(e.Tail(ctx, last))
	page, err := e.Events(ctx, picket.EventQuery{After: last})
	for _, ev := range page.Events {
		fmt.Println(ev.Type)
	}
	fmt.Println(err)
	// Output:
	// <nil>
	// task.submitted
	// <nil>
}
