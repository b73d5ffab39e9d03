package orchestrator_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// A task names the person who should take its hand-offs and reviews. The queues show and
// filter by it, and a claim may name another person. Nobody gets or loses a right by it.
func TestAnAssigneeIsAHint(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		ask := func(assignee string) string {
			_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task", Assignee: assignee})
			got, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
			kit.OK(t, err)
			return got.HandoffID
		}
		listed := func(assignee string) (ids []string) {
			page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{Assignee: assignee})
			kit.OK(t, err)
			for _, h := range page.Handoffs {
				if assignee != "" && h.Assignee != assignee {
					t.Errorf("%s is for %q, want %q", h.HandoffID, h.Assignee, assignee)
				}
				ids = append(ids, h.HandoffID)
			}
			return ids
		}
		mine, other, free := ask("ada"), ask("ben"), ask("")
		if got := listed(""); !slices.Equal(got, []string{mine, other, free}) {
			t.Errorf("all: %v", got)
		}
		if got := listed("ada"); !slices.Equal(got, []string{mine}) {
			t.Errorf("ada's: %v", got)
		}
		if facts, _ := f.lastFacts(t, picket.EventTaskHandoff); facts.Task.Assignee != "" {
			t.Errorf("%+v", facts.Task)
		}

		// An operator claims for another person. The log names both.
		h, err := f.Claim(f.Ctx, kit.Operator, other, picket.ClaimRequest{Assignee: "ada"})
		kit.OK(t, err)
		if h.Assignee != "ada" || h.ClaimedBy != kit.Operator.Actor {
			t.Errorf("claimed by %s for %s", h.ClaimedBy, h.Assignee)
		}
		page, err := f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventHandoffClaimed}})
		kit.OK(t, err)
		var data struct {
			Before, After struct{ ClaimedBy, Assignee string }
		}
		kit.OK(t, json.Unmarshal(page.Events[0].Data, &data, json.MatchCaseInsensitiveNames(true)))
		if page.Events[0].Actor != kit.Operator.Actor || data.Before.Assignee != "ben" ||
			data.After.Assignee != "ada" {
			t.Errorf("%s %s", page.Events[0].Actor, page.Events[0].Data)
		}
		if got := listed("ada"); !slices.Equal(got, []string{mine, other}) {
			t.Errorf("ada's: %v", got)
		}
		if got := listed("ben"); !slices.Equal(got, nil) {
			t.Errorf("ben's: %v", got)
		}
		h, err = f.Claim(f.Ctx, kit.Operator, mine, picket.ClaimRequest{})
		kit.OK(t, err)
		h, err = f.Claim(f.Ctx, kit.Operator, mine, picket.ClaimRequest{Assignee: "cleo"})
		kit.OK(t, err)
		if h.Assignee != "cleo" {
			t.Errorf("claimed for %q", h.Assignee)
		}
		h, err = f.Claim(f.Ctx, kit.Operator, mine, picket.ClaimRequest{Assignee: "ada"})
		kit.OK(t, err)
		// The same claim again changes nothing; a claim without a name leaves the name.
		for range 2 {
			h, err = f.Claim(f.Ctx, kit.Operator, other, picket.ClaimRequest{})
			kit.OK(t, err)
		}
		page, err = f.Events(f.Ctx, picket.EventQuery{Types: []string{picket.EventHandoffClaimed}})
		kit.OK(t, err)
		if len(page.Events) != 4 || h.Assignee != "ada" {
			t.Errorf("%d events, for %q", len(page.Events), h.Assignee)
		}
		// Anybody may decide.
		_, err = f.Answer(f.Ctx, picket.Caller{Actor: "key_other"}, other,
			picket.AnswerRequest{Answer: picket.RawJSON(`"x"`)})
		kit.OK(t, err)
	})
}

// Subtasks, repairs and repeats have the assignee of the task that they come from, and the
// review queue and the list of tasks filter by it.
func TestAnAssigneeIsInherited(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		task, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task", Assignee: "Ada Ö."})
		sub, err := f.Delegate(f.Ctx, h, "k1", picket.Subtask{Title: "a part"})
		kit.OK(t, err)
		child, err := f.Task(f.Ctx, sub.TaskID)
		kit.OK(t, err)
		if task.Assignee != "Ada Ö." || child.Assignee != "Ada Ö." {
			t.Errorf("the task is for %q, its subtask for %q", task.Assignee, child.Assignee)
		}
		_, err = f.Cancel(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		again, err := f.Retry(f.Ctx, kit.Operator, task.TaskID, "r")
		kit.OK(t, err)
		held := f.OpenLease(t, f.AcquireOne(t, picket.AcquireRequest{AgentID: "a1"}))
		_, err = f.Complete(f.Ctx, held, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		for who, want := range map[string]int{"Ada Ö.": 1, "ben": 0} {
			page, err := f.Reviews(f.Ctx, picket.ReviewQuery{Assignee: who})
			kit.OK(t, err)
			if len(page.Reviews) != want || want == 1 && page.Reviews[0].Assignee != who {
				t.Errorf("%s has %+v", who, page.Reviews)
			}
		}
		tasks, err := f.Tasks(f.Ctx, picket.TaskQuery{Assignee: "Ada Ö."})
		kit.OK(t, err)
		if len(tasks.Tasks) != 3 || again.Assignee != "Ada Ö." {
			t.Errorf("%d tasks; the repeat is for %q", len(tasks.Tasks), again.Assignee)
		}
	})
}

// A page of one person's hand-offs looks at 500 of them and says where to go on.
func TestAPageOfAnAssigneeIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for i := range 502 {
			who := ""
			if i == 501 {
				who = "ada"
			}
			_, h := f.SubmitAndLease(t, picket.TaskSpec{Title: "a task", Assignee: who})
			_, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "Which?"})
			kit.OK(t, err)
		}
		page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{Assignee: "ada"})
		kit.OK(t, err)
		if len(page.Handoffs) != 0 || page.NextCursor == nil {
			t.Fatalf("%d rows, cursor %v", len(page.Handoffs), page.NextCursor)
		}
		page, err = f.Handoffs(f.Ctx, picket.HandoffQuery{Assignee: "ada", Cursor: *page.NextCursor})
		kit.OK(t, err)
		if len(page.Handoffs) != 1 || page.NextCursor != nil {
			t.Fatalf("%d rows, cursor %v", len(page.Handoffs), page.NextCursor)
		}
	})
}

func TestAssigneesAreChecked(t *testing.T) {
	for name, ok := range map[string]bool{"": true, "ada": true, "ada@example.com": true, "Ada Lovelace": true,
		strings.Repeat("a", 64): true, strings.Repeat("a", 65): false, " ada": false, "a{b}": false, "a\nb": false,
		"a\x1bb": false, "a\u202eb": false, "a\xffb": false} {
		if err := picket.CheckAssignee("/assignee", name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
