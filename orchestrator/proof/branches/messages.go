package branches

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// coverMessages takes the ways of messages: who sends to whom, what is refused, read and deleted.
func coverMessages(t *testing.T, f *fixture) {
	by := kit.OtherOperator
	tell := func(who picket.Caller, to string, m picket.MessageRequest, want picket.Code) picket.MessageSent {
		t.Helper()
		sent, err := f.Tell(f.Ctx, who, to, m)
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
		return sent
	}
	text := picket.MessageRequest{Body: "x"}
	client := kit.WithKey(f.MustCreateClientKey(t, picket.AnyRole).KeyID)
	f.MustRegister(t, picket.Registration{AgentID: "ms1"})
	f.MustRegister(t, picket.Registration{AgentID: "ms2"})
	task := f.MustSubmit(t, picket.TaskSpec{Agent: "ms1"})
	h := f.OpenLease(t, f.AcquireAsOwner(t, "ms1"))

	first := tell(by, task.TaskID, text, "")
	tell(client, task.TaskID, text, "")
	tell(by, task.TaskID, picket.MessageRequest{Body: "x", MessageID: first.MessageID}, "")
	tell(by, task.TaskID, picket.MessageRequest{Body: "y", MessageID: first.MessageID}, picket.CodeIdempotencyConflict)
	tell(by, "ms1", picket.MessageRequest{Body: "x", MessageID: first.MessageID}, picket.CodeIdempotencyConflict)
	tell(by, task.TaskID, picket.MessageRequest{Body: "y", ReplyTo: first.MessageID, Type: "a"}, "")
	tell(by, task.TaskID, picket.MessageRequest{Body: "y", ReplyTo: "message_" + ulid.Make().String()},
		picket.CodeNotFound)
	tell(by, "ms1", text, "")
	tell(kit.AgentOwner, "ms1", text, "")
	tell(kit.Operator, "ms1", text, picket.CodeForbidden)
	tell(by, "nobody-ms", text, picket.CodeNotFound)
	tell(by, kit.NoTask, text, picket.CodeNotFound)
	tell(by, "ms2", text, "")
	_, err := f.Deregister(f.Ctx, kit.AgentOwner, "ms2", nil)
	kit.OK(t, err)
	tell(by, "ms2", text, picket.CodeAgentGone)

	tell(client, "ms1", text, picket.CodeStateConflict)
	tell(client, "nobody-ms", text, picket.CodeNotFound)
	of, err := f.Submit(f.Ctx, client, picket.TaskSpec{Title: "x", Agent: "ms1", Client: &picket.ClientTask{
		Role: "builder", ContextID: "c", MessageID: "m"}})
	kit.OK(t, err)
	f.OpenLease(t, f.AcquireAsOwner(t, "ms1"))
	tell(client, "ms1", text, "")
	another, err := f.Submit(f.Ctx, client, picket.TaskSpec{Title: "x", Agent: "ms1", Client: &picket.ClientTask{
		Role: "builder", ContextID: "c", MessageID: "n"}})
	kit.OK(t, err)
	f.OpenLease(t, f.AcquireAsOwner(t, "ms1"))
	tell(client, "ms1", text, picket.CodeStateConflict)
	for _, id := range []string{of.TaskID, another.TaskID} {
		_, err := f.Cancel(f.Ctx, kit.Operator, id, "")
		kit.OK(t, err)
	}

	send := func(to, body, reply string, want picket.Code) {
		t.Helper()
		m := picket.AgentMessage{To: to, MessageRequest: picket.MessageRequest{Body: body, ReplyTo: reply}}
		_, err := f.SendMessage(f.Ctx, h, "", m)
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
	}
	child, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "part"})
	kit.OK(t, err)
	send("", "a", first.MessageID, "")
	send(child.TaskID, "b", "", "")
	send("ms1", "c", "", picket.CodeValidation)
	send("ms2", "d", "", picket.CodeAgentGone)
	send("nobody-ms", "d", "", picket.CodeNotFound)
	send(kit.NoTask, "e", "", picket.CodeForbidden)
	send("", "f", "message_"+ulid.Make().String(), picket.CodeNotFound)
	again := picket.AgentMessage{MessageRequest: picket.MessageRequest{MessageID: "message_" + ulid.Make().String()}}
	for _, body := range []string{"g", "g", "h"} {
		again.Body = body
		_, err := f.SendMessage(f.Ctx, h, "", again)
		if body == "h" {
			kit.Refused(t, err, picket.CodeIdempotencyConflict)
		} else {
			kit.OK(t, err)
		}
	}

	w, _, err := f.Watch(f.Ctx, h, 0)
	kit.OK(t, err)
	if len(w.Commands) == 0 {
		t.Error("a watch does not name messages")
	}
	_, _, err = f.Watch(f.Ctx, h, 0)
	kit.OK(t, err)
	_, err = f.Renew(f.Ctx, h)
	kit.OK(t, err)
	_, err = f.DeliverMessages(f.Ctx, h)
	kit.OK(t, err)
	lost := tell(by, "ms1", text, "") // its record is lost
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:message:"+lost.MessageID).Err())
	gone := tell(by, task.TaskID, text, "")
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:message:"+gone.MessageID).Err())
	_, err = f.DeliverMessages(f.Ctx, h)
	kit.OK(t, err)
	_, err = f.ReadMessages(f.Ctx, h, "lost", picket.ReadMessages{}, 0)
	kit.OK(t, err)
	tell(by, task.TaskID, text, "")
	tell(by, task.TaskID, text, "")
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:unread:ms1", lost.MessageID).Err())
	kit.OK(t, f.Raw.ZRem(f.Ctx, "pk:{default}:unread:"+task.TaskID, gone.MessageID).Err())
	read := func(request string, req picket.ReadMessages) {
		t.Helper()
		_, err := f.ReadMessages(f.Ctx, h, request, req, 0)
		kit.OK(t, err)
	}
	read("p", picket.ReadMessages{Peek: true})
	read("a", picket.ReadMessages{Max: 1})
	read("a", picket.ReadMessages{Max: 1})
	read("b", picket.ReadMessages{})
	read("c", picket.ReadMessages{})
	_, err = f.HeldTask(f.Ctx, h, "")
	kit.OK(t, err)
	coverConversations(t, f, task.TaskID)
	coverLongConversation(t, f, task.TaskID, tell)
	coverMessageBounds(t, f, h)

	_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
	kit.OK(t, err)
	tell(by, task.TaskID, text, picket.CodeTaskClosed)
	tell(by, child.TaskID, text, picket.CodeTaskClosed)
	_, err = f.ReadMessages(f.Ctx, h, "d", picket.ReadMessages{}, 0)
	kit.Refused(t, err, picket.CodeTaskCancelled)
	_, err = f.DeliverMessages(f.Ctx, h)
	kit.Refused(t, err, picket.CodeTaskCancelled)
	send("", "i", "", picket.CodeTaskCancelled)
	// A message whose record is lost is left out, and deleted from the lists.
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:message:"+first.MessageID).Err())
	coverConversations(t, f, task.TaskID)
	f.JumpStoreTime(t, picket.MessageRetention+time.Minute)
	for range 3 {
		_, err = f.ApplyRetention(f.Ctx, picket.Retention{Tasks: time.Hour}, 1000)
		kit.OK(t, err)
	}
}

