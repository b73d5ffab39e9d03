package orchestrator_test

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

func (f *fixture) mustTell(t *testing.T, to, body string) picket.MessageSent {
	t.Helper()
	sent, err := f.Tell(f.Ctx, kit.OtherOperator, to, picket.MessageRequest{Body: body})
	kit.OK(t, err)
	return sent
}

func (f *fixture) mustSend(t *testing.T, h picket.LeaseCredential, to, body string) picket.MessageSent {
	t.Helper()
	m := picket.AgentMessage{To: to, MessageRequest: picket.MessageRequest{Body: body}}
	sent, err := f.SendMessage(f.Ctx, h, "", m)
	kit.OK(t, err)
	return sent
}

// mustRead reads what waits for a run. Each call is a request of its own.
func (f *fixture) mustRead(t *testing.T, h picket.LeaseCredential, req picket.ReadMessages) picket.MessagesRead {
	t.Helper()
	got, err := f.ReadMessages(f.Ctx, h, ulid.Make().String(), req, 0)
	kit.OK(t, err)
	return got
}

func (f *fixture) conversation(t *testing.T, of string) picket.MessagePage {
	t.Helper()
	page, err := f.Messages(f.Ctx, kit.OtherOperator, of, picket.MessageQuery{})
	kit.OK(t, err)
	return page
}

// applyRetention deletes all that is old.
func (f *fixture) applyRetention(t *testing.T, keep picket.Retention) {
	t.Helper()
	for {
		n, err := f.ApplyRetention(f.Ctx, keep, 100)
		kit.OK(t, err)
		if n == 0 {
			return
		}
	}
}

// wantNoMessages checks that nothing is left of any message.
func (f *fixture) wantNoMessages(t *testing.T) {
	t.Helper()
	for _, kind := range []string{"message:", "messages:", "unread:", "inbox:", "sent", "message-bytes:"} {
		if left := f.Raw.Keys(f.Ctx, "pk:{default}:"+kind+"*").Val(); len(left) > 0 {
			t.Errorf("left are %v", left)
		}
	}
}

func bodies(list []picket.Message) string {
	var all []string
	for _, m := range list {
		all = append(all, m.Body)
	}
	return strings.Join(all, ",")
}

// leaseAs leases a task to a registered agent.
func (f *fixture) leaseAs(t *testing.T, agent string, spec picket.TaskSpec) (picket.Task, picket.LeaseCredential) {
	t.Helper()
	f.MustRegister(t, shortThresholds(agent))
	spec.Agent = agent
	task := f.MustSubmit(t, spec)
	return task, f.OpenLease(t, f.AcquireAsOwner(t, agent))
}

// A person tells a task and an agent something. The run reads both, the oldest first, and each once.
func TestMessagesOfPeopleAreReadOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.leaseAs(t, "reader", picket.TaskSpec{})
		first := f.mustTell(t, task.TaskID, "one")
		f.mustTell(t, "reader", "two")
		f.mustTell(t, task.TaskID, "three")
		reported, err := f.Report(f.Ctx, h, "", picket.Progress{Summary: "s"})
		kit.OK(t, err)
		if reported.Unread != 3 {
			t.Errorf("the answer of a report says %d unread", reported.Unread)
		}
		if got := f.mustRead(t, h, picket.ReadMessages{Peek: true}); bodies(got.Messages) != "one,two,three" ||
			got.Unread != 3 {
			t.Errorf("peeked %+v", got)
		}
		got := f.mustRead(t, h, picket.ReadMessages{Max: 2})
		if bodies(got.Messages) != "one,two" || got.Unread != 1 {
			t.Fatalf("read %+v", got)
		}
		m := got.Messages[0]
		sender := picket.MessageSender{Kind: picket.SenderPerson, ID: kit.OtherOperator.Actor}
		if m.MessageID != first.MessageID || m.From != sender || m.To != task.TaskID || m.SentAt != first.SentAt ||
			!m.Incoming(task.TaskID) {
			t.Errorf("read %+v", m)
		}
		if got := f.mustRead(t, h, picket.ReadMessages{}); bodies(got.Messages) != "three" || got.Unread != 0 {
			t.Errorf("read %+v", got)
		}
		page := f.conversation(t, task.TaskID)
		if bodies(page.Messages) != "one,three" || page.Unread != 0 || page.Messages[0].ReadAt == nil {
			t.Errorf("conversation %+v", page)
		}
		// a message changes nothing of the task
		if now := f.WantState(t, task.TaskID, picket.TaskLeased); now.FencingToken != 1 {
			t.Errorf("the task has changed: %+v", now)
		}
	})
}

