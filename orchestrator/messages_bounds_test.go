package orchestrator_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// An inbox takes a bounded number of messages and bytes, and takes more once some were read.
func TestInboxesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		tell := func(n int, body string) error {
			by := picket.Caller{Actor: fmt.Sprintf("key_%d", n/20), Operator: true} // within the rate
			_, err := f.Tell(f.Ctx, by, task.TaskID, picket.MessageRequest{Body: body})
			return err
		}
		large := strings.Repeat("x", picket.MaxMessage)
		fits := picket.MaxUnreadBytes / picket.MaxMessage
		for n := range fits {
			kit.OK(t, tell(n, large))
		}
		kit.Refused(t, tell(fits, "y"), picket.CodeInboxFull)
		for range fits {
			if got := f.mustRead(t, h, picket.ReadMessages{Max: 1}); len(got.Messages) != 1 {
				t.Fatalf("read %d messages", len(got.Messages))
			}
		}
		for n := range picket.MaxUnreadMessages {
			kit.OK(t, tell(1000+n, "z"))
		}
		kit.Refused(t, tell(3000, "z"), picket.CodeInboxFull)
		f.mustRead(t, h, picket.ReadMessages{Max: 1})
		kit.OK(t, tell(3000, "z"))
	})
}

// A credential sends 30 messages at once, and one more every two seconds.
func TestSendsOfACredentialAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		sends := map[string]func(n int) error{
			"person": func(int) error {
				_, err := f.Tell(f.Ctx, kit.OtherOperator, task.TaskID, picket.MessageRequest{Body: "x"})
				return err
			},
			"lease": func(n int) error {
				m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: fmt.Sprint(n)}}
				_, err := f.SendMessage(f.Ctx, h, "", m)
				return err
			},
		}
		for name, send := range sends {
			for n := range picket.MaxSendsPerMinute {
				if err := send(n); err != nil {
					t.Fatalf("%s: message %d: %v", name, n, err)
				}
			}
			err := send(98)
			kit.Refused(t, err, picket.CodeRateLimited)
			if refused, ok := errors.AsType[*picket.Error](err); !ok || refused.RetryAfter != 2*time.Second {
				t.Errorf("%s: the refusal says to wait %v", name, refused)
			}
			f.JumpStoreTime(t, 2*time.Second)
			kit.OK(t, send(99))
			kit.Refused(t, send(100), picket.CodeRateLimited)
		}
	})
}

// A conversation lists a bounded number of messages. Of older ones those that wait for the agent are
// still delivered, and deleted with the task. The id of one that was deleted is forgotten.
func TestConversationsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		read := f.mustTell(t, task.TaskID, "was read")
		f.mustRead(t, h, picket.ReadMessages{})
		waits := f.mustTell(t, task.TaskID, "waits")
		for n := range picket.MaxMessagesListed {
			f.JumpStoreTime(t, 2*time.Second) // within the rate
			if n%100 == 0 {
				_, err := f.Renew(f.Ctx, h)
				kit.OK(t, err)
			}
			m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: fmt.Sprint(n)}}
			_, err := f.SendMessage(f.Ctx, h, "", m)
			kit.OK(t, err)
		}
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:messages:"+task.TaskID).Val(); n != picket.MaxMessagesListed {
			t.Errorf("%d messages are listed", n)
		}
		if n := len(f.Raw.Keys(f.Ctx, "pk:{default}:message:*").Val()); n != picket.MaxMessagesListed+1 {
			t.Errorf("%d messages are kept", n)
		}
		if got := f.mustRead(t, h, picket.ReadMessages{Peek: true}); bodies(got.Messages) != "waits" {
			t.Errorf("read %q", bodies(got.Messages))
		}
		for was, body := range map[picket.MessageSent]string{waits: "waits", read: "was read"} {
			m := picket.MessageRequest{MessageID: was.MessageID, Body: body}
			_, err := f.Tell(f.Ctx, kit.OtherOperator, task.TaskID, m)
			kit.OK(t, err)
		}
		if got := f.mustRead(t, h, picket.ReadMessages{Peek: true}); bodies(got.Messages) != "waits,was read" {
			t.Errorf("after both were sent again, %q wait", bodies(got.Messages))
		}
		_, err := f.Cancel(f.Ctx, kit.Operator, task.TaskID, "")
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Hour)
		f.applyRetention(t, picket.Retention{Tasks: time.Hour})
		f.wantNoMessages(t)
	})
}

