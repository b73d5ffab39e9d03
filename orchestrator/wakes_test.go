package orchestrator_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/heartbeat"
	"github.com/picket-dev/picket/orchestrator/mirror"
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
	got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1",
		picket.PendingQuery{Incarnation: incarnation, Wait: 20 * time.Second})
	kit.OK(t, err)
	if len(got.Sessions) != 1 {
		t.Fatalf("%d commands, want 1", len(got.Sessions))
	}
	return got.Sessions[0]
}

func (f *fixture) result(incarnation int64, command string, state picket.PromptState, reason string) error {
	return kit.SendResult(f.Ctx, f, kit.Operator, "a1", command,
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
	if c.Command != picket.CommandWake || !strings.Contains(c.Text, "> Read your messages first.") ||
		c.Namespace != f.Namespace() {
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
		stats, err := f.Stats(f.Ctx)
		kit.OK(t, err)
		if stats.Wakes[picket.WakeReasonSent] != 1 || stats.Wakes[picket.WakeReasonCooldownActive] != 2 {
			t.Errorf("counted %v", stats.Wakes)
		}
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
		_, err = f.wakeWith(t, n, picket.PromptFailed, "prompt_active") // which does not refuse it
		kit.Refused(t, err, picket.CodeSyntheticPromptFailed)
		done := make(chan error, 1)
		go func() {
			_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- err
		}()
		late := f.nextCommand(t, n)
		f.JumpStoreTime(t, 10*time.Second)
		_, err = f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
		kit.OK(t, err)
		kit.Refused(t, <-done, picket.CodeSyntheticPromptFailed)
		kit.Refused(t, f.result(n, late.CommandID, picket.PromptAccepted, ""), picket.CodeStateConflict)
		d, err = f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonSent {
			t.Errorf("%+v", d)
		}
		if got, want := f.wakeRows(t), []string{"sent/wake_sent manual manual x1",
			"failed/synthetic_prompt_failed manual manual x2",
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
		ended, err := f.SessionPrompt(f.Ctx, id, wake.CommandID, 0, 0)
		kit.OK(t, err)
		if ended.State != picket.PromptRefused {
			t.Fatalf("the wake is %s beside the prompt of a person", ended.State)
		}
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
		_, err = f.Wake(f.Ctx, kit.OtherOperator, "bob", picket.WakeRequest{SessionID: id})
		kit.OK(t, err)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionNotAttachable)
		if rows := f.wakeRows(t); rows[0] != "skipped/session_not_attachable manual manual x2" {
			t.Errorf("rows %q", rows)
		}
		kit.OK(t, f.report("a1", n, idleSession(id)))
		_, err = f.PromptSession(f.Ctx, kit.Operator, id, picket.PromptRequest{Text: "hello"})
		kit.OK(t, err)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonSessionPromptActive)
		kit.OK(t, f.result(n, f.nextCommand(t, n).CommandID, picket.PromptAnswered, ""))
		_, err = f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentDraining,
			ClientTimestamp: picket.InstantOf(time.Now()), Incarnation: n})
		kit.OK(t, err)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonAgentDraining)
		_, err = f.Pause(f.Ctx, kit.Operator, false, "")
		kit.OK(t, err)
		f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonPaused)
		_, err = f.Resume(f.Ctx, kit.Operator, "")
		kit.OK(t, err)
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

// A decision is not stored if its facts have changed meanwhile.
func TestAWakeIsDecidedByPresentFacts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		args := make([]any, 24)
		for i := range args {
			args[i] = "1"
		}
		args[0], args[1], args[2], args[4], args[13] = "ann", id, "", "prompt_01JZZZZZZZZZZZZZZZZZZZZZZZ", "other facts"
		args[21], args[22], args[23] = 25, kit.SessionLimitsArgument, ""
		_, err := f.Records().Run(f.Ctx, "record_wake", args...)
		kit.OK(t, err)
		got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: n})
		kit.OK(t, err)
		if len(got.Sessions) != 0 {
			t.Errorf("commands %+v", got.Sessions)
		}
	})
}

