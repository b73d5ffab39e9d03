package orchestrator_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// clientTask is a task that a client submits at the endpoint of a pool.
func clientTask(role, contextID string) picket.TaskSpec {
	return picket.TaskSpec{Title: "a client's task", Role: role, Review: picket.ReviewByNone,
		Client: &picket.ClientTask{Role: role, ContextID: contextID, MessageID: "m1"}}
}

// submitAs submits a task of a client, at an instant of its own.
func (f *fixture) submitAs(t *testing.T, client string, spec picket.TaskSpec) picket.Task {
	t.Helper()
	nextMillisecond()
	task, err := f.Submit(f.Ctx, kit.WithKey(client), spec)
	kit.OK(t, err)
	return task
}

// nextMillisecond waits until the clock of the server shows another instant.
func nextMillisecond() { <-time.After(2 * time.Millisecond) }

func (f *fixture) clientTasks(t *testing.T, q picket.ClientTaskQuery) (ids []string, total int64) {
	t.Helper()
	page, err := f.ClientTasks(f.Ctx, q)
	kit.OK(t, err)
	for _, task := range page.Tasks {
		ids = append(ids, task.TaskID)
	}
	return ids, page.Total
}

// A client sees its own tasks, of one pool, of one context and in some states, the latest change first.
func TestTasksOfClients(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		want := func(q picket.ClientTaskQuery, ids ...string) {
			t.Helper()
			got, total := f.clientTasks(t, q)
			if !slices.Equal(got, ids) || total != int64(len(ids)) {
				t.Errorf("%+v: %v of %d, want %v", q, got, total, ids)
			}
		}
		first := f.submitAs(t, "key_a", clientTask("builder", "c1"))
		second := f.submitAs(t, "key_a", clientTask("builder", "c2"))
		theirs := f.submitAs(t, "key_b", clientTask("tester", "c1"))
		f.MustSubmit(t, picket.TaskSpec{Title: "an operator's"})
		a, b, c := first.TaskID, second.TaskID, theirs.TaskID
		want(picket.ClientTaskQuery{Client: "key_a"}, b, a)
		want(picket.ClientTaskQuery{Client: "key_a", ContextID: "c1"}, a)
		want(picket.ClientTaskQuery{ContextID: "c1"}, c, a)
		want(picket.ClientTaskQuery{Role: "builder"}, b, a)
		want(picket.ClientTaskQuery{Client: "key_c"})
		want(picket.ClientTaskQuery{Since: second.UpdatedAt}, c, b)

		// The first task asks a question: it has changed last, and waits for input.
		nextMillisecond()
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		_, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
		kit.OK(t, err)
		want(picket.ClientTaskQuery{}, a, c, b)
		want(picket.ClientTaskQuery{Handoffs: []picket.HandoffKind{picket.HandoffQuestion}}, a)
		want(picket.ClientTaskQuery{Handoffs: []picket.HandoffKind{picket.HandoffApproval}})
		want(picket.ClientTaskQuery{States: []picket.TaskState{picket.TaskQueued}}, c, b)

		// Pages are complete, and in the same order.
		var paged []string
		for q := (picket.ClientTaskQuery{Limit: 1}); ; {
			page, err := f.ClientTasks(f.Ctx, q)
			kit.OK(t, err)
			for _, task := range page.Tasks {
				paged = append(paged, task.TaskID)
			}
			if q.Cursor = page.NextCursor; q.Cursor == "" {
				break
			}
		}
		if !slices.Equal(paged, []string{a, c, b}) {
			t.Errorf("pages: %v", paged)
		}
		if _, err := f.ClientTasks(f.Ctx, picket.ClientTaskQuery{Cursor: "x"}); !errors.Is(err, picket.CodeValidation) {
			t.Errorf("a bad cursor: %v", err)
		}

		got, err := f.Task(f.Ctx, a)
		kit.OK(t, err)
		if last, err := f.LastSeq(f.Ctx); err != nil || got.AsOf != last || *got.Client != *first.Client {
			t.Errorf("as of %d, want %d, %v: %+v", got.AsOf, last, err, got.Client)
		}

		// A task that repeats it belongs to nobody outside.
		_, err = f.Cancel(f.Ctx, kit.Operator, b, "")
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, b, "")
		kit.OK(t, err)
		if again.Client != nil {
			t.Errorf("the repeated task is of a client: %+v", again.Client)
		}
		want(picket.ClientTaskQuery{Client: "key_a", States: []picket.TaskState{picket.TaskCancelled}}, b)

		// Retention forgets it in all lists.
		f.JumpStoreTime(t, 2*time.Hour)
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 100)
		kit.OK(t, err)
		want(picket.ClientTaskQuery{Client: "key_a"}, a)
		want(picket.ClientTaskQuery{ContextID: "c2"})
		if n, err := f.Raw.ZCard(f.Ctx, "pk:{default}:by-client:*").Result(); err != nil || n != 2 {
			t.Errorf("%d tasks are listed, want 2, %v", n, err)
		}
	})
}

