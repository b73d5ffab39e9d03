package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// sessionFixture is an agent with one idle session.
type sessionFixture struct {
	*fixture
	n  int64 // incarnation of the agent a1
	id string
}

func (f *fixture) withSession(t *testing.T) *sessionFixture {
	t.Helper()
	s := &sessionFixture{f, f.sessionAgent(t, "a1"), newSessionID()}
	kit.OK(t, f.report("a1", s.n, idleSession(s.id)))
	return s
}

func (f *sessionFixture) prompt(t *testing.T, text string) string {
	t.Helper()
	p, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: text})
	kit.OK(t, err)
	if p.State != picket.PromptQueued || p.Text != text || p.SessionID != f.id || p.RemainingMs <= 0 {
		t.Errorf("%+v", p)
	}
	return p.PromptID
}

func (f *sessionFixture) result(id string, state picket.PromptState, offset int, output string) error {
	return kit.SendResult(f.Ctx, f, kit.Operator, "a1", id,
		picket.CommandResult{Incarnation: f.n, State: state, Output: output, Offset: offset, Reason: "because"})
}

// offered are the texts of the prompts that the adapter gets.
func (f *sessionFixture) offered(t *testing.T, known ...string) (texts []string) {
	t.Helper()
	got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: f.n, Known: known})
	kit.OK(t, err)
	for _, c := range got.Sessions {
		if c.Command == picket.CommandStopSession {
			texts = append(texts, "stop "+c.SessionID)
			continue
		}
		texts = append(texts, c.Text)
		if c.SessionID != f.id || c.ExpiresInMs <= 0 {
			t.Errorf("%+v", c)
		}
	}
	return texts
}

func (f *sessionFixture) wantOffered(t *testing.T, want ...string) {
	t.Helper()
	if got := f.offered(t); !slices.Equal(got, want) {
		t.Errorf("the adapter gets %q, want %q", got, want)
	}
}

func (f *sessionFixture) wantPrompt(t *testing.T, id string, state picket.PromptState,
	answer string) picket.SessionPrompt {
	t.Helper()
	p, err := f.SessionPrompt(f.Ctx, f.id, id, 0, 0)
	kit.OK(t, err)
	if p.State != state || p.Answer != answer || (p.EndedAt != nil) != state.Ended() {
		t.Errorf("the prompt is %+v, want %s %q", p, state, answer)
	}
	return p
}

// The prompts of a session are delivered one after the other, each until somebody has taken it.
func TestPromptsComeOneAfterTheOther(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		f.wantOffered(t)
		one, two := f.prompt(t, "one"), f.prompt(t, "two")
		f.wantOffered(t, "one")
		f.wantOffered(t, "one") // a reply that was lost
		if got := f.offered(t, one); len(got) != 0 {
			t.Errorf("what is known comes again: %q", got)
		}
		kit.OK(t, f.result(one, picket.PromptAccepted, 0, ""))
		f.wantOffered(t) // one at a time
		p := f.wantPrompt(t, one, picket.PromptAccepted, "")
		if p.AcceptedAt == nil || p.By != kit.Operator.Actor {
			t.Errorf("%+v", p)
		}
		kit.OK(t, f.result(one, picket.PromptAccepted, 0, "half "))
		kit.OK(t, f.result(one, picket.PromptAccepted, 0, "half "))
		kit.OK(t, f.result(one, picket.PromptAccepted, 3, "f a "))
		kit.Refused(t, f.result(one, picket.PromptAccepted, 9, "x"), picket.CodeStateConflict)
		f.wantPrompt(t, one, picket.PromptAccepted, "half a ")
		for range 2 {
			kit.OK(t, f.result(one, picket.PromptAnswered, 7, "word"))
		}
		f.wantPrompt(t, one, picket.PromptAnswered, "half a word")
		kit.Refused(t, f.result(one, picket.PromptFailed, 0, ""), picket.CodeStateConflict)
		kit.Refused(t, f.result(one, picket.PromptAccepted, 11, "!"), picket.CodeStateConflict)
		f.wantPrompt(t, one, picket.PromptAnswered, "half a word")
		f.wantOffered(t, "two")
		kit.OK(t, f.result(two, picket.PromptRefused, 0, ""))
		if p := f.wantPrompt(t, two, picket.PromptRefused, ""); p.Reason != "because" {
			t.Errorf("%+v", p)
		}
		f.wantOffered(t)
		tail, err := f.SessionPrompt(f.Ctx, f.id, one, 7, 0)
		kit.OK(t, err)
		if tail.Answer != "word" || tail.Offset != 7 {
			t.Errorf("%+v", tail)
		}
		page, err := f.SessionPrompts(f.Ctx, f.id, 0, 1)
		kit.OK(t, err)
		if len(page.Prompts) != 1 || page.Prompts[0].PromptID != two || page.Cursor == 0 {
			t.Fatalf("%+v", page)
		}
		page, err = f.SessionPrompts(f.Ctx, f.id, page.Cursor, 10)
		kit.OK(t, err)
		if len(page.Prompts) != 1 || page.Prompts[0].PromptID != one || page.Cursor != 0 {
			t.Fatalf("%+v", page)
		}
	})
}

