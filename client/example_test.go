package client_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
)

// A server starts an orchestrator in memory. Programs use the URL and the key of a
// server that runs, such as that of `picket up`.
func server() (url string, key picket.Secret, stop func()) {
	ctx := context.Background()
	memory, closeMemory := rig.Memory()
	witness, err := os.MkdirTemp("", "witness")
	must(err)
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis: memory.Redis, Memory: true, Sealer: rig.Sealer(), Witness: witness, Found: true,
		Log: slog.New(slog.DiscardHandler),
	})
	must(err)
	made, err := store.Engine("default").CreateKey(ctx, picket.Caller{Actor: "example"},
		picket.KeyRequest{Name: "example", Scopes: []picket.Scope{picket.ScopeAdmin}})
	must(err)
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines})
	must(err)
	e := web.New(nil)
	control.Mount(e)
	srv := httptest.NewServer(e)
	return srv.URL, made.Key, func() {
		client.DefaultHTTP.CloseIdleConnections()
		srv.Close()
		_ = store.Close()
		closeMemory()
		_ = os.RemoveAll(witness)
	}
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// Submit a task and read it.
func ExampleNew() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()

	c := client.New(url, key, client.Options{})
	made, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: "fix the flaky test", Role: "coder"})
	must(err)
	task, err := c.Tasks.Get(ctx, made.TaskID)
	must(err)
	fmt.Println(task.State, task.Role, task.Title)
	// Output: queued coder fix the flaky test
}

// A refusal has a code to compare with, and says what to do about it.
func ExampleNew_refusal() {
	url, key, stop := server()
	defer stop()

	c := client.New(url, key, client.Options{})
	_, err := c.Tasks.Create(context.Background(), picket.TaskSpec{})
	var refusal *picket.Error
	if errors.Is(err, picket.CodeValidation) && errors.As(err, &refusal) {
		fmt.Println(refusal.Facts["field"], "-", refusal.Message)
	}
	// Output: /title - title is required
}

// Submit several tasks. Each has a key, so the program can be repeated after an interruption.
func ExampleTasks_CreateMany() {
	url, key, stop := server()
	defer stop()

	c := client.New(url, key, client.Options{})
	var tasks []picket.TaskSubmission
	for i, title := range []string{"fix the flaky test", "", "update the changelog"} {
		once := fmt.Sprint("import-1/", i)
		tasks = append(tasks, picket.TaskSubmission{TaskSpec: picket.TaskSpec{Title: title}, IdempotencyKey: &once})
	}
	results, err := c.Tasks.CreateMany(context.Background(), tasks)
	must(err)
	for i, r := range results {
		if r.Err != nil {
			fmt.Println(i, "is refused:", r.Err)
			continue
		}
		fmt.Println(i, "is", r.Task.State)
	}
	// Output:
	// 0 is queued
	// 1 is refused: title is required
	// 2 is queued
}

// Read all pages of a list.
func ExampleTasks_All() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()

	c := client.New(url, key, client.Options{})
	for n := range 3 {
		_, err := c.Tasks.Create(ctx, picket.TaskSpec{
			Title:  fmt.Sprint("task ", n),
			Labels: map[string]string{"team": "a"},
		})
		must(err)
	}
	found := picket.TaskQuery{
		States: []picket.TaskState{picket.TaskQueued},
		Labels: map[string]string{"team": "a"},
		Limit:  2, // a page
	}
	for task, err := range c.Tasks.All(ctx, found) {
		must(err)
		fmt.Println(task.Title)
	}
	// Output:
	// task 2
	// task 1
	// task 0
}

// Work on a task without an adapter: lease it, and hand in its result.
func ExampleLeases_Acquire() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()

	c := client.New(url, key, client.Options{})
	_, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: "count to three"})
	must(err)
	leases, err := c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: "counter"})
	must(err)
	lease := leases[0]
	fmt.Println(lease.Task.Title, lease.FencingToken)

	done, err := c.Leases.Advance(ctx, picket.AdvanceRequest{
		LeaseToken:   lease.LeaseToken,
		FencingToken: lease.FencingToken,
		Output:       picket.RawJSON(`[1,2,3]`),
		Acquire:      picket.AcquireRequest{AgentID: "counter", WaitSeconds: new(int)},
	})
	must(err)
	fmt.Println(done.State, len(done.Leases))
	// Output:
	// count to three 1
	// review 0
}

