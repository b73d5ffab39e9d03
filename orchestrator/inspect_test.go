package orchestrator_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
)

// checkInvariants runs a whole pass of the invariant scanner, which may find nothing.
// Every random test ends with it, so the scanner raises no false alarms.
func checkInvariants(t interface {
	Helper()
	Fatalf(string, ...any)
}, e *orchestrator.Engine) {
	t.Helper()
	found, err := inspectAll(context.Background(), e, false)
	if err != nil {
		t.Fatalf("inspect: %v", err)
	}
	if len(found) > 0 {
		t.Fatalf("%d invariants are violated, the first: %+v", len(found), found[0])
	}
}

// inspectAll inspects a namespace from its beginning to its end.
func inspectAll(ctx context.Context, e *orchestrator.Engine, repair bool) ([]picket.Violation, error) {
	var all []picket.Violation
	for cursor := ""; ; {
		part, err := e.Inspect(ctx, operator, picket.InspectRequest{Repair: repair, Cursor: cursor})
		if err != nil {
			return all, err
		}
		all = append(all, part.Violations...)
		if cursor = part.Next; cursor == "" {
			return all, nil
		}
	}
}

// inspectFixture is a namespace with a task in every place a task can be in.
type inspectFixture struct {
	*fixture
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
}

func newInspectFixture(t *testing.T, f *fixture) *inspectFixture {
	t.Helper()
	s := &inspectFixture{fixture: f, t: t}
	worker := picket.AcquireRequest{AgentID: "a1"}
	s.leased, s.holder = f.submitAndLease(t, picket.TaskSpec{})
	s.firstRun = s.holder.RunID
	_, err := f.Release(f.ctx, s.holder, picket.Exit{Class: picket.ExitReleased})
	ok(t, err)
	s.holder = f.openLease(t, f.acquireOne(t, worker))
	_, err = f.Renew(f.ctx, s.holder)
	ok(t, err)

	var h picket.LeaseCredential
	s.closed, h = f.submitAndLease(t, picket.TaskSpec{Review: picket.ReviewByNone})
	_, err = f.Complete(f.ctx, h, picket.Completion{})
	ok(t, err)
	s.review, h = f.submitAndLease(t, picket.TaskSpec{})
	_, err = f.Complete(f.ctx, h, picket.Completion{})
	ok(t, err)
	s.parked, h = f.submitAndLease(t, picket.TaskSpec{})
	_, err = f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
	ok(t, err)
	s.pinned, h = f.submitAndLease(t, picket.TaskSpec{})
	help, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
	ok(t, err)
	s.answered = help.HandoffID
	s.gated, h = s.expireLaunched()
	s.gateRun = h.RunID
	_, err = f.Answer(f.ctx, operator, help.HandoffID, picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
	ok(t, err)

	s.agentTask, s.moneyFixture = s.addAgents(), s.addMoney()
	s.head = f.mustSubmit(t, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}, Priority: ptr(9)})
	s.tail = f.mustSubmit(t, picket.TaskSpec{Role: "coder"})
	s.later = f.mustSubmit(t, picket.TaskSpec{Role: "coder", NotBefore: picket.InstantOf(time.Now().Add(time.Hour))})
	return s
}