// A prompt that nobody takes by its deadline expires, one that was taken fails a while after it, and the
// next one has its turn.
func TestPromptsHaveDeadlines(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		alive := func(d time.Duration) {
			t.Helper()
			f.JumpStoreTime(t, d)
			_, err := f.Heartbeat(f.Ctx, kit.Operator, "a1", picket.Heartbeat{Status: picket.AgentActive,
				Incarnation: f.n, ClientTimestamp: picket.InstantOf(time.Now())})
			kit.OK(t, err)
		}
		short := func(text string) string {
			p, err := f.PromptSession(f.Ctx, kit.Operator, f.id,
				picket.PromptRequest{Text: text, TimeoutSeconds: kit.Ptr(60)})
			kit.OK(t, err)
			return p.PromptID
		}
		one, two := short("one"), f.prompt(t, "two")
		alive(59 * time.Second)
		f.wantPrompt(t, one, picket.PromptQueued, "")
		alive(2 * time.Second)
		f.wantPrompt(t, one, picket.PromptExpired, "")
		kit.Refused(t, f.result(one, picket.PromptAccepted, 0, ""), picket.CodeStateConflict)
		f.offered(t) // this call sees that the first is over
		f.wantOffered(t, "two")
		kit.OK(t, f.result(two, picket.PromptAnswered, 0, "2"))

		three := short("three")
		kit.OK(t, f.result(three, picket.PromptAccepted, 0, "begun"))
		four := f.prompt(t, "four")
		alive(61 * time.Second)
		f.wantPrompt(t, three, picket.PromptAccepted, "begun") // the adapter may still say what became of it
		alive(31 * time.Second)
		if p := f.wantPrompt(t, three, picket.PromptFailed, "begun"); p.Reason != "timeout" {
			t.Errorf("%+v", p)
		}
		kit.Refused(t, f.result(three, picket.PromptAnswered, 5, "late"), picket.CodeStateConflict)
		kit.OK(t, f.result(three, picket.PromptFailed, 0, "")) // that is what it has become
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		f.wantOffered(t, "four")
		kit.OK(t, f.result(four, picket.PromptAccepted, 0, ""))
		short("five")
		alive(61 * time.Second)
		six := f.prompt(t, "six") // it finds that the fifth is over
		f.wantOffered(t)          // but the fourth is still under way
		kit.OK(t, f.result(four, picket.PromptAnswered, 0, ""))
		f.wantOffered(t, "six")
		f.wantPrompt(t, six, picket.PromptQueued, "")
		for _, id := range []string{one, three} {
			if left := f.Raw.PTTL(f.Ctx, "pk:{default}:prompt:"+id).Val(); left <= 0 {
				t.Errorf("the prompt %s is kept for %s", id, left)
			}
		}
	})
}