// coverLongConversation sends to a conversation with as many messages as are listed. Its oldest ones
// were read, wait or were lost.
func coverLongConversation(t *testing.T, f *fixture, task string,
	tell func(picket.Caller, string, picket.MessageRequest, picket.Code) picket.MessageSent) {
	list := "pk:{default}:messages:" + task
	var later []redis.Z
	for n := range picket.MaxMessagesListed {
		later = append(later, redis.Z{Score: 1e9 + float64(n), Member: fmt.Sprint("lost-", n)})
	}
	kit.OK(t, f.Raw.ZAdd(f.Ctx, list, later...).Err())
	tell(kit.OtherOperator, task, picket.MessageRequest{Body: "x"}, "")
	kit.OK(t, f.Raw.ZRemRangeByScore(f.Ctx, list, "1e9", "+inf").Err())
}

func coverConversations(t *testing.T, f *fixture, task string) {
	for _, c := range []struct {
		by   picket.Caller
		of   string
		want picket.Code
	}{
		{kit.OtherOperator, task, ""}, {kit.OtherOperator, "ms1", ""}, {kit.AgentOwner, "ms1", ""},
		{kit.Operator, "ms1", picket.CodeForbidden}, {kit.Operator, "nobody-ms", picket.CodeNotFound},
		{kit.Operator, kit.NoTask, picket.CodeNotFound},
	} {
		for _, before := range []int64{0, 5} {
			_, err := f.Messages(f.Ctx, c.by, c.of, picket.MessageQuery{Limit: 1, Before: before})
			if c.want != "" {
				kit.Refused(t, err, c.want)
			} else {
				kit.OK(t, err)
			}
		}
	}
}