// expireLaunched is a task whose run was taken away while its process lives.
func (s *inspectFixture) expireLaunched() (picket.Task, picket.LeaseCredential) {
	task, h := s.submitAndLease(s.t, picket.TaskSpec{})
	_, err := s.Renew(s.ctx, h)
	ok(s.t, err)
	ok(s.t, s.RunEvents(s.ctx, h, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
	_, err = s.Expire(s.ctx, operator, task.TaskID, "r")
	ok(s.t, err)
	return task, h
}

// rawCommand sends a raw command; the first argument after it is a key without prefix.
func (s *inspectFixture) rawCommand(command, key string, args ...any) {
	s.t.Helper()
	ok(s.t, s.raw.Do(s.ctx, append([]any{command, "pk:{default}:" + key}, args...)...).Err())
}

func (s *inspectFixture) inspectPass(repair bool) []picket.Violation {
	s.t.Helper()
	found, err := inspectAll(s.ctx, s.Engine, repair)
	ok(s.t, err)
	return found
}

// about is what an event says of a finding.
func (s *inspectFixture) events(kind string) map[string]int {
	s.t.Helper()
	page, err := s.Events(s.ctx, picket.EventQuery{Types: []string{kind}, Limit: 1000})
	ok(s.t, err)
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

// Every kind of damage is found, told once, and repaired where that is safe;
// then the next pass finds nothing.
func TestDamageIsFoundAndRepaired(t *testing.T) {
	rig.SkipShort(t)
	for _, d := range allDamages() {
		t.Run(d.name(), func(t *testing.T) {
			onBothStores(t, func(t *testing.T, f *fixture) { d.check(t, newInspectFixture(t, f)) })
		})
	}
	covered := map[string]bool{}
	for _, d := range allDamages() {
		covered[d.kind] = true
	}
	for kind := range picket.InvariantKinds {
		if !covered[kind] {
			t.Errorf("no damage of kind %s was planted", kind)
		}
	}
}

func (d damage) name() string { return d.kind + "/" + strings.ReplaceAll(d.what, " ", "_") }

func (d damage) check(t *testing.T, s *inspectFixture) {
	if found := s.inspectPass(false); len(found) > 0 {
		t.Fatalf("before the damage: %+v", found)
	}
	d.plant(s)
	expect := append([]string{d.kind}, d.also...)
	slices.Sort(expect)
	for range 2 { // looking changes nothing
		if got := kindsOf(s.inspectPass(false)); !slices.Equal(got, expect) {
			t.Fatalf("found %v, want %v", got, expect)
		}
	}
	for what, n := range s.events(picket.EventInvariantViolated) {
		if n != 1 {
			t.Errorf("%s was told %d times", what, n)
		}
	}
	mended := s.inspectPass(true)
	repairs := picket.InvariantKinds[d.kind]
	for _, v := range mended {
		if v.Repaired != picket.InvariantKinds[v.Kind] {
			t.Errorf("repaired: %v, of %+v", v.Repaired, v)
		}
	}
	if !slices.Contains(kindsOf(mended), d.kind) {
		t.Fatalf("the repair found %+v", mended)
	}
	left := s.inspectPass(true)
	if repairs && len(left) > 0 || !repairs && !slices.Contains(kindsOf(left), d.kind) {
		t.Fatalf("after the repair: %+v", left)
	}
	told := 0
	for what, n := range s.events(picket.EventInvariantRepaired) {
		if strings.HasPrefix(what, d.kind+" ") {
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
	if counted[d.kind+" false"] == 0 || repairs != (counted[d.kind+" true"] > 0) {
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
	ok(s.t, s.Tick(s.ctx))
	leases, err := s.Acquire(s.ctx, operator, picket.AcquireRequest{AgentID: "a1", Role: "coder", Max: ptr(100)})
	ok(s.t, err)
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
	_, err = s.Renew(s.ctx, s.holder)
	ok(s.t, err)
	s.wantCleanPass()
}

func (s *inspectFixture) wantCleanPass() {
	s.t.Helper()
	if found := s.inspectPass(false); len(found) > 0 {
		s.t.Errorf("after work went on: %+v", found)
	}
}

// A lost deadline comes back short: the holder who lives renews it, the lease
// of one who does not ends.
func TestALostDeadlineComesBackShort(t *testing.T) {
	rig.SkipShort(t)
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, lives := f.submitAndLease(t, picket.TaskSpec{})
		dead, died := f.submitAndLease(t, picket.TaskSpec{})
		for _, h := range []picket.LeaseCredential{lives, died} {
			_, err := f.Renew(f.ctx, h)
			ok(t, err)
			ok(t, f.raw.ZRem(f.ctx, "pk:{default}:deadlines", h.TaskID).Err())
		}
		f.runReaperFor(t, 6*time.Minute)
		f.wantState(t, dead.TaskID, picket.TaskLeased) // for ever except for the repair
		ok(t, f.InspectNext(f.ctx, 100))
		r, err := f.Renew(f.ctx, lives)
		ok(t, err)
		if r.LeaseTTLMs != 300_000 {
			t.Fatalf("renewed for %d ms", r.LeaseTTLMs)
		}
		f.runReaperFor(t, 31*time.Second)
		f.wantState(t, dead.TaskID, picket.TaskQueued)
		f.wantState(t, lives.TaskID, picket.TaskLeased)
		_, err = f.Renew(f.ctx, died)
		refused(t, err, picket.CodeLeaseExpired)
		checkInvariants(t, f.Engine)
	})
}

// Inspectors side by side repair each thing once.
func TestInspectorsSideBySideRepairOnce(t *testing.T) {
	s := rig.Real(t)
	f := openFixture(t, s)
	defer f.close()
	const tasks = 300
	for range tasks {
		f.mustSubmit(t, picket.TaskSpec{})
	}
	for range 3 {
		_, err := f.Acquire(f.ctx, operator, picket.AcquireRequest{AgentID: "a1", Max: ptr(100)})
		ok(t, err)
	}
	ok(t, f.raw.Del(f.ctx, "pk:{default}:deadlines").Err())
	type answer struct {
		found []picket.Violation
		err   error
	}
	answers := make(chan answer)
	for range 4 {
		other := openFixture(t, s)
		defer other.close()
		go func() {
			found, err := inspectAll(f.ctx, other.Engine, true)
			answers <- answer{found, err}
		}()
	}
	repaired := 0
	for range 4 {
		a := <-answers
		ok(t, a.err)
		repaired += len(a.found)
	}
	page, err := f.Events(f.ctx, picket.EventQuery{Types: []string{picket.EventInvariantRepaired}, Limit: 1000})
	ok(t, err)
	if repaired != tasks || len(page.Events) != tasks {
		t.Errorf("%d repairs and %d events for %d lost deadlines", repaired, len(page.Events), tasks)
	}
	checkInvariants(t, f.Engine)
}

// inspect goes over the store again and again while a crowd works on it:
// whatever it finds is a bug, in the engine or in the scanner.
func (c *crowd) inspect(ctx context.Context, e *orchestrator.Engine) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		found, err := inspectAll(ctx, e, false)
		if ctx.Err() != nil {
			return
		}
		if err != nil || len(found) > 0 {
			c.t.Errorf("inspect: %v, %+v", err, found)
			return
		}
		c.mu.Lock()
		c.passes++
		c.mu.Unlock()
	}
}
