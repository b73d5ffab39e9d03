package orchestrator_test

import (
	"errors"
	"fmt"
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

// capable has a prompt of a session accepted with a capability, and returns both.
func (f *sessionFixture) capable(t *testing.T) (secret picket.Secret, held picket.LeaseCredential) {
	t.Helper()
	pid := f.prompt(t, "hello")
	secret = picket.NewSessionCapability(f.Namespace(), pid)
	kit.OK(t, f.acceptWith(pid, picket.SessionCapabilityHash(secret)))
	held, ok := picket.ParseSessionCapability(secret.Reveal())
	if !ok || held.PromptID != pid || held.Namespace != f.Namespace() {
		t.Fatalf("%+v %v", held, ok)
	}
	return secret, held
}

func (f *sessionFixture) acceptWith(pid, hash string) error {
	return kit.SendResult(f.Ctx, f, kit.Operator, "a1", pid,
		picket.CommandResult{Incarnation: f.n, State: picket.PromptAccepted, CapabilityHash: hash})
}

// wantInvalid checks that a capability is refused for a cause, by all that it opens.
func (f *fixture) wantInvalid(t *testing.T, held picket.LeaseCredential, cause string) {
	t.Helper()
	_, err := f.SessionCapability(f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
	var refused *picket.Error
	if !errors.As(err, &refused) || refused.Facts["cause"] != cause {
		t.Errorf("got %+v, want the cause %s", refused, cause)
	}
	_, err = f.AgentContext(f.Ctx, held)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = f.ReadMessages(f.Ctx, held, "r", picket.ReadMessages{}, 0)
	kit.Refused(t, err, picket.CodeSessionCapability)
	_, err = f.SendMessage(f.Ctx, held, "", toAgent("a2", "x"))
	kit.Refused(t, err, picket.CodeSessionCapability)
}

func toAgent(to, body string) picket.AgentMessage {
	return picket.AgentMessage{To: to, MessageRequest: picket.MessageRequest{Body: body}}
}

// A capability is valid from the moment at which its prompt was accepted until the prompt ends.
func TestACapabilityIsOfAnOpenPrompt(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		pid := f.prompt(t, "hello")
		secret := picket.NewSessionCapability(f.Namespace(), pid)
		held, _ := picket.ParseSessionCapability(secret.Reveal())
		f.wantInvalid(t, held, "unknown") // nobody has accepted the prompt
		for range 2 {
			kit.OK(t, f.acceptWith(pid, held.Secret))
			kit.OK(t, f.acceptWith(pid, ""))
		}
		grant, err := f.SessionCapability(f.Ctx, held)
		kit.OK(t, err)
		if grant.AgentID != "a1" || grant.SessionID != f.id || grant.PromptID != pid || grant.Actor != "a1" ||
			grant.RemainingMs <= 0 || grant.RemainingMs > 600_000 {
			t.Errorf("%+v", grant)
		}
		kit.Refused(t, f.acceptWith(pid, strings.Repeat("0", 64)), picket.CodeStateConflict)
		_, err = f.SessionCapability(f.Ctx, held) // the first one stays
		kit.OK(t, err)
		forged := held
		forged.Secret = strings.Repeat("0", 64)
		f.wantInvalid(t, forged, "unknown")
		kit.OK(t, f.result(pid, picket.PromptAnswered, 0, "well"))
		f.wantInvalid(t, held, "prompt_ended")
		_, next := f.capable(t)
		other := held
		other.PromptID = next.PromptID
		f.wantInvalid(t, other, "unknown") // that of another prompt
	})
}

// The server ends a capability at the deadline of its prompt, also if the adapter says nothing.
func TestACapabilityEndsAtTheDeadline(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		f.JumpStoreTime(t, 599*time.Second)
		_, err := f.SessionCapability(f.Ctx, held)
		kit.OK(t, err)
		f.JumpStoreTime(t, time.Second)
		f.wantInvalid(t, held, "time") // the adapter could still send the answer
	})
}

// A capability ends with its session, its agent, the registration of the agent and the key of that.
func TestACapabilityEndsWithItsAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		kit.OK(t, f.report("a1", f.n)) // the session has ended
		f.wantInvalid(t, held, "prompt_ended")

		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		_, held = f.capable(t)
		_, err := f.Deregister(f.Ctx, kit.Operator, "a1", nil)
		kit.OK(t, err)
		f.wantInvalid(t, held, "agent") // nobody has ended its sessions yet
		f.sessionAgent(t, "a1")
		f.wantInvalid(t, held, "superseded")
	})
}

