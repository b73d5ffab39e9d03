package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// Hand-offs of one instant are told apart by their ids, and the page goes on
// where it ended even when that row was decided meanwhile.
func TestHandoffsArePaged(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		all := f.OpenHandoffs(t, 13)
		for _, hid := range all[3:11] { // of one instant, on a real store as well
			f.SetScore(t, "handoffs:open", hid, 1)
		}
		want := slices.Concat(all[3:11], all[:3], all[11:])
		slices.Sort(want[:8])
		if got := f.HandoffPages(t, 3, nil); !slices.Equal(got, want) {
			t.Fatalf("pages show\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		got := f.HandoffPages(t, 3, func(seen []string) { // the last row is decided before the next page is read
			_, err := f.Answer(f.Ctx, kit.Operator, seen[len(seen)-1],
				picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
			kit.OK(t, err)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("pages show\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		page, err := f.Handoffs(f.Ctx, picket.HandoffQuery{State: picket.HandoffAnswered, Limit: 2})
		kit.OK(t, err)
		if page.Total != 4 || len(page.Handoffs) != 2 || page.NextCursor == nil {
			t.Fatalf("answered %+v", page)
		}
		for _, q := range []picket.HandoffQuery{{Limit: 201}, {Limit: -1}, {Cursor: "1"}, {Cursor: "1.handoff_x"},
			{State: "gone"}} {
			_, err := f.Handoffs(f.Ctx, q)
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}

func TestReviewsArePagedAndFiltered(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var coder, labelled, all []string
		for i := range 9 {
			spec := picket.TaskSpec{}
			if i%2 == 0 {
				spec.Role = "coder"
			}
			if i%3 == 0 {
				spec.Labels = map[string]string{"team": "a"}
			}
			id := f.CompleteTasks(t, 1, spec)[0]
			all = append(all, id)
			if i%2 == 0 {
				coder = append(coder, id)
			}
			if i%3 == 0 && i%2 == 0 {
				labelled = append(labelled, id)
			}
		}
		f.MustSubmit(t, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}}) // not in review
		for _, c := range []struct {
			q    picket.ReviewQuery
			want []string
		}{
			{picket.ReviewQuery{Limit: 2}, all},
			{picket.ReviewQuery{Limit: 2, Role: "coder"}, coder},
			{picket.ReviewQuery{Limit: 1, Role: "coder", Labels: map[string]string{"team": "a"}}, labelled},
			{picket.ReviewQuery{Role: "nobody"}, nil},
			{picket.ReviewQuery{Parent: all[0]}, nil},
		} {
			if got := f.ReviewPages(t, c.q); !slices.Equal(got, c.want) {
				t.Errorf("%+v shows %v, want %v", c.q, got, c.want)
			}
		}
		page, err := f.Reviews(f.Ctx, picket.ReviewQuery{Role: "coder", Limit: 1})
		kit.OK(t, err)
		if r := page.Reviews[0]; page.Total != 9 || r.Role != "coder" || r.Labels["team"] != "a" ||
			r.TaskID != coder[0] {
			t.Errorf("row %+v of %d", r, page.Total)
		}
		for _, q := range []picket.ReviewQuery{{Limit: 201}, {Cursor: "x"}, {Cursor: "-1"}, {Role: "a b"},
			{Parent: "p"}, {Labels: map[string]string{"": ""}}} {
			_, err := f.Reviews(f.Ctx, q)
			kit.Refused(t, err, picket.CodeValidation)
		}
	})
}

// The lists tell what the run has left behind, cut to what a list shows.
func TestListsShowTheWorkOfARun(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		var ev picket.Evidence
		for i := range 60 {
			ev.Files = append(ev.Files, picket.ChangedFile{Path: fmt.Sprintf("f%d.go", i)})
		}
		ev.Branch, ev.Diffstat = "picket/one", strings.Repeat("ä", 4<<10)
		_, h := f.SubmitAndLease(t, picket.TaskSpec{})
		kit.OK(t, f.RunEvidence(f.Ctx, h, ev))
		asked, err := f.RequestHelp(f.Ctx, h, picket.HelpRequest{Question: "?"})
		kit.OK(t, err)
		got, err := f.Handoff(f.Ctx, asked.HandoffID)
		kit.OK(t, err)
		task, h2 := f.SubmitAndLease(t, picket.TaskSpec{})
		kit.OK(t, f.RunEvidence(f.Ctx, h2, ev))
		_, err = f.Complete(f.Ctx, h2, picket.Completion{Output: picket.RawJSON(`1`)})
		kit.OK(t, err)
		page, err := f.Reviews(f.Ctx, picket.ReviewQuery{})
		kit.OK(t, err)
		for _, w := range []picket.WorkSummary{got.Work, page.Reviews[0].Work} {
			if w.Branch != "picket/one" || len(w.Files) != 50 || w.Files[49] != "f49.go" || len(w.Diffstat) != 4<<10 {
				t.Errorf("work of %s: %+v", task.TaskID, w)
			}
		}
	})
}