// What a client writes to its task is from a client, and never from a person.
func TestAClientIsNoPerson(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		key := f.MustCreateClientKey(t, "builder")
		client := kit.WithKey(key.KeyID)
		task, err := f.Submit(f.Ctx, client, clientTask("builder", "c1"))
		kit.OK(t, err)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "builder"}))
		for _, who := range []picket.Caller{client, kit.OtherOperator} {
			_, err = f.Tell(f.Ctx, who, task.TaskID, picket.MessageRequest{Body: "x"})
			kit.OK(t, err)
		}
		read, err := f.ReadMessages(f.Ctx, h, "", picket.ReadMessages{}, 0)
		kit.OK(t, err)
		want := []picket.MessageSender{
			{Kind: picket.SenderClient, ID: key.KeyID, Name: "partner"},
			{Kind: picket.SenderPerson, ID: kit.OtherOperator.Actor},
		}
		if len(read.Messages) != 2 || read.Messages[0].From != want[0] || read.Messages[1].From != want[1] {
			t.Errorf("read %+v, want senders %+v", read.Messages, want)
		}
	})
}

// A message of a client to an agent goes to the task of the client that the agent runs: never to that of another
// client, and not if it is not clear to which. The same message again stays where it is.
func TestAClientReachesItsOwnTaskOfAnAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		mine, theirs := kit.WithKey(f.MustCreateClientKey(t, "builder").KeyID), kit.WithKey(
			f.MustCreateClientKey(t, "builder").KeyID)
		f.MustRegister(t, shortThresholds("builder-1"))
		f.MustRegister(t, shortThresholds("builder-2"))
		submit := func(by picket.Caller) (string, picket.LeaseCredential) {
			task, err := f.Submit(f.Ctx, by, clientTask("builder", "c1"))
			kit.OK(t, err)
			leases, err := f.Acquire(f.Ctx, kit.AgentOwner,
				picket.AcquireRequest{AgentID: "builder-1", Role: "builder"})
			kit.OK(t, err)
			if len(leases) != 1 || leases[0].TaskID != task.TaskID {
				t.Fatalf("leased %+v", leases)
			}
			return task.TaskID, f.OpenLease(t, leases[0])
		}
		tell := func(by picket.Caller, agent, key string, want picket.Code) picket.MessageSent {
			t.Helper()
			by.Idempotency.Key = key
			sent, err := f.Tell(f.Ctx, by, agent, picket.MessageRequest{Body: "x"})
			if want == "" {
				kit.OK(t, err)
			} else {
				kit.Refused(t, err, want)
			}
			return sent
		}
		_, _ = submit(theirs)
		tell(mine, "builder-1", "k0", picket.CodeStateConflict)
		tell(mine, "nobody", "k0", picket.CodeNotFound)
		task, held := submit(mine)
		first := tell(mine, "builder-1", "k1", "")
		page := f.conversation(t, task)
		if len(page.Messages) != 1 || page.Messages[0].MessageID != first.MessageID ||
			page.Messages[0].From.Kind != picket.SenderClient {
			t.Errorf("the task has the messages %+v", page.Messages)
		}
		tell(mine, "builder-2", "k1", picket.CodeIdempotencyConflict)
		submit(mine)
		tell(mine, "builder-1", "k2", picket.CodeStateConflict)
		for range 2 {
			if again := tell(mine, "builder-1", "k1", ""); again != first {
				t.Errorf("the repeated message is %+v, was %+v", again, first)
			}
			_, err := f.Complete(f.Ctx, held, picket.Completion{Output: picket.RawJSON(`"done"`)})
			kit.OK(t, err)
		}
	})
}

