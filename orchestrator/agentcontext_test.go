package orchestrator_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// mustContext reads a context twice, and checks that this changes nothing.
func (f *fixture) mustContext(t *testing.T, held picket.LeaseCredential) picket.AgentContext {
	t.Helper()
	before := f.rawStore(t)
	c, err := f.AgentContext(f.Ctx, held)
	kit.OK(t, err)
	after := f.rawStore(t)
	if before != after {
		t.Errorf("the look has changed the store:\n%s", kit.DiffLines(before, after))
	}
	return c
}

// storeClocks are the lines that pass with time.
var storeClocks = regexp.MustCompile(`(?m)^meta (now|raw) .*$`)

// rawStore is everything in the store as it is, but clocks.
func (f *fixture) rawStore(t *testing.T) string {
	t.Helper()
	var lines []string
	keys := f.Raw.Scan(f.Ctx, 0, "pk:{default}:*", 1000).Iterator()
	for keys.Next(f.Ctx) {
		key, name := keys.Val(), strings.TrimPrefix(keys.Val(), "pk:{default}:")
		kind, err := f.Raw.Type(f.Ctx, key).Result()
		kit.OK(t, err)
		switch kind {
		case "hash":
			fields, err := f.Raw.HGetAll(f.Ctx, key).Result()
			kit.OK(t, err)
			for field, value := range fields {
				lines = append(lines, name+" "+field+" "+value)
			}
		case "stream":
			entries, err := f.Raw.XRange(f.Ctx, key, "-", "+").Result()
			kit.OK(t, err)
			lines = append(lines, fmt.Sprint(name, entries))
		case "zset":
			members, err := f.Raw.ZRangeWithScores(f.Ctx, key, 0, -1).Result()
			kit.OK(t, err)
			lines = append(lines, fmt.Sprint(name, members))
		case "list":
			items, err := f.Raw.LRange(f.Ctx, key, 0, -1).Result()
			kit.OK(t, err)
			lines = append(lines, fmt.Sprint(name, items))
		case "string":
			value, err := f.Raw.Get(f.Ctx, key).Result()
			kit.OK(t, err)
			lines = append(lines, name+" "+value)
		default:
			t.Fatalf("%s is a %s", key, kind)
		}
	}
	kit.OK(t, keys.Err())
	slices.Sort(lines)
	return storeClocks.ReplaceAllString(strings.Join(lines, "\n"), "")
}

// claimable are the rows of claimable work, as "role needs agent tasks".
func claimable(c picket.AgentContext) (rows []string) {
	for _, l := range c.Claimable {
		rows = append(rows, fmt.Sprintf("%s %s %s %d", l.Role, strings.Join(l.Needs, ","), l.Agent, l.Tasks))
	}
	slices.Sort(rows)
	return rows
}

// A session sees when a person could wake it next. Looking changes nothing.
func TestTheContextHasTheNextAllowedWake(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		id, n := fx.wakeable(t)
		f := &sessionFixture{fx, n, id}
		next := func(held picket.LeaseCredential) *picket.Instant {
			t.Helper()
			return f.mustContext(t, held).NextAllowedWake
		}
		_, held := f.capable(t)
		decided := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonSessionPromptActive)
		if at := next(held); at == nil || *at < decided.At || at.Time().Sub(decided.At.Time()) > time.Minute {
			t.Errorf("the next wake is allowed at %v, the time is %v", at, decided.At)
		}
		kit.OK(t, fx.result(n, held.PromptID, picket.PromptAnswered, ""))
		woken, err := f.wakeWith(t, n, picket.PromptAccepted, "")
		kit.OK(t, err)
		kit.OK(t, fx.result(n, woken.WakeID, picket.PromptAnswered, ""))
		early := f.wantWake(t, picket.WakeRequest{DryRun: true}, picket.WakeReasonCooldownActive)
		_, held = f.capable(t)
		if at := next(held); at == nil || max(*at-*early.NextAllowedAt, *early.NextAllowedAt-*at) > 1000 {
			t.Errorf("the next wake is allowed at %v, a wake says %v", at, early.NextAllowedAt)
		}
		f.mustWritePolicy(t, "ann", "---\nenabled: false\n---\n")
		if at := next(held); at != nil {
			t.Errorf("a policy that is turned off allows a wake at %v", at)
		}
		f.mustWritePolicy(t, "ann", wakePolicyText)
		f.MustSubmit(t, picket.TaskSpec{Agent: "a1"})
		run := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"}))
		if at := next(run); at == nil {
			t.Error("a run of the agent is not told when its session may be woken")
		}
		kit.OK(t, f.StopSession(f.Ctx, kit.Operator, id))
		if at := next(held); at != nil {
			t.Errorf("a session that is being stopped can be woken at %v", at)
		}
	})
}