// A message id belongs to one message to one receiver. The same text to another receiver is refused,
// because it would not arrive.
func TestAMessageIDNamesOneReceiver(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		one, h := f.leaseAs(t, "sender", picket.TaskSpec{})
		f.MustRegister(t, shortThresholds("other"))
		two := f.MustSubmit(t, picket.TaskSpec{})
		m := picket.MessageRequest{MessageID: "message_" + ulid.Make().String(), Body: "x"}
		for range 2 {
			_, err := f.Tell(f.Ctx, kit.OtherOperator, one.TaskID, m)
			kit.OK(t, err)
		}
		_, err := f.Tell(f.Ctx, kit.OtherOperator, two.TaskID, m)
		kit.Refused(t, err, picket.CodeIdempotencyConflict)

		m.MessageID = "message_" + ulid.Make().String()
		send := func(to string) error {
			_, err := f.SendMessage(f.Ctx, h, "", picket.AgentMessage{To: to, MessageRequest: m})
			return err
		}
		kit.OK(t, send(""))
		kit.OK(t, send(one.TaskID))
		kit.Refused(t, send("other"), picket.CodeIdempotencyConflict)
		if n := len(f.conversation(t, one.TaskID).Messages); n != 2 {
			t.Errorf("the task has %d messages, want one of a person and one of the agent", n)
		}
	})
}

// If the answer of a read is lost, the same request gets the same messages. Another one does not.
func TestALostAnswerLosesNoMessage(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		f.mustTell(t, task.TaskID, "one")
		for _, c := range []struct{ request, want string }{{"r1", "one"}, {"r1", "one"}, {"r2", ""}} {
			got, err := f.ReadMessages(f.Ctx, h, c.request, picket.ReadMessages{}, 0)
			kit.OK(t, err)
			if bodies(got.Messages) != c.want {
				t.Errorf("request %s read %q, want %q", c.request, bodies(got.Messages), c.want)
			}
		}
		// so does a message that is sent again
		named := picket.MessageRequest{Body: "b", MessageID: "message_" + ulid.Make().String()}
		for _, m := range []picket.MessageRequest{named, {Body: "b"}} {
			by := kit.OtherOperator
			by.Idempotency.Key = "key of " + m.MessageID
			a, err := f.Tell(f.Ctx, by, task.TaskID, m)
			kit.OK(t, err)
			b, err := f.Tell(f.Ctx, by, task.TaskID, m)
			kit.OK(t, err)
			if a != b || m.MessageID != "" && a.MessageID != m.MessageID {
				t.Errorf("sent %+v, then %+v", a, b)
			}
			m.Body = "another"
			_, err = f.Tell(f.Ctx, by, task.TaskID, m)
			kit.Refused(t, err, picket.CodeIdempotencyConflict)
			m.Body = "b"
			other := by
			other.Actor = "key_another"
			_, err = f.Tell(f.Ctx, other, task.TaskID, picket.MessageRequest{Body: "b", MessageID: a.MessageID})
			kit.Refused(t, err, picket.CodeIdempotencyConflict)
		}
		m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: "to people"}}
		a, err := f.SendMessage(f.Ctx, h, "k", m)
		kit.OK(t, err)
		b, err := f.SendMessage(f.Ctx, h, "k", m)
		kit.OK(t, err)
		if a.MessageID != b.MessageID {
			t.Errorf("sent %+v, then %+v", a, b)
		}
		if got := f.conversation(t, task.TaskID); bodies(got.Messages) != "one,b,b,to people" {
			t.Errorf("conversation %s", bodies(got.Messages))
		}
	})
}