// The limits of a client and of a pool hold in the step that creates a task.
func TestLimitsOfClients(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		submit := func(client string, maxOpen, maxQueue int) (picket.Task, error) {
			spec := clientTask("builder", "c1")
			spec.Client.MaxOpen, spec.Client.MaxQueue = maxOpen, maxQueue
			return f.Submit(f.Ctx, kit.WithKey(client), spec)
		}
		refused := func(quota string, client string, maxOpen, maxQueue int) {
			t.Helper()
			_, err := submit(client, maxOpen, maxQueue)
			var no *picket.Error
			if !errors.As(err, &no) || no.Code != picket.CodeQuota || fmt.Sprint(no.Facts["quota"]) != quota {
				t.Errorf("%v, want a refusal for %s", err, quota)
			}
		}
		first, err := submit("key_a", 2, 10)
		kit.OK(t, err)
		_, err = submit("key_a", 2, 10)
		kit.OK(t, err)
		refused("client_tasks", "key_a", 2, 10)
		refused("pool_queue", "key_b", 2, 2)
		_, err = submit("key_b", 2, 3)
		kit.OK(t, err)
		_, err = f.Cancel(f.Ctx, kit.Operator, first.TaskID, "")
		kit.OK(t, err)
		_, err = submit("key_a", 2, 10)
		kit.OK(t, err)
	})
}

// What an agent delegates at an endpoint waits in the queue of the pool like the tasks of clients. A repetition makes
// nothing new, so it is not refused.
func TestDelegatedTasksFillTheQueueOfAPool(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{Title: "root"})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		delegate := func(key string) error {
			_, err := f.Delegate(f.Ctx, h, key, picket.Subtask{Title: "part", Role: "builder",
				BudgetEnvelope: &budget.Envelope{Tokens: 1},
				Client:         &picket.ClientTask{Role: "builder", ContextID: "c1", MessageID: key, MaxQueue: 1}})
			return err
		}
		kit.OK(t, delegate("m1"))
		kit.Refused(t, delegate("m2"), picket.CodeQuota)
		kit.OK(t, delegate("m1"))
	})
}

// An instance that takes no new tasks refuses them, from clients and from peers. A repeated request gets its task.
func TestAClosedInstanceTakesNoNewTasks(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{Title: "root"})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		for name, ask := range map[string]func(request string, client picket.ClientTask) error{
			"client": func(request string, client picket.ClientTask) error {
				by := kit.WithKey("key_a")
				by.Idempotency = picket.Idempotency{Key: strings.Repeat(request, 64), Body: strings.Repeat("b", 64)}
				spec := clientTask("builder", "c1")
				spec.Client = &client
				_, err := f.Submit(f.Ctx, by, spec)
				return err
			},
			"peer": func(request string, client picket.ClientTask) error {
				_, err := f.Delegate(f.Ctx, h, request, picket.Subtask{Title: "part", Role: "builder",
					BudgetEnvelope: &budget.Envelope{Tokens: 1}, Client: &client})
				return err
			},
		} {
			open := picket.ClientTask{Role: "builder", ContextID: "c1", MessageID: "m1"}
			closed := open
			closed.Closed = true
			kit.OK(t, ask("1", open))
			kit.OK(t, ask("1", closed))
			if err := ask("2", closed); !errors.Is(err, picket.CodeAgentDraining) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// The id that a client chooses for a task stands for one task of that client, also after its request was forgotten.
func TestAClientChoosesAnID(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		submit := func(client, request, body string) (picket.Task, error) {
			by := kit.WithKey(client)
			by.Idempotency = picket.Idempotency{Key: strings.Repeat(request, 64), Body: strings.Repeat(body, 64)}
			spec := clientTask("builder", "c1")
			spec.Client.TaskID = "mine"
			return f.Submit(f.Ctx, by, spec)
		}
		first, err := submit("key_a", "1", "a")
		kit.OK(t, err)
		again, err := submit("key_a", "2", "a")
		kit.OK(t, err)
		if again.TaskID != first.TaskID {
			t.Errorf("%s and %s", first.TaskID, again.TaskID)
		}
		if _, err := submit("key_a", "3", "b"); !errors.Is(err, picket.CodeIdempotencyConflict) {
			t.Errorf("another task under the same id: %v", err)
		}
		theirs, err := submit("key_b", "4", "b")
		kit.OK(t, err)
		if theirs.TaskID == first.TaskID {
			t.Error("two clients share a task")
		}
	})
}

