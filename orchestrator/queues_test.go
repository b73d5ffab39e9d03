package orchestrator_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// openHandoffs parks n tasks, and returns the ids of their hand-offs.
func (f *fixture) openHandoffs(t *testing.T, n int) (ids []string) {
	t.Helper()
	for range n {
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		got, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "which?"})
		ok(t, err)
		ids = append(ids, got.HandoffID)
	}
	return ids
}

// completeTasks hands in n tasks that people review.
func (f *fixture) completeTasks(t *testing.T, n int, spec picket.TaskSpec) (ids []string) {
	t.Helper()
	for range n {
		task := f.mustSubmit(t, spec)
		_, err := f.Complete(f.ctx,
			f.openLease(t, f.acquireOne(t, picket.AcquireRequest{AgentID: "a1", Role: spec.Role})),
			picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		ids = append(ids, task.TaskID)
	}
	return ids
}

// handoffPages reads all pages; between is called after each one.
func (f *fixture) handoffPages(t *testing.T, limit int, between func(seen []string)) (seen []string) {
	t.Helper()
	q := picket.HandoffQuery{Limit: limit}
	for {
		page, err := f.Handoffs(f.ctx, q)
		ok(t, err)
		if len(page.Handoffs) > limit {
			t.Fatalf("%d rows, asked for %d", len(page.Handoffs), limit)
		}
		for _, h := range page.Handoffs {
			seen = append(seen, h.HandoffID)
		}
		if page.NextCursor == nil {
			return seen
		}
		if between != nil {
			between(seen)
		}
		q.Cursor = *page.NextCursor
	}
}

func (f *fixture) reviewPages(t *testing.T, q picket.ReviewQuery) (seen []string) {
	t.Helper()
	for {
		page, err := f.Reviews(f.ctx, q)
		ok(t, err)
		for _, r := range page.Reviews {
			seen = append(seen, r.TaskID)
		}
		if page.NextCursor == nil {
			return seen
		}
		q.Cursor = *page.NextCursor
	}
}

// Hand-offs of one instant are told apart by their ids, and the page goes on
// where it ended even when that row was decided meanwhile.
func TestHandoffsArePaged(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		all := f.openHandoffs(t, 13)
		for _, hid := range all[3:11] { // of one instant, on a real store as well
			f.setScore(t, "handoffs:open", hid, 1)
		}
		want := slices.Concat(all[3:11], all[:3], all[11:])
		slices.Sort(want[:8])
		if got := f.handoffPages(t, 3, nil); !slices.Equal(got, want) {
			t.Fatalf("pages show\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		got := f.handoffPages(t, 3, func(seen []string) { // the last row is decided before the next page is read
			_, err := f.Answer(f.ctx, operator, seen[len(seen)-1],
				picket.AnswerRequest{Answer: picket.RawJSON(`"yes"`)})
			ok(t, err)
		})
		if !slices.Equal(got, want) {
			t.Fatalf("pages show\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		page, err := f.Handoffs(f.ctx, picket.HandoffQuery{State: picket.HandoffAnswered, Limit: 2})
		ok(t, err)
		if page.Total != 4 || len(page.Handoffs) != 2 || page.NextCursor == nil {
			t.Fatalf("answered %+v", page)
		}
		for _, q := range []picket.HandoffQuery{{Limit: 201}, {Limit: -1}, {Cursor: "1"}, {Cursor: "1.handoff_x"},
			{State: "gone"}} {
			_, err := f.Handoffs(f.ctx, q)
			refused(t, err, picket.CodeValidation)
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
			id := f.completeTasks(t, 1, spec)[0]
			all = append(all, id)
			if i%2 == 0 {
				coder = append(coder, id)
			}
			if i%3 == 0 && i%2 == 0 {
				labelled = append(labelled, id)
			}
		}
		f.mustSubmit(t, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}}) // not in review
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
			if got := f.reviewPages(t, c.q); !slices.Equal(got, c.want) {
				t.Errorf("%+v shows %v, want %v", c.q, got, c.want)
			}
		}
		page, err := f.Reviews(f.ctx, picket.ReviewQuery{Role: "coder", Limit: 1})
		ok(t, err)
		if r := page.Reviews[0]; page.Total != 9 || r.Role != "coder" || r.Labels["team"] != "a" ||
			r.TaskID != coder[0] {
			t.Errorf("row %+v of %d", r, page.Total)
		}
		for _, q := range []picket.ReviewQuery{{Limit: 201}, {Cursor: "x"}, {Cursor: "-1"}, {Role: "a b"},
			{Parent: "p"}, {Labels: map[string]string{"": ""}}} {
			_, err := f.Reviews(f.ctx, q)
			refused(t, err, picket.CodeValidation)
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
		_, h := f.submitAndLease(t, picket.TaskSpec{})
		ok(t, f.RunEvidence(f.ctx, h, ev))
		asked, err := f.RequestHelp(f.ctx, h, picket.HelpRequest{Question: "?"})
		ok(t, err)
		got, err := f.Handoff(f.ctx, asked.HandoffID)
		ok(t, err)
		task, h2 := f.submitAndLease(t, picket.TaskSpec{})
		ok(t, f.RunEvidence(f.ctx, h2, ev))
		_, err = f.Complete(f.ctx, h2, picket.Completion{Output: picket.RawJSON(`1`)})
		ok(t, err)
		page, err := f.Reviews(f.ctx, picket.ReviewQuery{})
		ok(t, err)
		for _, w := range []picket.WorkSummary{got.Work, page.Reviews[0].Work} {
			if w.Branch != "picket/one" || len(w.Files) != 50 || w.Files[49] != "f49.go" || len(w.Diffstat) != 4<<10 {
				t.Errorf("work of %s: %+v", task.TaskID, w)
			}
		}
	})
}

func coverQueues(t *testing.T, f *fixture) {
	for _, hid := range f.openHandoffs(t, 6) {
		f.setScore(t, "handoffs:open", hid, 1)
	}
	f.handoffPages(t, 1, nil)
	f.cancelAll(t)
	f.completeTasks(t, 3, picket.TaskSpec{Role: "coder", Labels: map[string]string{"team": "a"}})
	f.completeTasks(t, 1, picket.TaskSpec{Role: "coder"})
	f.reviewPages(t, picket.ReviewQuery{Limit: 1, Role: "coder", Labels: map[string]string{"team": "a"}})
	f.reviewPages(t, picket.ReviewQuery{Role: "coder"})
	f.reviewPages(t, picket.ReviewQuery{Labels: map[string]string{"team": "none"}})
	f.cancelAll(t)
}
