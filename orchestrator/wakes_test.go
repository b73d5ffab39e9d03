package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

const wakePolicyText = "---\nversion: 1\nsummary: Look at the reviews.\n---\nRead your messages first.\n"

// wakeable registers the agent a1 with one idle session under the policy of ann, and returns the session.
func (f *fixture) wakeable(t *testing.T) (sessionID string, incarnation int64) {
	t.Helper()
	n, id := f.sessionAgent(t, "a1"), newSessionID()
	kit.OK(t, f.report("a1", n, idleSession(id)))
	f.mustWritePolicy(t, "ann", wakePolicyText)
	return id, n
}

// nextCommand waits for the next command of the sessions of a1.
func (f *fixture) nextCommand(t *testing.T, incarnation int64) picket.SessionCommand {
	t.Helper()
	got, err := f.SessionCommands(f.Ctx, kit.Operator, "a1", incarnation, nil, 20*time.Second)
	kit.OK(t, err)
	if len(got.Sessions) != 1 {
		t.Fatalf("%d commands, want 1", len(got.Sessions))
	}
	return got.Sessions[0]
}

func (f *fixture) result(incarnation int64, command string, state picket.PromptState, reason string) error {
	return f.CommandResult(f.Ctx, kit.Operator, "a1", command,
		picket.CommandResult{Incarnation: incarnation, State: state, Reason: reason})
}

// wakeWith wakes ann while an adapter answers the wake with a state.
func (f *fixture) wakeWith(t *testing.T, incarnation int64, state picket.PromptState,
	reason string) (picket.WakeDecision, error) {
	t.Helper()
	type outcome struct {
		d   picket.WakeDecision
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		d, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
		done <- outcome{d, err}
	}()
	c := f.nextCommand(t, incarnation)
	if c.Command != picket.CommandWake || !strings.Contains(c.Text, "> Read your messages first.") {
		t.Errorf("command %+v", c)
	}
	kit.OK(t, f.result(incarnation, c.CommandID, state, reason))
	out := <-done
	return out.d, out.err
}

func (f *fixture) wakeRows(t *testing.T) (rows []string) {
	t.Helper()
	page, err := f.Wakes(f.Ctx, "ann", picket.WakeQuery{})
	kit.OK(t, err)
	for _, w := range page.Wakes {
		rows = append(rows, fmt.Sprintf("%s/%s %s %s x%d", w.Result, w.Reason, w.Source, w.Occasion, w.Count))
	}
	return rows
}

func (f *fixture) wantWake(t *testing.T, req picket.WakeRequest, want picket.WakeReason) picket.WakeDecision {
	t.Helper()
	d, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", req)
	kit.OK(t, err)
	if d.Reason != want || d.Result != want.Result() {
		t.Errorf("the wake is %s/%s, want %s", d.Result, d.Reason, want)
	}
	return d
}

// A wake is one prompt. The next one is allowed after the cooldown, and exactly then.
func TestAWakeIsSentOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		dry := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent)
		if !dry.DryRun || dry.WakeID != "" || dry.SessionID != id {
			t.Errorf("dry run %+v", dry)
		}
		d, err := f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonSent || d.SessionID != id || d.PolicySnapshotID == "" {
			t.Fatalf("%+v", d)
		}
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionPromptActive)
		kit.OK(t, f.result(n, d.WakeID, picket.PromptAnswered, ""))
		early := f.wantWake(t, picket.WakeRequest{SessionID: id}, picket.WakeReasonCooldownActive)
		f.wantWake(t, picket.WakeRequest{SessionID: id}, picket.WakeReasonCooldownActive)
		if early.NextAllowedAt == nil || *early.NextAllowedAt <= early.At {
			t.Errorf("next allowed at %v, asked at %v", early.NextAllowedAt, early.At)
		}
		if got, want := f.wakeRows(t), []string{"rate_limited/cooldown_active manual manual x2",
			"skipped/session_prompt_active manual manual x1", "sent/wake_sent manual manual x1"}; !slices.Equal(got, want) {
			t.Errorf("rows %q, want %q", got, want)
		}
		if got := f.sessionEvents(t); !slices.Equal(got, []string{"started", "waking", "woken wake_sent"}) {
			t.Errorf("events %q", got)
		}
		f.JumpStoreTime(t, time.Minute)
		f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSent)
	})
}