// What a client keeps is bounded, also by tasks that have ended: their number and the bytes of their inputs.
func TestWhatAClientKeepsIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		refused := func(quota string, spec picket.TaskSpec) {
			t.Helper()
			_, err := f.Submit(f.Ctx, kit.WithKey("key_a"), spec)
			var no *picket.Error
			if !errors.As(err, &no) || no.Code != picket.CodeQuota || fmt.Sprint(no.Facts["quota"]) != quota {
				t.Errorf("%v, want a refusal for %s", err, quota)
			}
		}
		large := clientTask("builder", "c1")
		large.Input = picket.RawJSON(`"` + strings.Repeat("x", picket.MaxPayload-2) + `"`)
		first := f.submitAs(t, "key_a", large)
		bytes := "pk:{default}:client-bytes:key_a"
		kit.OK(t, f.Raw.HIncrBy(f.Ctx, bytes, "inputs", 64<<20-2*picket.MaxPayload).Err())
		second := f.submitAs(t, "key_a", large)
		for _, task := range []picket.Task{first, second} {
			_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
			kit.OK(t, err)
		}
		refused("client_bytes", large)
		f.JumpStoreTime(t, 2*time.Hour)
		_, err := f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 100)
		kit.OK(t, err)
		f.submitAs(t, "key_a", large)

		kit.OK(t, f.Raw.Del(f.Ctx, bytes).Err())
		for i := range 9_999 {
			kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-client:key_a", kit.ZMember(-1, fmt.Sprint("task_", i))).Err())
		}
		refused("client_kept", clientTask("builder", "c1"))
	})
}

// A task for an instance of a pool is kept for it while its incarnation lives, longer than any other pin, and goes to
// the pool after that.
func TestATaskIsKeptForItsInstance(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		one, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "one", RoleID: "builder"})
		kit.OK(t, err)
		_, err = f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "two", RoleID: "builder"})
		kit.OK(t, err)
		lease := func(id string, incarnation int64) []picket.Lease {
			leases, err := f.Acquire(f.Ctx, kit.Operator,
				picket.AcquireRequest{AgentID: id, Role: "builder", Incarnation: incarnation})
			kit.OK(t, err)
			return leases
		}
		submit := func() picket.Task {
			spec := clientTask("builder", "c1")
			spec.Client.AgentID, spec.Client.Incarnation = "one", one.Incarnation
			return f.submitAs(t, "key_a", spec)
		}
		first, second := submit(), submit()
		f.submitAs(t, "key_a", clientTask("builder", "c1"))
		if ids, _ := f.clientTasks(t, picket.ClientTaskQuery{AgentID: "one"}); len(ids) != 2 {
			t.Errorf("for one: %v", ids)
		}
		if got := lease("two", 0); len(got) != 1 {
			t.Fatalf("two got %d tasks, want the one for the pool", len(got))
		}
		if got := lease("two", 0); len(got) != 0 {
			t.Fatalf("two got %s", got[0].TaskID)
		}
		held := lease("one", one.Incarnation)
		if len(held) != 1 || held[0].TaskID != first.TaskID {
			t.Fatalf("one got %+v", held)
		}
		_, err = f.Deregister(f.Ctx, kit.Operator, "one", nil)
		kit.OK(t, err)
		for _, want := range []picket.Task{first, second} {
			if got := lease("two", 0); len(got) != 1 || got[0].TaskID != want.TaskID {
				t.Fatalf("two got %+v, want %s", got, want.TaskID)
			}
		}
		// A task for an agent that is gone, or that has registered again, is one for the pool.
		third := submit()
		_, err = f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "one", RoleID: "builder"})
		kit.OK(t, err)
		fourth := submit()
		for _, want := range []picket.Task{third, fourth} {
			if got := lease("two", 0); len(got) != 1 || got[0].TaskID != want.TaskID {
				t.Fatalf("two got %+v, want %s", got, want.TaskID)
			}
		}
	})
}

// The pin of a task for an instance lasts as long as the instance lives.
func TestThePinOfAnInstanceLasts(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) { synctest.Test(t, pinOfAnInstance) })
}

func pinOfAnInstance(t *testing.T) {
	store, stop := rig.Memory()
	defer stop()
	f := openFixture(t, store)
	defer f.Close()
	one, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "one", RoleID: "builder",
		Heartbeat: &picket.Thresholds{IntervalSeconds: kit.Ptr(600), UnhealthyAfterSeconds: kit.Ptr(1800),
			DeadAfterSeconds: kit.Ptr(7200)}})
	kit.OK(t, err)
	spec := clientTask("builder", "c1")
	spec.Client.AgentID, spec.Client.Incarnation = "one", one.Incarnation
	f.submitAs(t, "key_a", spec)
	f.RunReaperFor(t, 5*time.Minute)
	leases, err := f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "two", Role: "builder"})
	kit.OK(t, err)
	if len(leases) != 0 {
		t.Error("another agent got the task after five minutes")
	}
	leases, err = f.Acquire(f.Ctx, kit.Operator,
		picket.AcquireRequest{AgentID: "one", Role: "builder", Incarnation: one.Incarnation})
	kit.OK(t, err)
	if len(leases) != 1 {
		t.Errorf("the instance got %d tasks", len(leases))
	}
}