// coverMessageBounds reaches the bounds of inboxes, quotas and rates, and a run whose key is gone.
func coverMessageBounds(t *testing.T, f *fixture, h picket.LeaseCredential) {
	large := picket.MessageRequest{Body: strings.Repeat("x", picket.MaxMessage)}
	tell := func(actor, to string, m picket.MessageRequest) error {
		_, err := f.Tell(f.Ctx, picket.Caller{Actor: actor, Operator: true}, to, m)
		return err
	}
	f.Store.SetQuotas(orchestrator.Quotas{MessagesBytes: 1})
	kit.Refused(t, tell("key_ms", "ms1", large), picket.CodeQuota)
	f.Store.SetQuotas(orchestrator.Quotas{MessagesBytes: 100_000})
	kit.OK(t, tell("key_ms1", h.TaskID, large))
	kit.Refused(t, tell("key_ms2", h.TaskID, large), picket.CodeQuota)
	f.Store.SetQuotas(orchestrator.Quotas{})
	kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:inbox:ms1", "bytes", picket.MaxUnreadBytes).Err())
	kit.Refused(t, tell("key_ms3", "ms1", large), picket.CodeInboxFull)
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:inbox:ms1").Err())
	for n := range picket.MaxSendsPerMinute + 1 {
		if err := tell("key_ms4", "ms1", picket.MessageRequest{Body: "x"}); n == picket.MaxSendsPerMinute {
			kit.Refused(t, err, picket.CodeRateLimited)
		} else {
			kit.OK(t, err)
		}
	}
	for range 3 { // more than a reply takes
		sent, err := f.Tell(f.Ctx, kit.OtherOperator, h.TaskID, picket.MessageRequest{Body: "large"})
		kit.OK(t, err)
		kit.OK(t, f.Raw.HSet(f.Ctx, "pk:{default}:message:"+sent.MessageID, "body", strings.Repeat("x", 2<<20)).Err())
	}
	_, err := f.Messages(f.Ctx, kit.OtherOperator, h.TaskID, picket.MessageQuery{Limit: 100})
	kit.OK(t, err)
	_, err = f.HeldTask(f.Ctx, h, "g")
	kit.OK(t, err)
	parent := f.MustCreateKey(t, picket.ScopeOperator)
	key := f.MustCreateRunKey(t, parent)
	f.MustSubmit(t, picket.TaskSpec{})
	run := f.OpenLease(t, f.AcquireWithKey(t, key.KeyID))
	m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: "x"}}
	_, err = f.SendMessage(f.Ctx, run, "", m)
	kit.OK(t, err)
	f.Store.SetQuotas(orchestrator.Quotas{MessagesBytes: 1})
	_, err = f.SendMessage(f.Ctx, run, "", m)
	kit.Refused(t, err, picket.CodeQuota)
	f.Store.SetQuotas(orchestrator.Quotas{})
	waiting, err := f.DeliverMessages(f.Ctx, run)
	kit.OK(t, err)
	if waiting.Unread != 0 {
		t.Errorf("%d messages wait for a run that nobody wrote to", waiting.Unread)
	}
	kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:key:"+key.KeyID).Err())
	_, err = f.SendMessage(f.Ctx, run, "", m)
	kit.Refused(t, err, picket.CodeLeaseExpired)
	repeated := f.OpenLease(t, f.leaseOfNobody(t))
	for n := range 10 {
		_, err = f.ReadMessages(f.Ctx, repeated, ulid.Make().String(), picket.ReadMessages{}, 0)
		if n < 9 {
			kit.OK(t, err)
		} else {
			kit.Refused(t, err, picket.CodeLeaseReleased)
		}
	}
	repeated = f.OpenLease(t, f.leaseOfNobody(t))
	for n := range 10 {
		m.To = ""
		_, err = f.SendMessage(f.Ctx, repeated, ulid.Make().String(), m)
		if n < 9 {
			kit.OK(t, err)
		} else {
			kit.Refused(t, err, picket.CodeLeaseReleased)
		}
	}
}