// A wake that no adapter accepts leaves no trace but its row, so that the next one is sent.
func TestAWakeThatIsNotAcceptedIsRefunded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, n := f.wakeable(t)
		_, err := f.wakeWith(t, n, picket.PromptRefused, "cannot_start")
		kit.Refused(t, err, picket.CodeSyntheticPromptFailed)
		d, err := f.wakeWith(t, n, picket.PromptRefused, "prompt_active")
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonSessionPromptActiveRace || d.Result != picket.WakeResultSkipped {
			t.Errorf("%+v", d)
		}
		done := make(chan error, 1)
		go func() {
			_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- err
		}()
		late := f.nextCommand(t, n)
		f.JumpStoreTime(t, 10*time.Second)
		_, err = f.SessionCommands(f.Ctx, kit.Operator, "a1", n, nil, 0)
		kit.OK(t, err)
		kit.Refused(t, <-done, picket.CodeSyntheticPromptFailed)
		kit.Refused(t, f.result(n, late.CommandID, picket.PromptAccepted, ""), picket.CodeStateConflict)
		d, err = f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonSent {
			t.Errorf("%+v", d)
		}
		if got, want := f.wakeRows(t), []string{"sent/wake_sent manual manual x1",
			"failed/synthetic_prompt_failed manual manual x1",
			"skipped/session_prompt_active_race manual manual x1",
			"failed/synthetic_prompt_failed manual manual x1"}; !slices.Equal(got, want) {
			t.Errorf("rows %q, want %q", got, want)
		}
	})
}

// The prompt of a person goes before a wake that no adapter has accepted.
func TestPeopleGoBeforeAWake(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		done := make(chan picket.WakeDecision, 1)
		go func() {
			d, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			kit.OK(t, err)
			done <- d
		}()
		wake := f.nextCommand(t, n)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonCoalesced)
		p, err := f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		if d := <-done; d.Reason != picket.WakeReasonSessionPromptActiveRace {
			t.Errorf("%+v", d)
		}
		kit.Refused(t, f.result(n, wake.CommandID, picket.PromptAccepted, ""), picket.CodeStateConflict)
		if c := f.nextCommand(t, n); c.CommandID != p.PromptID || c.Command != picket.CommandPrompt {
			t.Errorf("the next command is %+v", c)
		}
	})
}

// Each rule gives its reason, and the first one counts.
func TestWakesAreRefusedForAReason(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
		kit.Refused(t, err, picket.CodeSessionRequired)
		f.wantWake(t, picket.WakeRequest{SessionID: newSessionID()}, picket.WakeReasonNoPolicy)
		id, n := f.wakeable(t)
		f.wantWake(t, picket.WakeRequest{SessionID: newSessionID()}, picket.WakeReasonSessionNotFound)
		d, err := f.Wake(f.Ctx, kit.OtherOperator, "bob", picket.WakeRequest{SessionID: id})
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonNoPolicy {
			t.Errorf("another name: %+v", d)
		}
		f.mustWritePolicy(t, "bob", wakePolicyText)
		d, err = f.Wake(f.Ctx, kit.OtherOperator, "bob", picket.WakeRequest{SessionID: id})
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonSessionNotFound {
			t.Errorf("a session of another name: %+v", d)
		}
		hurt := idleSession(id)
		hurt.State, hurt.DetachedBecause = picket.SessionDetached, picket.CannotStart
		kit.OK(t, f.report("a1", n, hurt))
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionNotAttachable)
		kit.OK(t, f.report("a1", n, idleSession(id)))
		_, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionPromptActive)
		kit.OK(t, f.result(n, f.nextCommand(t, n).CommandID, picket.PromptAnswered, ""))
		f.mustWritePolicy(t, "ann", "---\nenabled: false\n---\n")
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonDisabled)
		f.mustWritePolicy(t, "ann", "---\npreferences:\n  quiet_windows:\n"+
			"  - {timezone: UTC, start: '00:00', end: '12:00'}\n  - {timezone: UTC, start: '12:00', end: '00:00'}\n---\n")
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonQuietWindow)
		f.mustWritePolicy(t, "ann", wakePolicyText)
		kit.OK(t, f.StopSession(f.Ctx, kit.Operator, id))
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionNotAttachable)
		_, err = f.Wake(f.Ctx, kit.AgentOwner, "ann", picket.WakeRequest{})
		kit.Refused(t, err, picket.CodeForbidden)
	})
}

