package invariants

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// inspectFixture is a namespace with a task in every place a task can be in.
type inspectFixture struct {
	*kit.Fixture
	t *testing.T
	// one has had two runs and is leased; head and tail wait in one lane, later
	// for its time, pinned for an agent, gated for a process.
	leased    picket.Task
	head      picket.Task
	tail      picket.Task
	later     picket.Task
	pinned    picket.Task
	gated     picket.Task
	review    picket.Task
	parked    picket.Task
	closed    picket.Task
	holder    picket.LeaseCredential // of leased
	firstRun  string
	gateRun   string
	agentTask picket.Task // leased to m1, who is registered; m2 was
	answered  string
	key       string // a hand-off that was answered; what manned was acquired with
	moneyFixture
	messageFixture
	sessionFixture
	sessionMoneyFixture
}

func NewInspectFixture(t *testing.T, f *kit.Fixture) *inspectFixture {
	t.Helper()
	s := &inspectFixture{Fixture: f, t: t}
	worker := picket.AcquireRequest{AgentID: "a1"}
	s.leased, s.holder = f.SubmitAndLease(t, picket.TaskSpec{})
	s.firstRun = s.holder.RunID
	_, err := f.Release(f.Ctx, s.holder, picket.Exit{Class: picket.ExitReleased})
	kit.OK(t, err)
	s.holder = f.OpenLease(t, f.AcquireOne(t, worker))
	_, err = f.Renew(f.Ctx, s.holder)
	kit.OK(t, err)
	for range 2 {
		_, err = f.EmitStatus(f.Ctx, s.holder, "", picket.StatusMessage{Message: "half way"})
		kit.OK(t, err)
	}
	f.MustKeepBundle(t, s.holder, kit.BundleOf(picket.BundlePieceSize+5, 'a'))
	f.MustSendPieces(t, s.holder, kit.BundleOf(picket.BundlePieceSize+5, 'b'), 1)

	var h picket.LeaseCredential
	s.closed, h = f.SubmitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	s.review, h = f.SubmitAndLease(t, picket.TaskSpec{})
	_, err = f.Complete(f.Ctx, h, picket.Completion{})
	kit.OK(t, err)
	s.parked, h = f.SubmitAndLease(t, picket.TaskSpec{})
	_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
	kit.OK(t, err)
	s.pinned, h = f.SubmitAndLease(t, picket.TaskSpec{})
	help, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
	kit.OK(t, err)
	s.answered = help.HandoffID
	s.gated, h = s.expireLaunched()
	s.gateRun = h.RunID
	_, err = f.Answer(f.Ctx, kit.Operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	kit.OK(t, err)

	s.agentTask, s.moneyFixture, s.messageFixture = s.addAgents(), s.addMoney(), s.addMessages()
	s.sessionFixture, s.sessionMoneyFixture = s.addSessions(), s.addSessionMoney()
	s.head = f.MustSubmit(t, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"},
		Client: &picket.ClientTask{Role: "coder", ContextID: "c1", MessageID: "m1",
			Push: &picket.PushConfig{ID: "p1", URL: "https://hooks.test/"}},
		Priority: kit.Ptr(9)})
	s.tail = f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
	s.later = f.MustSubmit(t, picket.TaskSpec{Role: "coder", NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	return s
}

// expireLaunched is a task whose run was taken away while its process lives.
func (s *inspectFixture) expireLaunched() (picket.Task, picket.LeaseCredential) {
	task, h := s.SubmitAndLease(s.t, picket.TaskSpec{})
	_, err := s.Renew(s.Ctx, h)
	kit.OK(s.t, err)
	kit.OK(s.t, s.RunEvents(s.Ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	_, err = s.Expire(s.Ctx, kit.Operator, task.TaskID, "r")
	kit.OK(s.t, err)
	return task, h
}

// rawCommand sends a raw command; the first argument after it is a key without prefix.
func (s *inspectFixture) rawCommand(command, key string, args ...any) {
	s.t.Helper()
	kit.OK(s.t, s.Raw.Do(s.Ctx, append([]any{command, "pk:{default}:" + key}, args...)...).Err())
}

func (s *inspectFixture) InspectPass(repair bool) []picket.Violation {
	s.t.Helper()
	found, err := kit.InspectAll(s.Ctx, s.Engine, repair)
	kit.OK(s.t, err)
	return found
}

// about is what an event says of a finding.
func (s *inspectFixture) events(kind string) map[string]int {
	s.t.Helper()
	page, err := s.Events(s.Ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	kit.OK(s.t, err)
	n := map[string]int{}
	for _, ev := range page.Events {
		_, rest, _ := strings.Cut(string(ev.Data), `"kind":"`)
		what, rest, _ := strings.Cut(rest, `","subject":"`)
		subject, _, _ := strings.Cut(rest, `"`)
		n[what+" "+subject]++
		if task, _, _ := strings.Cut(subject, ":"); strings.HasPrefix(subject, "task_") != (ev.TaskID == task) {
			s.t.Errorf("the event about %s names task %q", subject, ev.TaskID)
		}
	}
	return n
}

func kindsOf(found []picket.Violation) []string {
	kinds := map[string]bool{}
	for _, v := range found {
		kinds[v.Kind] = true
	}
	return slices.Sorted(maps.Keys(kinds))
}

func (d damage) name() string { return d.Kind + "/" + strings.ReplaceAll(d.what, " ", "_") }

func (d damage) check(t *testing.T, s *inspectFixture) {
	if found := s.InspectPass(false); len(found) > 0 {
		t.Fatalf("before the damage: %+v", found)
	}
	d.Plant(s)
	expect := append([]string{d.Kind}, d.also...)
	slices.Sort(expect)
	for range 2 { // looking changes nothing
		if got := kindsOf(s.InspectPass(false)); !slices.Equal(got, expect) {
			t.Fatalf("found %v, want %v", got, expect)
		}
	}
	for what, n := range s.events(picket.EventInvariantViolated) {
		if n != 1 {
			t.Errorf("%s was told %d times", what, n)
		}
	}
	mended := s.InspectPass(true)
	repairs := picket.InvariantKinds[d.Kind]
	for _, v := range mended {
		if v.Repaired != picket.InvariantKinds[v.Kind] {
			t.Errorf("repaired: %v, of %+v", v.Repaired, v)
		}
	}
	if !slices.Contains(kindsOf(mended), d.Kind) {
		t.Fatalf("the repair found %+v", mended)
	}
	left := s.InspectPass(true)
	if repairs && len(left) > 0 || !repairs && !slices.Contains(kindsOf(left), d.Kind) {
		t.Fatalf("after the repair: %+v", left)
	}
	told := 0
	for what, n := range s.events(picket.EventInvariantRepaired) {
		if strings.HasPrefix(what, d.Kind+" ") {
			told += n
		}
		if n != 1 {
			t.Errorf("repair %s was told %d times", what, n)
		}
	}
	if repairs == (told == 0) {
		t.Errorf("%d repairs were told", told)
	}
	counted := map[string]int64{}
	for _, c := range s.Violations() {
		counted[fmt.Sprint(c.Kind, " ", c.Repaired)] += c.Count
	}
	if counted[d.Kind+" false"] == 0 || repairs != (counted[d.Kind+" true"] > 0) {
		t.Errorf("counted %v", counted)
	}
	if repairs {
		s.leaseEverything()
	}
}

// leaseEverything takes what can be taken: a repair is worth something when the work
// goes on after it.
func (s *inspectFixture) leaseEverything() {
	s.t.Helper()
	kit.OK(s.t, s.Tick(s.Ctx))
	leases, err := s.Acquire(s.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Role: "coder",
		Max: kit.Ptr(100)})
	kit.OK(s.t, err)
	got := map[string]bool{}
	for _, l := range leases {
		got[l.TaskID] = true
	}
	for _, task := range []picket.Task{s.head, s.tail, s.pinned} {
		if !got[task.TaskID] {
			s.t.Errorf("%s cannot be leased after the repair", task.TaskID)
		}
	}
	if got[s.leased.TaskID] || got[s.closed.TaskID] {
		s.t.Errorf("the repair made a task grantable that is not queued")
	}
	_, err = s.Renew(s.Ctx, s.holder)
	kit.OK(s.t, err)
	s.wantCleanPass()
}

func (s *inspectFixture) wantCleanPass() {
	s.t.Helper()
	if found := s.InspectPass(false); len(found) > 0 {
		s.t.Errorf("after work went on: %+v", found)
	}
}

// openHandoff is the hand-off that parked waits for.
func (s *inspectFixture) openHandoff() string {
	return "handoff_" + currentRun(s.parked, s)[len("run_"):]
}
