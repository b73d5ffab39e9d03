package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverClientTasks submits tasks of clients beyond each limit, and lists them in every way.
func coverClientTasks(t *testing.T, f *fixture) {
	f.CancelAll(t)
	submit := func(request string, client picket.ClientTask) error {
		by := picket.Caller{Actor: "key_client", Idempotency: clientRequest(request, "b")}
		client.Role, client.ContextID, client.MessageID = "served", "c1", "m1"
		_, err := f.Submit(f.Ctx, by, picket.TaskSpec{Title: "a client's", Role: "served", Client: &client})
		return err
	}
	kit.OK(t, submit("a", picket.ClientTask{TaskID: "mine"}))
	kit.OK(t, submit("b", picket.ClientTask{TaskID: "mine"})) // the first request was forgotten
	kit.OK(t, submit("c", picket.ClientTask{}))
	kit.OK(t, submit("c", picket.ClientTask{Closed: true})) // a repeated request
	kit.Refused(t, submit("k", picket.ClientTask{Closed: true}), picket.CodeAgentDraining)
	kit.Refused(t, submit("d", picket.ClientTask{MaxOpen: 1}), picket.CodeQuota)
	kit.Refused(t, submit("e", picket.ClientTask{MaxQueue: 1}), picket.CodeQuota)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:client-bytes:key_client", "inputs", 1<<40).Err())
	kit.Refused(t, submit("g", picket.ClientTask{}), picket.CodeQuota)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:client-bytes:key_client", "inputs", 0).Err())
	for i := range 10_000 {
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-client:key_client", kit.ZMember(-1, fmt.Sprint("task_", i))).Err())
	}
	kit.Refused(t, submit("h", picket.ClientTask{}), picket.CodeQuota)
	kit.OK(t, f.Raw.ZRemRangeByScore(f.Ctx, "pk:{default}:by-client:key_client", "-1", "-1").Err())
	by := picket.Caller{Actor: "key_client", Idempotency: clientRequest("f", "c")}
	_, err := f.Submit(f.Ctx, by, picket.TaskSpec{Title: "another", Role: "served",
		Client: &picket.ClientTask{Role: "served", ContextID: "c1", MessageID: "m1", TaskID: "mine"}})
	kit.Refused(t, err, picket.CodeIdempotencyConflict)

	one, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "instance-1", RoleID: "served"})
	kit.OK(t, err)
	instance := picket.ClientTask{AgentID: "instance-1", Incarnation: one.Incarnation}
	kit.OK(t, submit("i", instance))
	kit.OK(t, submit("j", picket.ClientTask{AgentID: "instance-0"})) // which nobody knows
	f.MoveStoreTime(t, 2*time.Minute)
	kit.OK(t, f.Tick(f.Ctx))
	_, err = f.ExpireDue(f.Ctx, 100)
	kit.OK(t, err)
	h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "served"}))
	_, err = f.Delegate(f.Ctx, h, "full", picket.Subtask{Title: "part", Role: "served",
		Client: &picket.ClientTask{Role: "served", ContextID: "c1", MessageID: "m2", MaxQueue: 1}})
	kit.Refused(t, err, picket.CodeQuota)
	_, err = f.Delegate(f.Ctx, h, "closed", picket.Subtask{Title: "part", Role: "served",
		Client: &picket.ClientTask{Role: "served", ContextID: "c1", MessageID: "m2", Closed: true}})
	kit.Refused(t, err, picket.CodeAgentDraining)
	_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
	kit.OK(t, err)
	first, err := f.ClientTasks(f.Ctx, picket.ClientTaskQuery{Limit: 1})
	kit.OK(t, err)
	for _, q := range []picket.ClientTaskQuery{
		{Limit: 1, Cursor: first.NextCursor},
		{Client: "key_client", ContextID: "c1", Role: "served"},
		{Client: "key_other", ContextID: "c1"},
		{States: []picket.TaskState{picket.TaskQueued}, Handoffs: []picket.HandoffKind{picket.HandoffQuestion}},
		{Since: picket.Instant(time.Now().Add(time.Hour).UnixMilli())},
	} {
		_, err := f.ClientTasks(f.Ctx, q)
		kit.OK(t, err)
	}
	for i := range 201 { // of tasks that are lost, more than the script looks at in one step
		lost := fmt.Sprintf("%s%03d", kit.NoTask[:len(kit.NoTask)-3], i)
		kit.OK(t, f.Raw.ZAdd(f.Ctx, "pk:{default}:by-client:*", kit.ZMember(-1, lost)).Err())
	}
	_, err = f.ClientTasks(f.Ctx, picket.ClientTaskQuery{})
	kit.OK(t, err)
	f.CancelAll(t)
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:client-bytes:key_client", "inputs", 1000).Err()) // other tasks remain
	f.MoveStoreTime(t, time.Second)
	_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Millisecond}, 1000)
	kit.OK(t, err)
}

// clientRequest identifies a request of a client, and its body.
func clientRequest(name, body string) picket.Idempotency {
	return picket.Idempotency{Key: fmt.Sprintf("%064s", "client "+name), Body: strings.Repeat(body, 64)}
}
