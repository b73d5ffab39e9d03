package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// noticeFacts are the members of an event's data that tell people of it.
type noticeFacts struct {
	Task      *picket.TaskFacts `json:"task"`
	AgentName string            `json:"agentName"`
	HandoffID string            `json:"handoffId"`
	Question  string            `json:"question"`
	Options   []string          `json:"options"`
	More      int               `json:"moreOptions"`
	Deadline  *int64            `json:"deadlineSeconds"`
	Summary   string            `json:"summary"`
	First     *bool             `json:"first"`
	Need      budget.Envelope   `json:"need"`
	Left      budget.Envelope   `json:"left"`
	Elapsed   *float64          `json:"elapsedSeconds"`
	Timeout   *float64          `json:"timeoutSeconds"`
}

// lastFacts are those of the last event of a type.
func (f *fixture) lastFacts(t *testing.T, kind string) (facts noticeFacts, bytes int) {
	t.Helper()
	page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{kind}, NewestFirst: true, Limit: 1})
	kit.OK(t, err)
	if len(page.Events) == 0 {
		t.Fatalf("there is no %s", kind)
	}
	kit.OK(t, json.Unmarshal(page.Events[0].Data, &facts))
	return facts, len(page.Events[0].Data)
}

// What events tell people is bounded, however much an operator or an agent wrote, and
// never ends within a character.
func TestEventsCarryBoundedFacts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		labels := map[string]string{}
		for i := range 32 {
			labels[fmt.Sprintf("l%02d%s", i, strings.Repeat("n", 60))] = strings.Repeat("v", 128)
		}
		spec := picket.TaskSpec{Title: "a\n" + strings.Repeat("é", 500), Role: "coder", Labels: labels}
		f.MustSubmit(t, spec)
		h := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: "coder"}))
		options, deadline := []string{}, 5
		for range 20 {
			options = append(options, strings.Repeat("ö", 4000))
		}
		got, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: strings.Repeat("ü\x1b", 8_000),
			Options: options, DeadlineSeconds: &deadline, OnDeadline: picket.OnDeadlineEscalate})
		kit.OK(t, err)
		facts, size := f.lastFacts(t, picket.EventTaskHandoff)
		if facts.Task == nil || facts.HandoffID != got.HandoffID || facts.Deadline == nil || *facts.Deadline != 5 {
			t.Fatalf("%+v", facts)
		}
		task := *facts.Task
		if !strings.HasPrefix(task.Title, "a é") || len(task.Title) > 203 || !utf8.ValidString(task.Title) ||
			!strings.HasSuffix(task.Title, "…") || task.Role != "coder" {
			t.Errorf("the title has %d bytes: %q, role %q", len(task.Title), task.Title, task.Role)
		}
		if n := len(task.Labels); n != 2 { // 512 bytes
			t.Errorf("%d labels: %v", n, task.Labels)
		}
		if len(facts.Question) > 510 || strings.Contains(facts.Question, "\x1b") || len(facts.Options) != 8 ||
			len(facts.Options[7]) > 90 || facts.More != 12 || size > 4096 {
			t.Errorf("%d bytes, a question of %d, %d options and %d more", size, len(facts.Question), len(facts.Options),
				facts.More)
		}
		f.RunReaperFor(t, 6*time.Second)
		facts, _ = f.lastFacts(t, picket.EventHandoffOverdue)
		if facts.Task == nil || len(facts.Options) != 8 || facts.More != 12 || facts.HandoffID != got.HandoffID {
			t.Errorf("%+v", facts)
		}

		many := map[string]string{}
		for i := range 32 {
			many[fmt.Sprintf("l%02d", i)] = "v"
		}
		_, h = f.SubmitAndLease(t, picket.TaskSpec{Title: "short", Labels: many})
		_, err = f.Complete(f.Ctx, h, picket.Completion{Output: picket.RawJSON(`"` + strings.Repeat("o", 9000) + `"`)})
		kit.OK(t, err)
		facts, _ = f.lastFacts(t, picket.EventTaskReview)
		if facts.Task == nil || facts.Task.Title != "short" || len(facts.Task.Labels) != 8 ||
			facts.Task.Labels["l07"] != "v" || len(facts.Summary) > 510 || !strings.HasPrefix(facts.Summary, "ooo") {
			t.Errorf("%+v", facts)
		}
	})
}