// A capability ends when the key that registered its agent is revoked with its leases.
func TestACapabilityEndsWithTheKeyOfItsAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		key := fx.MustCreateKey(t, picket.ScopeAgent)
		a, err := fx.Register(fx.Ctx, kit.WithKey(key), picket.Registration{AgentID: "a1"})
		kit.OK(t, err)
		f := &sessionFixture{fx, a.Incarnation, newSessionID()}
		kit.OK(t, f.ReportSessions(f.Ctx, kit.WithKey(key), "a1", picket.SessionsReport{Incarnation: f.n,
			Sessions: []picket.SessionReport{idleSession(f.id)}}))
		pid := f.prompt(t, "hello")
		secret := picket.NewSessionCapability(f.Namespace(), pid)
		held, _ := picket.ParseSessionCapability(secret.Reveal())
		kit.OK(t, kit.SendResult(f.Ctx, f, kit.WithKey(key), "a1", pid, picket.CommandResult{Incarnation: f.n,
			State: picket.PromptAccepted, CapabilityHash: held.Secret}))
		_, err = f.SessionCapability(f.Ctx, held)
		kit.OK(t, err)
		f.MustRevokeKey(t, key, nil)
		f.wantInvalid(t, held, "key_revoked")
	})
}

// A session sends messages to agents as its agent, and each is sent once.
func TestSessionsSendMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		f.sessionAgent(t, "a2")
		first, err := f.SendMessage(f.Ctx, held, "r1", toAgent("a2", "hello"))
		kit.OK(t, err)
		again, err := f.SendMessage(f.Ctx, held, "r1", toAgent("a2", "hello"))
		kit.OK(t, err)
		if first != again {
			t.Errorf("a repeat has sent %+v, not %+v", again, first)
		}
		page, err := f.Messages(f.Ctx, kit.Operator, "a2", picket.MessageQuery{})
		kit.OK(t, err)
		if len(page.Messages) != 1 || page.Messages[0].From != (picket.MessageSender{Kind: "agent", ID: "a1"}) {
			t.Errorf("%+v", page)
		}
		for _, c := range []struct {
			to   string
			want picket.Code
		}{
			{"", picket.CodeLeaseRequired},
			{f.MustSubmit(t, picket.TaskSpec{}).TaskID, picket.CodeLeaseRequired},
			{"a1", picket.CodeValidation},
			{"nobody", picket.CodeNotFound},
		} {
			_, err := f.SendMessage(f.Ctx, held, "", toAgent(c.to, "x"))
			kit.Refused(t, err, c.want)
		}
		_, err = f.SendMessage(f.Ctx, held, "r1", toAgent("a2", "other"))
		kit.Refused(t, err, picket.CodeIdempotencyConflict)
		answer := toAgent("a2", "x")
		answer.ReplyTo = "message_" + ulid.Make().String()
		_, err = f.SendMessage(f.Ctx, held, "", answer)
		kit.Refused(t, err, picket.CodeNotFound)
		for range picket.MaxSendsPerMinute {
			_, err = f.SendMessage(f.Ctx, held, "", toAgent("a2", "x"))
		}
		kit.Refused(t, err, picket.CodeRateLimited)
		events, err := f.Events(f.Ctx, picket.EventQuery{Limit: 1000})
		kit.OK(t, err)
		if i := slices.IndexFunc(events.Events, func(e picket.Event) bool { return e.Type == "message.sent" }); i < 0 ||
			events.Events[i].Actor != "a1" || events.Events[i].TaskID != "" {
			t.Errorf("%+v", events.Events)
		}
	})
}

// A session reads the inbox of its agent. A repeat reads the same, and a peek acknowledges nothing.
func TestSessionsReadMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		for _, body := range []string{"one", "two", "three"} {
			f.mustTell(t, "a1", body)
		}
		for _, c := range []struct {
			request string
			r       picket.ReadMessages
			want    string
			unread  int
		}{
			{"p", picket.ReadMessages{Peek: true}, "one,two,three", 3},
			{"a", picket.ReadMessages{Max: 1}, "one", 2},
			{"a", picket.ReadMessages{Max: 1}, "one", 2},
			{"b", picket.ReadMessages{}, "two,three", 0},
			{"c", picket.ReadMessages{}, "", 0},
		} {
			got, err := f.ReadMessages(f.Ctx, held, c.request, c.r, 0)
			kit.OK(t, err)
			if bodies(got.Messages) != c.want || got.Unread != c.unread {
				t.Errorf("%s reads %+v, and %d are unread", c.request, got.Messages, got.Unread)
			}
		}
		page, err := f.Messages(f.Ctx, kit.Operator, "a1", picket.MessageQuery{})
		kit.OK(t, err)
		for _, m := range page.Messages {
			if m.ReadAt == nil {
				t.Errorf("%q was not acknowledged", m.Body)
			}
		}
	})
}