// An agent tells its people, its parent, its subtasks and other agents, and nobody else.
func TestToWhomAnAgentSendsMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("peer"))
		task, h := f.leaseAs(t, "writer", picket.TaskSpec{})
		made, err := f.Delegate(f.Ctx, h, "", picket.Subtask{Title: "part"})
		kit.OK(t, err)
		child := f.OpenLease(t, f.AcquireAsOwner(t, "writer"))
		f.mustSend(t, h, "", "to people")
		f.mustSend(t, h, task.TaskID, "to people again")
		f.mustSend(t, h, made.TaskID, "to child")
		f.mustSend(t, child, task.TaskID, "to parent")
		sent := f.mustSend(t, h, "peer", "to peer")
		if got := f.conversation(t, task.TaskID); got.Unread != 1 ||
			bodies(got.Messages) != "to people,to people again,to child,to parent,to peer" {
			t.Errorf("conversation of the parent: %d unread, %s", got.Unread, bodies(got.Messages))
		}
		got := f.conversation(t, "peer")
		if got.Unread != 1 || bodies(got.Messages) != "to peer" || got.Messages[0].From != (picket.MessageSender{
			Kind: picket.SenderAgent, ID: "writer", TaskID: task.TaskID}) {
			t.Errorf("conversation of the peer: %+v", got)
		}
		if got := f.mustRead(t, child, picket.ReadMessages{}); bodies(got.Messages) != "to child" {
			t.Errorf("the child read %q", bodies(got.Messages))
		}
		if got := f.mustRead(t, h, picket.ReadMessages{}); bodies(got.Messages) != "to parent" {
			t.Errorf("the parent read %q", bodies(got.Messages))
		}

		stranger := f.MustSubmit(t, picket.TaskSpec{})
		_, err = f.Deregister(f.Ctx, kit.AgentOwner, "peer", nil)
		kit.OK(t, err)
		refused := func(want picket.Code, m picket.AgentMessage) {
			t.Helper()
			_, err := f.SendMessage(f.Ctx, h, "", m)
			kit.Refused(t, err, want)
		}
		to := func(id string) picket.AgentMessage {
			return picket.AgentMessage{To: id, MessageRequest: picket.MessageRequest{Body: "x"}}
		}
		refused(picket.CodeForbidden, to(stranger.TaskID))
		refused(picket.CodeForbidden, to("task_"+ulid.Make().String()))
		refused(picket.CodeNotFound, to("nobody"))
		refused(picket.CodeAgentGone, to("peer"))
		refused(picket.CodeValidation, to("writer"))
		refused(picket.CodeValidation, to("a b"))
		answer := to("")
		answer.ReplyTo = sent.MessageID
		_, err = f.SendMessage(f.Ctx, h, "", answer)
		kit.OK(t, err)
		answer.ReplyTo = "message_" + ulid.Make().String()
		refused(picket.CodeNotFound, answer)
		_, err = f.Complete(f.Ctx, child, picket.Completion{Output: []byte(`"x"`)})
		kit.OK(t, err)
		f.mustSend(t, h, made.TaskID, "while in review")
		_, err = f.Cancel(f.Ctx, kit.Operator, made.TaskID, "")
		kit.OK(t, err)
		refused(picket.CodeTaskClosed, to(made.TaskID))
	})
}

// A run that is not under a registration may carry the name of any agent. It reads none of its messages.
func TestAnUnregisteredRunReadsNoInboxOfAnAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustSubmit(t, picket.TaskSpec{})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "later"}))
		f.MustRegister(t, shortThresholds("later"))
		f.mustTell(t, "later", "private")
		if got := f.mustRead(t, h, picket.ReadMessages{}); len(got.Messages) != 0 || got.Unread != 0 {
			t.Errorf("read %+v", got)
		}
		waiting, err := f.DeliverMessages(f.Ctx, h)
		kit.OK(t, err)
		if len(waiting.Messages) != 0 || waiting.Unread != 0 || waiting.Newest != 0 {
			t.Errorf("delivered %+v", waiting)
		}
	})
}

// An agent's own key reads its conversation and speaks in it as the agent. No other key of scope agent does.
func TestTheKeyOfAnAgentReadsItsConversation(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("mine"))
		f.mustTell(t, "mine", "hello")
		_, err := f.Tell(f.Ctx, kit.AgentOwner, "mine", picket.MessageRequest{Body: "hello people"})
		kit.OK(t, err)
		page, err := f.Messages(f.Ctx, kit.AgentOwner, "mine", picket.MessageQuery{})
		kit.OK(t, err)
		if bodies(page.Messages) != "hello,hello people" || page.Unread != 1 ||
			page.Messages[1].From != (picket.MessageSender{Kind: picket.SenderAgent, ID: "mine"}) {
			t.Errorf("conversation %+v", page)
		}
		other := picket.Caller{Actor: "key_other"}
		_, err = f.Messages(f.Ctx, other, "mine", picket.MessageQuery{})
		kit.Refused(t, err, picket.CodeForbidden)
		_, err = f.Tell(f.Ctx, other, "mine", picket.MessageRequest{Body: "x"})
		kit.Refused(t, err, picket.CodeForbidden)
		for _, unknown := range []string{"nobody", "task_" + ulid.Make().String()} {
			_, err = f.Messages(f.Ctx, kit.OtherOperator, unknown, picket.MessageQuery{})
			kit.Refused(t, err, picket.CodeNotFound)
			_, err = f.Tell(f.Ctx, kit.OtherOperator, unknown, picket.MessageRequest{Body: "x"})
			kit.Refused(t, err, picket.CodeNotFound)
		}
	})
}