// So many prompts of a session may be open, and so many are kept.
func TestPromptsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		var ids []string
		for i := range picket.MaxOpenPrompts {
			ids = append(ids, f.prompt(t, fmt.Sprint("number ", i)))
		}
		_, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "one more"})
		kit.Refused(t, err, picket.CodeStateConflict)
		for _, id := range ids {
			kit.OK(t, f.result(id, picket.PromptAnswered, 0, strings.Repeat("x", picket.MaxAnswerText)))
		}
		kit.OK(t, f.result(ids[0], picket.PromptAnswered, 0, "")) // once more
		id := f.prompt(t, "long")
		kit.OK(t, f.result(id, picket.PromptAccepted, 0, strings.Repeat("x", picket.MaxAnswerText-1)))
		kit.OK(t, f.result(id, picket.PromptAccepted, picket.MaxAnswerText-1, "yz"))
		f.wantPrompt(t, id, picket.PromptAccepted, strings.Repeat("x", picket.MaxAnswerText-1)+"y")
		kit.OK(t, f.result(id, picket.PromptAnswered, 0, ""))
		for range picket.MaxPromptsListed - len(ids) {
			kit.OK(t, f.result(f.prompt(t, "another"), picket.PromptAnswered, 0, ""))
		}
		_, err = f.SessionPrompt(f.Ctx, f.id, ids[0], 0, 0)
		kit.Refused(t, err, picket.CodeNotFound)
		if n := f.Raw.ZCard(f.Ctx, "pk:{default}:session-prompts:"+f.id).Val(); n != picket.MaxPromptsListed {
			t.Errorf("%d prompts are kept", n)
		}
		total := 0
		for cursor := int64(0); ; {
			page, err := f.SessionPrompts(f.Ctx, f.id, cursor, 50)
			kit.OK(t, err)
			total += len(page.Prompts)
			if cursor = page.Cursor; cursor == 0 {
				break
			}
		}
		if total != picket.MaxPromptsListed {
			t.Errorf("%d prompts are listed", total)
		}
	})
}

// A session that is ordered to end gets no prompt any more.
func TestSessionsAreStopped(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		for range 2 {
			kit.OK(t, f.StopSession(f.Ctx, kit.Operator, f.id))
		}
		_, err := f.PromptSession(f.Ctx, kit.Operator, f.id, picket.PromptRequest{Text: "x"})
		kit.Refused(t, err, picket.CodeStateConflict)
		f.wantOffered(t, "stop "+f.id)
		kit.OK(t, f.report("a1", f.n))
		f.wantOffered(t)
		kit.Refused(t, f.StopSession(f.Ctx, kit.Operator, f.id), picket.CodeNotFound)
		want := []string{"started", "stopping", "ended left_out"}
		if got := f.sessionEvents(t); !slices.Equal(got, want) {
			t.Errorf("events %q, want %q", got, want)
		}
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		f.prompt(t, "x") // it began again
		kit.OK(t, f.report("a1", f.n))
		kit.Refused(t, f.StopSession(f.Ctx, kit.Operator, f.id), picket.CodeStateConflict)
	})
}