// leaseOfNobody leases a new task to an agent that is not registered.
func (f *fixture) leaseOfNobody(t *testing.T) picket.Lease {
	t.Helper()
	f.MustSubmit(t, picket.TaskSpec{})
	return f.AcquireOne(t, picket.AcquireRequest{})
}

// coverEmissions takes the ways of what the holder of a lease emits. The bounds are those of the engine, so the counts
// are set to them.
func coverEmissions(t *testing.T, f *fixture) {
	lease := func() picket.LeaseCredential {
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "of a client", Role: "emits",
			Client: &picket.ClientTask{Role: "emits", ContextID: "c1"}})
		kit.OK(t, err)
		return f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "emits"}))
	}
	_, err := f.Decline(f.Ctx, lease(), "no")
	kit.OK(t, err)
	coverReplies(t, f)
	h := lease()
	_, err = f.Report(f.Ctx, h, "", picket.Progress{Summary: "s"})
	kit.OK(t, err)
	emit := func(id, text string, add, last bool, want picket.Code) {
		t.Helper()
		parts := []picket.Part{{Text: &text}}
		_, err := f.Emit(f.Ctx, h, id, picket.ArtifactChunk{Parts: parts, Append: add, Last: last})
		if want != "" {
			kit.Refused(t, err, want)
		} else {
			kit.OK(t, err)
		}
	}
	emit("", "a", true, false, picket.CodeNotFound)
	emit("e1", "b", false, false, "")
	emit("e1", "b", false, false, "")
	emit("e1", "c", false, false, picket.CodeIdempotencyConflict)
	emit("", "d", true, true, "")
	emit("", "e", true, false, picket.CodeStateConflict)
	_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "s"})
	kit.OK(t, err)
	for _, quota := range []string{"emitted_bytes", "emitted"} {
		key := "pk:{default}:task:" + h.TaskID
		was, err := f.Raw.HGet(f.Ctx, key, quota).Result()
		kit.OK(t, err)
		kit.OK(t, f.Raw.HSet(f.Ctx, key, quota, picket.MaxEmittedBytes).Err())
		emit("", "f", false, false, picket.CodeQuota)
		kit.OK(t, f.Raw.HSet(f.Ctx, key, quota, was).Err())
	}
	for _, q := range []picket.ClientTaskQuery{{Emitted: true}, {Rejected: true}} {
		_, err = f.ClientTasks(f.Ctx, q)
		kit.OK(t, err)
	}
	for range 9 {
		_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "again"})
		kit.OK(t, err)
	}
	_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "again"})
	kit.Refused(t, err, picket.CodeLeaseReleased)
	_, err = f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "late"})
	kit.Refused(t, err, picket.CodeLeaseReleased)
}

// coverReplies takes the ways of a message that answers the client of a task.
func coverReplies(t *testing.T, f *fixture) {
	text := "hello"
	reply := func(of *picket.ClientTask, review picket.ReviewBy, emits bool, want picket.Code) {
		t.Helper()
		_, err := f.Submit(f.Ctx, kit.Operator, picket.TaskSpec{Title: "of a client", Role: "replies", Review: review,
			Client: of})
		kit.OK(t, err)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "replies"}))
		if emits {
			_, err := f.EmitStatus(f.Ctx, h, "", picket.StatusMessage{Message: "so far"})
			kit.OK(t, err)
		}
		_, err = f.Reply(f.Ctx, h, picket.Reply{Parts: []picket.Part{{Text: &text}}})
		if want == "" {
			kit.OK(t, err)
			return
		}
		kit.Refused(t, err, want)
		_, err = f.Cancel(f.Ctx, kit.Operator, h.TaskID, "")
		kit.OK(t, err)
	}
	takes := &picket.ClientTask{Role: "replies", ContextID: "c1", TakesMessage: true}
	reply(nil, picket.ReviewByNone, false, picket.CodeStateConflict)
	reply(&picket.ClientTask{Role: "replies", ContextID: "c1"}, picket.ReviewByNone, false, picket.CodeStateConflict)
	reply(takes, picket.ReviewByHuman, false, picket.CodeStateConflict)
	reply(takes, picket.ReviewByNone, true, picket.CodeStateConflict)
	reply(takes, picket.ReviewByNone, false, "")
}