// A session sees itself, what its agent holds, what waits for it, and what it could take.
func TestTheContextOfASession(t *testing.T) {
	onBothStores(t, func(t *testing.T, fx *fixture) {
		a, err := fx.Register(fx.Ctx, kit.Operator, picket.Registration{AgentID: "a1", RoleID: "coder", Name: "Ann",
			Capabilities: []string{"go", "sql"}, Metadata: picket.RawJSON(`{"agent_name":"ann"}`),
			Capacity: &picket.DeclaredCapacity{MaxConcurrentTasks: kit.Ptr(3)}})
		kit.OK(t, err)
		f := &sessionFixture{fx, a.Incarnation, newSessionID()}
		kit.OK(t, f.report("a1", f.n, idleSession(f.id)))
		_, held := f.capable(t)
		lease := f.MustSubmit(t, picket.TaskSpec{Title: "held", Role: "coder", Needs: []string{"go"}})
		_, err = f.Acquire(f.Ctx, kit.Operator, picket.AcquireRequest{AgentID: "a1", Role: "coder",
			Capabilities: []string{"go"}})
		kit.OK(t, err)
		for _, spec := range []picket.TaskSpec{{Role: "coder"}, {Role: "coder", Needs: []string{"go"}},
			{Role: "coder", Needs: []string{"go"}}, {Role: "coder", Needs: []string{"rust"}}, {Role: "writer"},
			{Agent: "a1"}, {Agent: "a2"}} {
			spec.Title = "waits"
			f.MustSubmit(t, spec)
		}
		f.sessionAgent(t, "a2")
		_, other := fx.capableAs(t, "a2")
		for _, body := range []string{"one", "two"} {
			f.mustTell(t, "a1", body)
			_, err = f.SendMessage(f.Ctx, other, "", toAgent("a1", body))
			kit.OK(t, err)
		}
		c := f.mustContext(t, held)
		self := c.Self
		if self.AgentID != "a1" || self.AgentName != "ann" || self.Name != "Ann" || self.Role != "coder" ||
			self.Status != picket.AgentActive || !slices.Equal(self.Capabilities, []string{"go", "sql"}) ||
			*self.Limits.MaxConcurrentTasks != 3 || self.Limits.MaxSendsPerMinute != picket.MaxSendsPerMinute {
			t.Errorf("%+v", self)
		}
		if s := c.Session; s == nil || s.SessionID != f.id || s.PromptID != held.PromptID || s.RemainingMs <= 0 ||
			s.Health.Health != picket.HealthHealthy {
			t.Errorf("%+v", s)
		}
		if len(c.Tasks) != 1 || c.TasksHeld != 1 || c.Tasks[0].TaskID != lease.TaskID || c.Tasks[0].Title != "held" ||
			c.Tasks[0].Role != "coder" || !slices.Equal(c.Tasks[0].Needs, []string{"go"}) ||
			c.Tasks[0].RemainingMs <= 0 {
			t.Errorf("%+v", c.Tasks)
		}
		if want := []picket.UnreadSender{{Kind: "person", ID: kit.OtherOperator.Actor, Messages: 2},
			{Kind: "agent", ID: "a2", Messages: 2}}; c.Unread.Messages != 4 || !slices.Equal(c.Unread.Senders, want) {
			t.Errorf("%+v", c.Unread)
		}
		if got := claimable(c); !slices.Equal(got, []string{"  a1 1", "coder   1", "coder go  2"}) || c.MoreClaimable {
			t.Errorf("%q", got)
		}
		if c.Budget == nil || c.Budget.USD != kit.USD("0.1") || c.Budget.Tokens != nil || c.NextAllowedWake != nil {
			t.Errorf("%+v", c)
		}
		if text, err := json.Marshal(c); err != nil || strings.Contains(string(text), `"one"`) {
			t.Errorf("%s %v", text, err)
		}
	})
}