// Those who wait for a prompt, or for its answer, are told at once.
func TestPromptsAndAnswersAreWaitedFor(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		commands := make(chan picket.PendingCommands, 1)
		go func() {
			got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1",
				picket.PendingQuery{Incarnation: f.n, Wait: 20 * time.Second})
			if err != nil {
				t.Error(err)
			}
			commands <- got
		}()
		id := f.prompt(t, "hello")
		if got := <-commands; len(got.Sessions) != 1 || got.Sessions[0].CommandID != id {
			t.Fatalf("%+v", got)
		}
		answers := make(chan picket.SessionPrompt, 1)
		go func() {
			p, err := f.SessionPrompt(f.Ctx, f.id, id, 0, 20*time.Second)
			if err != nil {
				t.Error(err)
			}
			answers <- p
		}()
		kit.OK(t, f.result(id, picket.PromptAccepted, 0, "well"))
		if p := <-answers; p.Answer != "well" || p.State != picket.PromptAccepted {
			t.Fatalf("%+v", p)
		}
		ping, err := f.CommandAgent(f.Ctx, kit.Operator, "a1", picket.AgentCommand{Command: picket.CommandPing})
		kit.OK(t, err)
		got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1",
			picket.PendingQuery{Incarnation: f.n, Wait: 20 * time.Second})
		kit.OK(t, err)
		if len(got.Agent) != 1 || got.Agent[0].CommandID != ping {
			t.Errorf("%+v", got)
		}
		got, err = f.PendingCommands(f.Ctx, kit.Operator, "a1",
			picket.PendingQuery{Incarnation: f.n, Known: []string{ping}})
		kit.OK(t, err)
		if len(got.Agent) != 0 {
			t.Errorf("what is known comes again: %+v", got)
		}
	})
}

// An adapter that asks for messages gets each number once, and at once. Others do not.
func TestAdaptersWaitForMessages(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		look := func(after, wait int64) int64 {
			t.Helper()
			q := picket.PendingQuery{Incarnation: f.n, MessagesAfter: &after, Wait: time.Duration(wait) * time.Second}
			got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", q)
			kit.OK(t, err)
			return got.NewestMessage
		}
		if n := look(0, 0); n != 0 {
			t.Errorf("message %d is told, and there is none", n)
		}
		heard := make(chan int64, 1)
		go func() { heard <- look(0, 20) }()
		f.mustTell(t, "a1", "one")
		first := <-heard
		if first == 0 || look(first, 0) != 0 || look(0, 0) != first {
			t.Errorf("after message %d comes %d", first, look(first, 0))
		}
		f.mustTell(t, "a1", "two")
		second := look(first, 0)
		if second <= first {
			t.Errorf("after message %d comes %d", first, second)
		}
		got, err := f.PendingCommands(f.Ctx, kit.Operator, "a1", picket.PendingQuery{Incarnation: f.n})
		kit.OK(t, err)
		if got.NewestMessage != 0 {
			t.Errorf("message %d is told to an adapter that has not asked", got.NewestMessage)
		}
		_, held := f.capable(t)
		_, err = f.ReadMessages(f.Ctx, held, "r", picket.ReadMessages{}, 0)
		kit.OK(t, err)
		if n := look(0, 0); n != 0 {
			t.Errorf("message %d is told although it was read", n)
		}
	})
}

// The same request is one prompt, and a prompt is found only with its session.
func TestPromptsAreSentOnce(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		ask := func(text string) (picket.SessionPrompt, error) {
			return f.PromptSession(f.Ctx, kit.Idempotent("P"), f.id, picket.PromptRequest{Text: text})
		}
		one, err := ask("x")
		kit.OK(t, err)
		two, err := ask("x")
		kit.OK(t, err)
		if one.PromptID != two.PromptID || len(f.offered(t)) != 1 {
			t.Errorf("%s and %s", one.PromptID, two.PromptID)
		}
		other := newSessionID()
		kit.OK(t, f.report("a1", f.n, idleSession(f.id), idleSession(other)))
		_, err = f.SessionPrompt(f.Ctx, other, one.PromptID, 0, 0)
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.SessionPrompt(f.Ctx, f.id, "prompt_"+ulid.Make().String(), 0, 0)
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.SessionPrompts(f.Ctx, newSessionID(), 0, 0)
		kit.Refused(t, err, picket.CodeNotFound)
		_, err = f.PromptSession(f.Ctx, kit.Operator, newSessionID(), picket.PromptRequest{Text: "x"})
		kit.Refused(t, err, picket.CodeNotFound)
		for _, bad := range []picket.PromptRequest{{}, {Text: " \n"}, {Text: "\xff"},
			{Text: strings.Repeat("x", picket.MaxPromptText+1)}, {Text: "x", TimeoutSeconds: kit.Ptr(0)},
			{Text: "x", TimeoutSeconds: kit.Ptr(3601)}} {
			_, err = f.PromptSession(f.Ctx, kit.Operator, f.id, bad)
			kit.Refused(t, err, picket.CodeValidation)
		}
		for _, bad := range []picket.CommandResult{{Incarnation: f.n}, {State: picket.PromptAccepted},
			{Incarnation: f.n, State: picket.PromptQueued},
			{Incarnation: f.n, State: picket.PromptAccepted, Offset: -1},
			{Incarnation: f.n, State: picket.PromptFailed, Reason: strings.Repeat("x", 501)},
			{Incarnation: f.n, State: picket.PromptAccepted, Output: strings.Repeat("x", picket.MaxAnswerText+1)},
			{Incarnation: f.n, State: picket.PromptAccepted, Output: "\xff"}} {
			kit.Refused(t, kit.SendResult(f.Ctx, f, kit.Operator, "a1", one.PromptID, bad), picket.CodeValidation)
		}
	})
}