// The bytes of messages are counted for the key that sends them, of a run key for its parent, and
// for the tree of the task. They are given back when the messages are deleted.
func TestMessagesHaveAQuota(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.Store.SetQuotas(orchestrator.Quotas{MessagesBytes: 2000})
		defer f.Store.SetQuotas(orchestrator.Quotas{})
		one, two := f.MustSubmit(t, picket.TaskSpec{}), f.MustSubmit(t, picket.TaskSpec{})
		tell := func(actor, to string) error {
			_, err := f.Tell(f.Ctx, picket.Caller{Actor: actor, Operator: true}, to,
				picket.MessageRequest{Body: strings.Repeat("x", 400)})
			return err
		}
		kit.OK(t, tell("key_a", one.TaskID))
		kit.OK(t, tell("key_b", one.TaskID))
		kit.Refused(t, tell("key_c", one.TaskID), picket.CodeQuota) // the tree
		kit.OK(t, tell("key_a", two.TaskID))
		f.MustRegister(t, shortThresholds("agent"))
		kit.Refused(t, tell("key_a", "agent"), picket.CodeQuota) // the key
		for _, id := range []string{one.TaskID, two.TaskID} {
			_, err := f.Cancel(f.Ctx, kit.Operator, id, "")
			kit.OK(t, err)
		}
		f.JumpStoreTime(t, 31*24*time.Hour)
		f.applyRetention(t, picket.Retention{Tasks: 365 * 24 * time.Hour})
		f.MustRegister(t, shortThresholds("next"))
		kit.OK(t, tell("key_a", "next"))
		kit.OK(t, tell("key_a", "next"))
		kit.Refused(t, tell("key_a", "next"), picket.CodeQuota)
	})
}

// Messages are deleted after 30 days, also from inboxes, and those of a task with the task.
func TestMessagesAreDeleted(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("agent"))
		open := f.MustSubmit(t, picket.TaskSpec{})
		f.mustTell(t, open.TaskID, "old")
		f.mustTell(t, "agent", "old")
		f.JumpStoreTime(t, 31*24*time.Hour)
		f.applyRetention(t, picket.Retention{Tasks: 365 * 24 * time.Hour})
		f.mustTell(t, open.TaskID, "new")
		if got := f.conversation(t, open.TaskID); bodies(got.Messages) != "new" || got.Unread != 1 {
			t.Errorf("conversation %+v", got)
		}
		_, err := f.Cancel(f.Ctx, kit.Operator, open.TaskID, "")
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Hour)
		f.applyRetention(t, picket.Retention{Tasks: time.Hour})
		_, err = f.Messages(f.Ctx, kit.OtherOperator, open.TaskID, picket.MessageQuery{})
		kit.Refused(t, err, picket.CodeNotFound)
		f.wantNoMessages(t)
	})
}

// What is shown at once is bounded in bytes: a page of a conversation, and what get_task and the
// file of the agent repeat of it.
func TestShownMessagesAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{})
		large := strings.Repeat("x", picket.MaxMessage-100)
		const sent = 70
		for n := range sent {
			by := picket.Caller{Actor: fmt.Sprintf("key_%d", n/20), Operator: true} // within the rate
			_, err := f.Tell(f.Ctx, by, task.TaskID, picket.MessageRequest{Body: fmt.Sprint(n, " ", large)})
			kit.OK(t, err)
		}
		q, seen := picket.MessageQuery{Limit: 100}, 0
		for page := 0; ; page++ {
			got, err := f.Messages(f.Ctx, kit.OtherOperator, task.TaskID, q)
			kit.OK(t, err)
			if page == 0 && len(got.Messages) >= sent {
				t.Errorf("one page has %d messages of 64 KiB", len(got.Messages))
			}
			seen += len(got.Messages)
			if q.Before = got.Before; q.Before == 0 {
				break
			}
		}
		if seen != sent {
			t.Errorf("the pages have %d of %d messages", seen, sent)
		}
		shown, err := f.HeldTask(f.Ctx, h, "")
		kit.OK(t, err)
		waiting, err := f.DeliverMessages(f.Ctx, h)
		kit.OK(t, err)
		for where, list := range map[string][]picket.Message{"get_task": shown.Messages, "the file": waiting.History} {
			if len(list) != 1 || !strings.HasPrefix(list[0].Body, "69 ") {
				t.Errorf("%s repeats %d messages", where, len(list))
			}
		}
	})
}

// The messages to an agent are deleted with its record.
func TestMessagesOfAnAgentAreDeletedWithIt(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.MustRegister(t, shortThresholds("leaver"))
		f.mustTell(t, "leaver", "hello")
		_, err := f.Deregister(f.Ctx, kit.AgentOwner, "leaver", nil)
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Hour)
		f.applyRetention(t, picket.Retention{Tasks: time.Hour})
		f.wantNoMessages(t)
	})
}

// A message of a run counts for the key that has made its run key. A run whose key is gone sends none.
func TestMessagesOfRunKeysCountForTheirParent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.Store.SetQuotas(orchestrator.Quotas{MessagesBytes: 2000})
		defer f.Store.SetQuotas(orchestrator.Quotas{})
		parent := f.MustCreateKey(t, picket.ScopeOperator)
		var last picket.LeaseCredential
		for n := range 3 {
			key := f.MustCreateRunKey(t, parent)
			f.MustSubmit(t, picket.TaskSpec{})
			last = f.OpenLease(t, f.AcquireWithKey(t, key.KeyID))
			m := picket.AgentMessage{MessageRequest: picket.MessageRequest{Body: strings.Repeat("x", 400)}}
			_, err := f.SendMessage(f.Ctx, last, "", m)
			if n < 2 {
				kit.OK(t, err)
			} else {
				kit.Refused(t, err, picket.CodeQuota)
				kit.OK(t, f.Raw.Del(f.Ctx, "pk:{default}:key:"+key.KeyID).Err())
				_, err = f.SendMessage(f.Ctx, last, "", m)
				kit.Refused(t, err, picket.CodeLeaseExpired)
			}
		}
	})
}