// Two servers that wake one session many times at once send one wake, and leave one prompt.
func TestConcurrentWakesSendOne(t *testing.T) {
	where := rig.Real(t)
	f := openFixture(t, where)
	defer f.Close()
	second := f.OpenProcess(t, where, orchestrator.Config{Witness: t.TempDir()}).Engine("default")
	id, n := f.wakeable(t)
	const many = 200
	type outcome struct {
		d   picket.WakeDecision
		err error
	}
	done := make(chan outcome, many)
	for i := range many {
		e := f.Engine
		if i%2 == 1 {
			e = second
		}
		go func() {
			d, err := e.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- outcome{d, err}
		}()
	}
	c := f.nextCommand(t, n)
	kit.OK(t, f.result(n, c.CommandID, picket.PromptAccepted, ""))
	sent := 0
	for range many {
		out := <-done
		kit.OK(t, out.err)
		if out.d.Result == picket.WakeResultSent {
			sent++
		}
	}
	page, err := f.SessionPrompts(f.Ctx, id, 0, 50)
	kit.OK(t, err)
	if sent != 1 || len(page.Prompts) != 1 || !page.Prompts[0].Wake {
		t.Errorf("%d sent, prompts %+v", sent, page.Prompts)
	}
}

// A repeated request is the same wake, also after it was sent.
func TestARepeatedWakeIsTheSame(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, n := f.wakeable(t)
		by := kit.Idempotent("W")
		done := make(chan picket.WakeDecision, 2)
		wake := func() {
			d, err := f.Wake(f.Ctx, by, "ann", picket.WakeRequest{})
			kit.OK(t, err)
			done <- d
		}
		go wake()
		kit.OK(t, f.result(n, f.nextCommand(t, n).CommandID, picket.PromptAccepted, ""))
		first := <-done
		wake()
		if again := <-done; again.WakeID != first.WakeID || again.Reason != picket.WakeReasonSent {
			t.Errorf("%+v, then %+v", first, again)
		}
	})
}

// cycle runs a cycle of the scheduler, a cycle after the last one.
func (f *fixture) cycle(t *testing.T, n int64, id string) (looked int) {
	t.Helper()
	f.JumpStoreTime(t, 30*time.Second)
	_, err := f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
		ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
	kit.OK(t, err)
	kit.OK(t, f.report("a1", n, idleSession(id)))
	looked, err = f.WakeCycle(f.Ctx)
	kit.OK(t, err)
	return looked
}

// The scheduler wakes a session for a message, once. It leaves a session alone for which there is nothing, and
// one that no budget limits.
func TestTheSchedulerWakesForAMessage(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		if got := f.cycle(t, n, id); got != 1 {
			t.Errorf("%d sessions were looked at", got)
		}
		pending := func() []picket.SessionCommand {
			got, err := f.SessionCommands(context.Background(), kit.Operator, "a1", n, nil, 0)
			kit.OK(t, err)
			return got.Sessions
		}
		if got := pending(); len(got) != 0 {
			t.Fatalf("an idle session is woken: %+v", got)
		}
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "look at this"})
		kit.OK(t, err)
		f.cycle(t, n, id)
		if got := pending(); len(got) != 1 || got[0].Command != picket.CommandWake ||
			!strings.Contains(got[0].Text, "unread messages") {
			t.Fatalf("commands %+v, rows %q", got, f.wakeRows(t))
		}
		wake := pending()[0].CommandID
		kit.OK(t, f.result(n, wake, picket.PromptAccepted, ""))
		kit.OK(t, f.result(n, wake, picket.PromptAnswered, ""))
		for range 5 {
			f.cycle(t, n, id)
		}
		if got := pending(); len(got) != 0 {
			t.Errorf("the same message wakes again: %+v", got)
		}
	})
}