// The end of a session does not change what has become of a prompt before.
func TestAnExpiredPromptStaysExpired(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		p, err := f.PromptSession(f.Ctx, kit.Operator, f.id,
			picket.PromptRequest{Text: "x", TimeoutSeconds: kit.Ptr(1)})
		kit.OK(t, err)
		f.JumpStoreTime(t, 2*time.Second)
		f.wantPrompt(t, p.PromptID, picket.PromptExpired, "")
		kit.OK(t, f.report("a1", f.n))
		f.wantPrompt(t, p.PromptID, picket.PromptExpired, "")
	})
}

// Later prompts do not push one out that is still under way.
func TestAnOpenPromptIsKept(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		first := f.prompt(t, "first")
		kit.OK(t, f.result(first, picket.PromptAccepted, 0, "well"))
		for i := range picket.MaxPromptsListed + 5 {
			if i%10 == 0 {
				f.JumpStoreTime(t, 1100*time.Millisecond)
			}
			_, err := f.PromptSession(f.Ctx, kit.Operator, f.id,
				picket.PromptRequest{Text: "x", TimeoutSeconds: kit.Ptr(1)})
			kit.OK(t, err)
		}
		kit.OK(t, f.result(first, picket.PromptAnswered, 4, ", done"))
		f.wantPrompt(t, first, picket.PromptAnswered, "well, done")
		f.JumpStoreTime(t, 2*time.Second)
		f.prompt(t, "after")
		f.wantOffered(t, "after")
	})
}

// However an adapter cuts an answer into pieces, what is stored and shown is text.
func TestAnswersAreText(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		f := fx.withSession(t)
		id := f.prompt(t, "x")
		kit.OK(t, f.result(id, picket.PromptAccepted, 0, "ü"))
		kit.Refused(t, f.result(id, picket.PromptAccepted, 1, "€€"), picket.CodeStateConflict)
		kit.Refused(t, f.result(id, picket.PromptAccepted, 0, "ab"), picket.CodeStateConflict)
		kit.OK(t, f.result(id, picket.PromptAccepted, 0, "ü€"))
		f.wantPrompt(t, id, picket.PromptAccepted, "ü€")
		for offset, want := range []string{"ü€", "ü€", "€", "€", "€", "", ""} {
			p, err := f.SessionPrompt(f.Ctx, f.id, id, offset, 0)
			kit.OK(t, err)
			if p.Answer != want || p.Offset+len(p.Answer) != len("ü€") {
				t.Errorf("from %d: %q at %d, want %q", offset, p.Answer, p.Offset, want)
			}
		}
		long := "ü€" + strings.Repeat("x", picket.MaxAnswerText-6)
		kit.OK(t, f.result(id, picket.PromptAccepted, 0, long))
		kit.OK(t, f.result(id, picket.PromptAnswered, len(long), "€"))
		f.wantPrompt(t, id, picket.PromptAnswered, long)
	})
}