// capableAs gives an agent a session with a capability.
func (f *fixture) capableAs(t *testing.T, id string) (picket.Secret, picket.LeaseCredential) {
	t.Helper()
	a, _, err := f.Agent(f.Ctx, id)
	kit.OK(t, err)
	session := newSessionID()
	kit.OK(t, f.report(id, a.Incarnation, idleSession(session)))
	p, err := f.PromptSession(f.Ctx, kit.Operator, session, picket.PromptRequest{Text: "hello"})
	kit.OK(t, err)
	secret := picket.NewSessionCapability(f.Namespace(), p.PromptID)
	held, _ := picket.ParseSessionCapability(secret.Reveal())
	kit.OK(t, kit.SendResult(f.Ctx, f, kit.Operator, id, p.PromptID, picket.CommandResult{Incarnation: a.Incarnation,
		State: picket.PromptAccepted, CapabilityHash: held.Secret}))
	return secret, held
}

// A run sees what its task has left, and the one session of its agent.
func TestTheContextOfARun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task := f.MustSubmit(t, picket.TaskSpec{Title: "alone", Role: "coder"})
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "stray", Role: "coder"}))
		f.MustSubmit(t, picket.TaskSpec{Role: "coder"})
		c := f.mustContext(t, h)
		if c.Self.AgentID != "stray" || c.Self.Status != "" || c.Session != nil || len(c.Claimable) != 0 ||
			c.TasksHeld != 1 || len(c.Tasks) != 1 || c.Tasks[0].TaskID != task.TaskID || c.Budget == nil ||
			*c.Budget.Tokens != task.BudgetEnvelope.Tokens || c.Budget.USD != task.BudgetEnvelope.USD {
			t.Errorf("%+v", c)
		}
		// A run that names a registered agent as its own learns nothing of it.
		n := f.sessionAgent(t, "stray")
		kit.OK(t, f.report("stray", n, idleSession(newSessionID())))
		f.mustTell(t, "stray", "private")
		if c := f.mustContext(t, h); c.Unread.Messages != 0 || c.Session != nil || c.Self.Role != "" {
			t.Errorf("%+v", c)
		}
		_, err := f.AgentContext(f.Ctx, picket.LeaseCredential{})
		kit.Refused(t, err, picket.CodeUnauthenticated)

		one, two := newSessionID(), newSessionID()
		n = f.sessionAgent(t, "a1")
		f.MustSubmit(t, picket.TaskSpec{Agent: "a1"})
		h = f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"}))
		if c := f.mustContext(t, h); c.Session != nil || len(c.Claimable) != 1 || c.Self.Role != "coder" {
			t.Errorf("%+v", c)
		}
		kit.OK(t, f.report("a1", n, idleSession(one)))
		if c := f.mustContext(t, h); c.Session == nil || c.Session.SessionID != one || c.Session.PromptID != "" {
			t.Errorf("%+v", c.Session)
		}
		kit.OK(t, f.report("a1", n, idleSession(one), idleSession(two)))
		if c := f.mustContext(t, h); c.Session != nil {
			t.Errorf("%+v", c.Session)
		}
	})
}

// A context has a bounded size.
func TestContextsAreBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		caps := strings.Split("a b c d e f g h i j k", " ")
		var pairs [][]string
		for i := range caps {
			for j := range i {
				pairs = append(pairs, []string{caps[j], caps[i]})
			}
		}
		_, err := f.Register(f.Ctx, kit.Operator, picket.Registration{AgentID: "a1", Capabilities: caps})
		kit.OK(t, err)
		_, held := f.capableAs(t, "a1")
		for _, needs := range pairs[:picket.MaxContextLanes] {
			f.MustSubmit(t, picket.TaskSpec{Needs: needs})
		}
		for i := range picket.MaxContextSenders + 1 {
			_, err := f.Tell(f.Ctx, picket.Caller{Actor: fmt.Sprint("key_", i), Operator: true}, "a1",
				picket.MessageRequest{Body: "x"})
			kit.OK(t, err)
		}
		c := f.mustContext(t, held)
		if len(c.Claimable) != picket.MaxContextLanes || c.MoreClaimable ||
			len(c.Unread.Senders) != picket.MaxContextSenders || c.Unread.Messages != picket.MaxContextSenders+1 {
			t.Errorf("%d lanes, %d senders, %d messages", len(c.Claimable), len(c.Unread.Senders), c.Unread.Messages)
		}
		f.MustSubmit(t, picket.TaskSpec{Needs: pairs[picket.MaxContextLanes]})
		if c := f.mustContext(t, held); len(c.Claimable) != picket.MaxContextLanes || !c.MoreClaimable {
			t.Errorf("%d lanes, more %v", len(c.Claimable), c.MoreClaimable)
		}
	})
}