// Wakes that are refused are counted in one row, and the rows are bounded in number and in age. A name that
// nobody uses has none.
func TestWakeRowsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.wakeable(t)
		const rows = "pk:{default}:wakes:ann"
		old := redis.Z{Member: `{"at":"1"}`}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, rows, old).Err())
		f.wantWake(t, picket.WakeRequest{SessionID: newSessionID()}, picket.WakeReasonSessionNotFound)
		if n := f.Raw.ZCard(f.Ctx, rows).Val(); n != 1 {
			t.Errorf("%d rows are kept", n)
		}
		many := make([]redis.Z, 1000)
		for i := range many {
			many[i] = redis.Z{Score: float64(-i), Member: fmt.Sprintf(`{"at":"9999999999999","n":%d}`, i)}
		}
		kit.OK(t, f.Raw.ZAdd(f.Ctx, rows, many...).Err())
		f.wantWake(t, picket.WakeRequest{SessionID: newSessionID()}, picket.WakeReasonSessionNotFound)
		if n := f.Raw.ZCard(f.Ctx, rows).Val(); n != 1000 {
			t.Errorf("%d rows are kept", n)
		}
		if ttl := f.Raw.PTTL(f.Ctx, rows).Val(); ttl <= 0 {
			t.Errorf("the rows are kept for %v", ttl)
		}
		_, err := f.Wake(f.Ctx, kit.OtherOperator, "nobody", picket.WakeRequest{SessionID: newSessionID()})
		kit.OK(t, err)
		if n := f.Raw.Exists(f.Ctx, "pk:{default}:wakes:nobody").Val(); n != 0 {
			t.Error("an unknown name has rows")
		}
	})
}

// What is kept about the wakes of a session ends with their rows.
func TestWakesAreForgotten(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		d, err := f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		f.Raw.Del(f.Ctx, "pk:{default}:session-wake:"+id) // its time is over while the agent works
		kit.OK(t, f.result(n, d.WakeID, picket.PromptAnswered, ""))
		if ttl := f.Raw.PTTL(f.Ctx, "pk:{default}:session-wake:"+id).Val(); ttl <= 0 {
			t.Errorf("a forgotten record that comes back is kept for %v", ttl)
		}
		f.JumpStoreTime(t, time.Minute)
		_, err = f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		if ttl := f.Raw.PTTL(f.Ctx, "pk:{default}:session-wake:"+id).Val(); ttl <= 0 || ttl > 168*time.Hour {
			t.Errorf("the last wake is kept for %v", ttl)
		}
	})
}

// An agent name gets so many wakes in a cycle. Those that failed do not count.
func TestWakesOfACycleAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		cycle := "pk:{default}:wakes-in-cycle:ann:" + kit.Operator.Actor
		count := func() string { return f.Raw.HGet(f.Ctx, cycle, "count").Val() }
		_, err := f.wakeWith(t, n, picket.PromptRefused, "cannot_start")
		kit.Refused(t, err, picket.CodeSyntheticPromptFailed)
		if got := count(); got != "0" {
			t.Errorf("%s wakes count", got)
		}
		kit.OK(t, f.Raw.HSet(f.Ctx, cycle, "count", 25).Err())
		d := f.wantWake(t, picket.WakeRequest{}, picket.WakeReasonRateLimited)
		if d.NextAllowedAt == nil || *d.NextAllowedAt-d.At > 30_000 {
			t.Errorf("next allowed at %v, asked at %v", d.NextAllowedAt, d.At)
		}
		other := newSessionID() // of an agent of the same name that another key registered
		a, err := f.Register(f.Ctx, kit.AgentOwner, picket.Registration{AgentID: "a2", RoleID: "coder",
			Metadata: picket.RawJSON(`{"agent_name":"ann"}`)})
		kit.OK(t, err)
		kit.OK(t, f.ReportSessions(f.Ctx, kit.AgentOwner, "a2", picket.SessionsReport{Incarnation: a.Incarnation,
			Sessions: []picket.SessionReport{idleSession(other)}}))
		f.wantWake(t, picket.WakeRequest{SessionID: other, DryRun: true}, picket.WakeReasonSent)
		f.wantWake(t, picket.WakeRequest{SessionID: id, DryRun: true}, picket.WakeReasonRateLimited)
		f.JumpStoreTime(t, 30*time.Second)
		f.wantWake(t, picket.WakeRequest{SessionID: id, DryRun: true}, picket.WakeReasonSent)
	})
}