// A wait for messages ends when one comes, for the task or for the agent.
func TestAWaitForMessagesEndsWithOne(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) { synctest.Test(t, waitForMessages) })
}

func waitForMessages(t *testing.T) {
	store, stop := rig.Memory()
	defer stop()
	f := openFixture(t, store)
	defer f.Close()
	reg := shortThresholds("waiter")
	reg.Heartbeat = nil
	f.MustRegister(t, reg)
	task := f.MustSubmit(t, picket.TaskSpec{Agent: "waiter", LeaseWindowSeconds: kit.Ptr(3600)})
	h := f.OpenLease(t, f.AcquireAsOwner(t, "waiter"))
	for _, to := range []string{task.TaskID, "waiter"} {
		var waits sync.WaitGroup
		var read picket.MessagesRead
		began := time.Now()
		waits.Go(func() {
			var err error
			if read, err = f.ReadMessages(f.Ctx, h, to, picket.ReadMessages{}, 20*time.Second); err != nil {
				t.Errorf("read: %v", err)
			}
		})
		synctest.Wait() // it has looked and waits
		f.mustTell(t, to, "for "+to)
		waits.Wait()
		if took := time.Since(began); bodies(read.Messages) != "for "+to || took > 5*time.Second {
			t.Errorf("read %+v after %s", read, took)
		}
	}
	began := time.Now()
	read, err := f.ReadMessages(f.Ctx, h, "none", picket.ReadMessages{}, 20*time.Second)
	kit.OK(t, err)
	if took := time.Since(began).Round(time.Second); len(read.Messages) != 0 || took != 20*time.Second {
		t.Errorf("read %+v after %s", read, took)
	}
}

// The adapter learns by its watch, once, and by each renewal that messages wait.
func TestAdaptersLearnOfMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.leaseAs(t, "adapter", picket.TaskSpec{})
		f.mustTell(t, task.TaskID, "one")
		f.mustTell(t, "adapter", "two")
		waiting, err := f.DeliverMessages(f.Ctx, h)
		kit.OK(t, err)
		if bodies(waiting.Messages) != "one,two" || waiting.Unread != 2 || waiting.Messages[0].ReadAt != nil {
			t.Errorf("delivered %+v", waiting)
		}
		told := func(commands []picket.Command) bool {
			return slices.Contains(commands, picket.Command{Command: "messages", Number: waiting.Newest})
		}
		w, changed, err := f.Watch(f.Ctx, h, 0)
		kit.OK(t, err)
		if !changed || !told(w.Commands) {
			t.Errorf("watch %v %+v", changed, w)
		}
		if w, changed, err = f.Watch(f.Ctx, h, 0); err != nil || changed {
			t.Errorf("a second watch tells %+v, %v", w, err)
		}
		for range 2 {
			renewed, err := f.Renew(f.Ctx, h)
			kit.OK(t, err)
			if !told(renewed.Commands) {
				t.Errorf("renewal %+v", renewed)
			}
		}
		got := f.mustRead(t, h, picket.ReadMessages{})
		if bodies(got.Messages) != "one,two" || got.Messages[0].DeliveredAt == nil {
			t.Errorf("read %+v", got)
		}
		renewed, err := f.Renew(f.Ctx, h)
		kit.OK(t, err)
		if told(renewed.Commands) {
			t.Errorf("a renewal still names messages: %+v", renewed)
		}
	})
}

// A conversation is read in pages, the newest first.
func TestConversationsHavePages(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{})
		for _, body := range []string{"1", "2", "3", "4", "5"} {
			f.mustTell(t, task.TaskID, body)
		}
		q, pages := picket.MessageQuery{Limit: 2}, ""
		for {
			page, err := f.Messages(f.Ctx, kit.OtherOperator, task.TaskID, q)
			kit.OK(t, err)
			pages += bodies(page.Messages) + ";"
			if q.Before = page.Before; q.Before == 0 {
				break
			}
		}
		if pages != "4,5;2,3;1;" {
			t.Errorf("pages %s", pages)
		}
	})
}