// Only events that can be notices carry facts. Events that come often stay small.
func TestFrequentEventsCarryNoFacts(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		hour, elapsed := 3600, 1.0
		_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task", TimeoutSeconds: &hour})
		_, err := f.Report(f.Ctx, h, "r1", picket.Progress{Summary: "half way"})
		kit.OK(t, err)
		kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{
			{Type: picket.EventRunLaunched, Containment: "group"},
			{Type: picket.EventAgentHeartbeat, LauncherFields: picket.LauncherFields{ElapsedSeconds: &elapsed}},
			{Type: picket.EventAgentTimeoutWarning, Containment: "group"},
			{Type: picket.EventAgentTimedOut},
			{Type: picket.EventRunStalled, IdleSeconds: &elapsed},
		}))
		for _, kind := range []string{picket.EventTaskSubmitted, picket.EventTaskLeased, picket.EventTaskProgress,
			picket.EventRunLaunched, picket.EventAgentHeartbeat} {
			if facts, size := f.lastFacts(t, kind); facts.Task != nil || size > 120 {
				t.Errorf("%s carries %d bytes: %+v", kind, size, facts)
			}
		}
		for _, kind := range []string{picket.EventAgentTimeoutWarning, picket.EventAgentTimedOut,
			picket.EventRunStalled} {
			if facts, _ := f.lastFacts(t, kind); facts.Task == nil || facts.Task.Title != "a task" {
				t.Errorf("%s does not tell the task: %+v", kind, facts)
			}
		}
		if facts, _ := f.lastFacts(t, picket.EventRunStalled); facts.Elapsed == nil || facts.Timeout == nil ||
			*facts.Timeout != 3600 {
			t.Errorf("%+v", facts)
		}
	})
}

// A run that is refused again and again is one notice until somebody gives more.
func TestTheFirstRefusalSinceATopUpIsANotice(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task"})
		_, err := f.Funds(f.Ctx, h) // a look before the first refusal hides nothing
		kit.OK(t, err)
		for i, first := range []bool{true, false, true, false} {
			if i == 2 {
				_, err := f.TopUp(f.Ctx, kit.Operator, task.TaskID, picket.TopUp{USD: kit.USD("0.1")})
				kit.OK(t, err)
			}
			_, err := f.Reserve(f.Ctx, h, kit.PaidCall("5"))
			kit.Refused(t, err, picket.CodeBudgetExceeded)
			facts, _ := f.lastFacts(t, picket.EventBudgetExceeded)
			if facts.First == nil || *facts.First != first || facts.Task == nil || facts.Left.USD == 0 {
				t.Errorf("refusal %d: %+v", i, facts)
			}
		}
	})
}

// A hand-off of kind budget names what was refused last, so that a notice can print the
// top-up that is enough.
func TestARequestForMoneyNamesTheAmount(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task"})
		_, err := f.Reserve(f.Ctx, h, kit.PaidCall("5"))
		kit.Refused(t, err, picket.CodeBudgetExceeded)
		_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Kind: picket.HandoffBudget, Question: "More?"})
		kit.OK(t, err)
		facts, _ := f.lastFacts(t, picket.EventTaskHandoff)
		if facts.Need.USD != kit.USD("5") || facts.Left.USD != kit.USD("1") || facts.Question != "More?" {
			t.Errorf("%+v", facts)
		}
	})
}

// What can be a notice names the agent as people call it. The name is bounded, and is left out where
// there is none.
func TestEventsNameTheAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		reg := shortThresholds("a1")
		reg.Name = "Ada " + strings.Repeat("é", 100)
		f.MustRegister(t, reg)
		want := func(kind string, named bool) {
			t.Helper()
			facts, _ := f.lastFacts(t, kind)
			if name := facts.AgentName; strings.HasPrefix(name, "Ada é") != named || len(name) > 83 ||
				!utf8.ValidString(name) {
				t.Errorf("%s names %q", kind, name)
			}
		}
		lease := func(agent string) picket.LeaseCredential {
			t.Helper()
			f.MustSubmit(t, picket.TaskSpec{Title: "a task", Agent: agent})
			leases, err := f.Acquire(f.Ctx, kit.AgentOwner, picket.AcquireRequest{AgentID: agent, PinnedOnly: true})
			kit.OK(t, err)
			return f.OpenLease(t, leases[0])
		}
		for agent, named := range map[string]bool{"a1": true, "unregistered": false} {
			h := lease(agent)
			_, err := f.Reserve(f.Ctx, h, kit.PaidCall("5"))
			kit.Refused(t, err, picket.CodeBudgetExceeded)
			want(picket.EventBudgetExceeded, named)
			kit.OK(t, f.RunEvents(f.Ctx, h, []picket.RunEvent{{Type: picket.EventRunStalled, IdleSeconds: kit.Ptr(9.0)},
				{Type: picket.EventAgentTimedOut}}))
			want(picket.EventRunStalled, named)
			want(picket.EventAgentTimedOut, named)
			_, err = f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
			kit.OK(t, err)
			want(picket.EventTaskHandoff, named)
			_, err = f.Complete(f.Ctx, lease(agent), picket.Completion{})
			kit.OK(t, err)
			want(picket.EventTaskReview, named)
		}
		f.tickFor(t, 3*time.Second)
		_, err := f.JudgeAgents(f.Ctx, 10)
		kit.OK(t, err)
		want(picket.EventAgentLifecycle, true)
	})
}
