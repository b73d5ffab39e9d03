package orchestrator_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// clientTask is a task that a client submits at the endpoint of a pool.
func clientTask(role, contextID string) picket.TaskSpec {
	return picket.TaskSpec{Title: "a client's task", Role: role, Review: picket.ReviewByNone,
		Client: &picket.ClientTask{Role: role, ContextID: contextID, MessageID: "m1"}}
}

// submitAs submits a task of a client. The virtual clock moves on first, so that each task has an instant of its own.
func (f *fixture) submitAs(t *testing.T, client string, spec picket.TaskSpec) picket.Task {
	t.Helper()
	f.MoveStoreTime(t, 5*time.Millisecond)
	task, err := f.Submit(f.Ctx, kit.WithKey(client), spec)
	kit.OK(t, err)
	return task
}

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
		f.MoveStoreTime(t, 5*time.Millisecond)
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
			paged = append(paged, page.Tasks[0].TaskID)
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