// A session that waits for messages gets one at once, and stops to wait at the end of its prompt.
func TestAWaitOfASessionEndsWithAMessage(t *testing.T) {
	t.Run("Virtual", func(t *testing.T) { synctest.Test(t, waitAsSession) })
}

func waitAsSession(t *testing.T) {
	store, stop := rig.Memory()
	defer stop()
	fx := openFixture(t, store)
	defer fx.Close()
	f := fx.withSession(t)
	_, held := f.capable(t)
	wait := func(request string, then func()) (got picket.MessagesRead, took time.Duration, err error) {
		var waits sync.WaitGroup
		began := time.Now()
		waits.Go(func() { got, err = f.ReadMessages(f.Ctx, held, request, picket.ReadMessages{}, 40*time.Second) })
		synctest.Wait() // it has looked and waits
		then()
		waits.Wait()
		return got, time.Since(began), err
	}
	got, took, err := wait("a", func() { f.mustTell(t, "a1", "now") })
	if err != nil || bodies(got.Messages) != "now" || took > 5*time.Second {
		t.Errorf("after %s: %+v %v", took, got, err)
	}
	got, took, err = wait("b", func() {})
	if err != nil || len(got.Messages) != 0 || took.Round(time.Second) != 40*time.Second {
		t.Errorf("after %s: %+v %v", took, got, err)
	}
	_, took, err = wait("c", func() { kit.OK(t, f.result(held.PromptID, picket.PromptAnswered, 0, "")) })
	if took > 5*time.Second {
		t.Errorf("it waits %s", took)
	}
	kit.Refused(t, err, picket.CodeSessionCapability)
}

// What needs a lease is refused to a session.
func TestSessionsHaveNoLease(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		_, held := f.capable(t)
		_, err := f.HeldTask(f.Ctx, held, "")
		kit.Refused(t, err, picket.CodeLeaseRequired)
		_, err = f.Delegate(f.Ctx, held, "", picket.Subtask{Title: "x"})
		kit.Refused(t, err, picket.CodeLeaseRequired)
		external := kit.PaidCall("0.01")
		external.Effects = picket.EffectsExternal
		_, err = f.Reserve(f.Ctx, held, external)
		kit.Refused(t, err, picket.CodeLeaseRequired)
		_, err = f.CanExec(f.Ctx, held)
		kit.Refused(t, err, picket.CodeLeaseRequired)
		_, err = f.DeliverMessages(f.Ctx, held)
		kit.Refused(t, err, picket.CodeLeaseRequired)
	})
}

// The secret is neither in the store nor in an event.
func TestTheStoreHasNoCapability(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		secret, held := f.capable(t)
		f.sessionAgent(t, "a2")
		_, err := f.SendMessage(f.Ctx, held, "r", toAgent("a2", "hello"))
		kit.OK(t, err)
		_, err = f.ReadMessages(f.Ctx, held, "r", picket.ReadMessages{}, 0)
		kit.OK(t, err)
		f.mustTell(t, "a1", "hi")
		kit.OK(t, f.result(held.PromptID, picket.PromptAnswered, 0, "well"))
		_, err = f.SessionCapability(f.Ctx, held)
		random := secret.Reveal()[strings.LastIndexByte(secret.Reveal(), '.')+1:]
		dump := f.rawStore(t)
		if strings.Contains(dump+fmt.Sprintf("%+v", err), random) ||
			!strings.Contains(dump, held.Secret) {
			t.Error("the store has the capability, or not its hash")
		}
	})
}

// The hash of a capability is checked.
func TestCapabilityHashesAreChecked(t *testing.T) {
	for _, r := range []picket.CommandResult{
		{State: picket.PromptAnswered, CapabilityHash: strings.Repeat("0", 64)},
		{State: picket.PromptAccepted, CapabilityHash: strings.Repeat("0", 63)},
		{State: picket.PromptAccepted, CapabilityHash: strings.Repeat("A", 64)},
		{State: picket.PromptAccepted, CapabilityHash: strings.Repeat("x", 64)},
	} {
		r.Incarnation = 1
		if err := r.Check(); picket.CodeOf(err) != picket.CodeValidation {
			t.Errorf("%+v: %v", r, err)
		}
	}
	good := picket.NewSessionCapability("default", "prompt_"+ulid.Make().String()).Reveal()
	for _, token := range []string{"", "pks_", strings.TrimPrefix(good, "pks_"), "pkl_" + good[4:], good + "x",
		good[:len(good)-1], good + "." + good, strings.Replace(good, "default", "De fault", 1)} {
		if _, ok := picket.ParseSessionCapability(token); ok {
			t.Errorf("%q is a capability", token)
		}
	}
}