// An edited file counts at the next wake. While nobody has the directory, its policies do not count for a day.
func TestWakesFollowTheFiles(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, _ := f.wakeable(t)
		files := f.PolicyStore()
		_, _, err := files.Lock(f.Ctx, "dir")
		kit.OK(t, err)
		kit.OK(t, files.Publish(f.Ctx, "dir", []mirror.File{{Name: "ann", State: mirror.StateRemoved,
			Digest: mirror.Absent, Revision: f.mustPolicy(t, "ann").RevisionID}}, nil))
		f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonNoPolicy)
		f.JumpStoreTime(t, mirror.Lease)
		d := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonInvalid)
		if len(d.Diagnostics) != 1 || d.Diagnostics[0].Code != string(heartbeat.CodeFilesUnread) {
			t.Errorf("diagnostics %+v", d.Diagnostics)
		}
		f.JumpStoreTime(t, 24*time.Hour)
		d = f.wantWake(t, picket.WakeRequest{SessionID: id, DryRun: true}, picket.WakeReasonSessionUnhealthy)
		if d.DetailCode == nil || len(d.Diagnostics) != 0 {
			t.Errorf("%+v", d)
		}
	})
}

// A wake quotes the parts of the context that the policy names, and no text of a message.
func TestAWakeQuotesTheContext(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, n := f.wakeable(t)
		f.mustWritePolicy(t, "ann", "---\npreferences: {context: {include: [self, session_health, inbox_summary]}}\n---\n"+
			"Read your messages first.\n")
		_, err := f.Tell(f.Ctx, kit.OtherOperator, "a1", picket.MessageRequest{Body: "the-text-of-the-message"})
		kit.OK(t, err)
		done := make(chan error, 1)
		go func() {
			_, err := f.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- err
		}()
		c := f.nextCommand(t, n)
		kit.OK(t, f.result(n, c.CommandID, picket.PromptAccepted, ""))
		kit.OK(t, <-done)
		for _, want := range []string{"self:\n> {\"agentId\":\"a1\"", "session_health:\n> {\"state\":\"idle\"",
			"inbox_summary:\n> {\"messages\":1"} {
			if !strings.Contains(c.Text, want) {
				t.Errorf("the wake does not say %q:\n%s", want, c.Text)
			}
		}
		if strings.Contains(c.Text, "the-text-of-the-message") || strings.Contains(c.Text, "task:\n") {
			t.Errorf("the wake quotes too much:\n%s", c.Text)
		}
	})
}

// A wake goes on without the server that reserved it: an adapter accepts it at another one, and it counts once.
func TestAWakeOutlivesItsServer(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		id, n := f.wakeable(t)
		ctx, kill := context.WithCancel(f.Ctx)
		done := make(chan error, 1)
		go func() {
			_, err := f.Wake(ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
			done <- err
		}()
		c := f.nextCommand(t, n)
		kill()
		kit.Refused(t, <-done, picket.CodeUnavailable)
		second := f.OpenProcess(t, f.RigStore, orchestrator.Config{Witness: t.TempDir()}).Engine("default")
		d, err := second.Wake(f.Ctx, kit.OtherOperator, "ann", picket.WakeRequest{})
		kit.OK(t, err)
		if d.Reason != picket.WakeReasonCoalesced {
			t.Errorf("beside the wake under way: %+v", d)
		}
		accepted := picket.CommandResult{Incarnation: n, State: picket.PromptAccepted}
		kit.OK(t, kit.SendResult(f.Ctx, second, kit.Operator, "a1", c.CommandID, accepted))
		kit.OK(t, kit.SendResult(f.Ctx, second, kit.Operator, "a1", c.CommandID, accepted))
		if got, want := f.wakeRows(t), []string{"sent/wake_sent manual manual x1",
			"coalesced/wake_coalesced manual manual x1"}; !slices.Equal(got, want) {
			t.Errorf("rows %q, want %q", got, want)
		}
		page, err := f.SessionPrompts(f.Ctx, id, 0, 50)
		kit.OK(t, err)
		if len(page.Prompts) != 1 {
			t.Errorf("%d prompts", len(page.Prompts))
		}
	})
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