// Renew all leases that a program holds with one request.
func ExampleLeases_Renew() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	c := client.New(url, key, client.Options{})
	for n := range 2 {
		_, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: fmt.Sprint("task ", n)})
		must(err)
	}
	two := 2
	held, err := c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: "worker", Max: &two})
	must(err)

	leases := []picket.LeaseToRenew{{LeaseToken: "pkl_unknown"}}
	for _, l := range held {
		leases = append(leases, picket.LeaseToRenew{LeaseToken: l.LeaseToken, FencingToken: l.FencingToken})
	}
	sent := time.Now() // the leases count from here
	answers, err := c.Leases.Renew(ctx, leases)
	must(err)
	for _, a := range answers {
		switch {
		case a.Err == nil:
			deadline := sent.Add(time.Duration(a.LeaseTTLMs) * time.Millisecond)
			fmt.Println("renewed", a.FencingToken, deadline.After(sent))
		case picket.CodeOf(a.Err).Fenced():
			fmt.Println("lost: stop the work")
		default:
			fmt.Println("refused:", picket.CodeOf(a.Err))
		}
	}
	// Output:
	// refused: unauthenticated
	// renewed 1 true
	// renewed 1 true
}

// Decide about every result that waits for a person.
func ExampleReviews_Approve() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	c := client.New(url, key, client.Options{})
	finishTask(ctx, c, "write the report")

	for waiting, err := range c.Reviews.All(ctx, picket.ReviewQuery{}) {
		must(err)
		task, err := c.Reviews.Approve(ctx, waiting.TaskID, picket.Decision{Note: "well done", Digest: waiting.Digest})
		must(err)
		fmt.Println(task.Title, task.State)
	}
	// Output: write the report completed
}

// finishTask submits a task, leases it and hands in a result.
func finishTask(ctx context.Context, c *client.Client, title string) {
	_, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: title})
	must(err)
	leases, err := c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: "worker"})
	must(err)
	_, err = c.Leases.Advance(ctx, picket.AdvanceRequest{
		LeaseToken:   leases[0].LeaseToken,
		FencingToken: leases[0].FencingToken,
		Output:       picket.RawJSON(`"done"`),
		Acquire:      picket.AcquireRequest{AgentID: "worker", WaitSeconds: new(int)},
	})
	must(err)
}

// Follow the log from its beginning until a task is closed.
func ExampleEvents_Follow() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	c := client.New(url, key, client.Options{})
	task, err := c.Tasks.Create(ctx, picket.TaskSpec{Title: "watched"})
	must(err)
	_, err = c.Tasks.Cancel(ctx, task.TaskID, "not needed")
	must(err)

	enough := errors.New("enough")
	err = c.Events.Follow(ctx, client.Follower{
		Query: picket.EventQuery{TaskID: task.TaskID},
		After: "0",
		Event: func(e picket.Event, _ []byte) error {
			fmt.Println(e.Type)
			if e.Type == picket.EventTaskCancelled {
				return enough
			}
			return nil
		},
	})
	fmt.Println(err)
	// Output:
	// task.submitted
	// task.cancelled
	// enough
}

const cent budget.Money = 10_000_000 // in billionths of a dollar

// Give a task more money.
func ExampleBudgets_TopUp() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	c := client.New(url, key, client.Options{})
	task, err := c.Tasks.Create(ctx, picket.TaskSpec{
		Title:          "expensive",
		BudgetEnvelope: &budget.Envelope{USD: cent * 50, Tokens: 1000},
	})
	must(err)

	more := picket.TopUp{USD: cent * 25, Reason: "release week"}
	envelope, err := c.Budgets.TopUp(ctx, task.TaskID, more)
	must(err)
	fmt.Println(envelope.Available.USD.Dollars(), envelope.Available.Tokens)
	// Output: $0.75 1000
}

// Make a key that may only work on tasks, and use it.
func ExampleKeys_Create() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	admin := client.New(url, key, client.Options{})

	made, err := admin.Keys.Create(ctx, picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	must(err)
	worker := client.New(url, made.Key, client.Options{})
	_, err = worker.Agents.Register(ctx, picket.Registration{AgentID: "worker-1", RoleID: "coder"})
	fmt.Println("register:", err)
	_, err = worker.Keys.List(ctx)
	fmt.Println("list keys:", picket.CodeOf(err))
	// Output:
	// register: <nil>
	// list keys: forbidden
}

// Stop all grants of leases, and go on.
func ExampleServer_Pause() {
	url, key, stop := server()
	defer stop()
	ctx := context.Background()
	c := client.New(url, key, client.Options{})

	state, err := c.Server.Pause(ctx, false, "maintenance")
	must(err)
	fmt.Println(state.Paused, state.Reason)
	state, err = c.Server.Resume(ctx, picket.ResumeRequest{Reason: "done", PausedAt: state.At})
	must(err)
	fmt.Println(state.Paused)
	// Output:
	// true maintenance
	// false
}
