package console_test

import (
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// addTask makes a task that nobody takes.
func (o *fixture) addTask(spec picket.TaskSpec) string {
	o.t.Helper()
	task, err := o.Submit(o.t.Context(), picket.Caller{Actor: "test"}, spec)
	must(o.t, err)
	return task.TaskID
}

var rowLink = regexp.MustCompile(`<td class="main"><a href="/console/tasks/(task_[0-9A-Z]+)"`)

// taskIDs are the tasks of a list, in their order.
func (p response) taskIDs() (ids []string) {
	for _, m := range rowLink.FindAllStringSubmatch(p.body, -1) {
		ids = append(ids, m[1])
	}
	return ids
}

var nextLink = regexp.MustCompile(`<a href="([^"]+)" rel="next"`)

// next is the address of the next page, "" on the last.
func (p response) next() string {
	if m := nextLink.FindStringSubmatch(p.body); m != nil {
		return strings.ReplaceAll(m[1], "&amp;", "&")
	}
	return ""
}

func TestTasksAreFiltered(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		old := o.addTask(picket.TaskSpec{Title: "old", Role: "writer", Labels: map[string]string{"team": "a"}})
		time.Sleep(2 * time.Hour)
		a := o.addTask(picket.TaskSpec{Title: "one", Role: "coder", Labels: map[string]string{"team": "a"}})
		b := o.addTask(picket.TaskSpec{Title: "two", Role: "coder", Labels: map[string]string{"team": "b"}})
		taken, _ := o.startRun(picket.TaskSpec{Title: "three"})
		time.Sleep(time.Minute)
		for _, c := range []struct {
			query string
			want  []string
		}{
			{"", []string{taken, b, a, old}}, {"state=leased", []string{taken}}, {"role=coder", []string{b, a}},
			{"label=team%3Da", []string{a, old}}, {"label=team%3Da&role=coder", []string{a}},
			{"since=1h", []string{taken, b, a}},
			{"since=2000-01-01", []string{taken, b, a, old}}, {"parent=" + a, nil},
			{"state=queued&role=writer", []string{old}}, {"state=failed", nil},
		} {
			p := s.mustGet("/console/tasks?" + c.query)
			if !slices.Equal(p.taskIDs(), c.want) {
				t.Errorf("%q lists %v, want %v", c.query, p.taskIDs(), c.want)
			}
			if !strings.Contains(p.text(), "all 4 queued 3 leased 1 review 0") {
				t.Errorf("%q: the tabs say %.200s", c.query, p.text())
			}
		}
		for query, keeps := range map[string]string{
			"label=team":  `name="label" value="team"`,
			"role=%7B%7D": `name="role" value="{}"`,
			"parent=x":    `name="parent" value="x"`,
			"since=soon":  `value="soon" selected`,
			"state=lost":  `name="state" value="lost"`,
			"cursor=x":    `id="list"`,
		} {
			p := s.get("/console/tasks?" + query)
			if p.status != http.StatusBadRequest || !strings.Contains(p.body, keeps) ||
				!strings.Contains(p.body, `role="alert"`) || len(p.taskIDs()) > 0 {
				t.Errorf("%q: %d, keeps what was typed: %t: %s", query, p.status, strings.Contains(p.body, keeps),
					p.text())
			}
		}
	})
}

func TestTasksInPages(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		if p := s.mustGet("/console/tasks"); !strings.Contains(p.text(), "picket run -- make test") {
			t.Errorf("nothing there: %s", p.text())
		}
		var want []string
		for n := range 120 {
			want = append(want, o.addTask(picket.TaskSpec{Title: fmt.Sprint("task ", n), Role: "coder"}))
		}
		slices.Reverse(want)
		var got []string
		sizes := []int{}
		for at := "/console/tasks?role=coder"; at != ""; {
			p := s.mustGet(at)
			got, sizes, at = append(got, p.taskIDs()...), append(sizes, len(p.taskIDs())), p.next()
		}
		if !slices.Equal(got, want) || !slices.Equal(sizes, []int{50, 50, 20}) {
			t.Errorf("pages of %v rows", sizes)
		}
	})
}

// A search finds words of titles and both ends of ids, says how many tasks it
// has looked through, and goes on where it stopped.
func TestTasksAreSearched(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		for n := range 130 {
			o.addTask(picket.TaskSpec{Title: fmt.Sprintf("Fix %d", n)})
		}
		id := o.addTask(picket.TaskSpec{Title: "Über den Zaun"})
		for _, q := range []string{"ZAUN", "%C3%BCber", id[len(id)-6:], strings.ToLower(id[len(id)-6:]),
			"task_" + id[len("task_"):len(id)-1]} {
			if p := s.mustGet("/console/tasks?q=" + q); !slices.Equal(p.taskIDs(), []string{id}) ||
				!strings.Contains(p.text(), "131 tasks were looked through, which is all of them") {
				t.Errorf("%q finds %v: %s", q, p.taskIDs(), p.text())
			}
		}
		if p := s.get("/console/tasks?q=" + id); p.status != http.StatusSeeOther ||
			p.header.Get("Location") != "/console/tasks/"+id {
			t.Errorf("a whole id: %d to %s", p.status, p.header.Get("Location"))
		}
		if p := s.mustGet("/console/tasks?q=nonsense"); !strings.Contains(p.text(),
			"Nothing found for “nonsense” among 131 tasks") {
			t.Errorf("nothing found: %s", p.text())
		}
		seen := map[string]bool{}
		pages := 0
		for at := "/console/tasks?q=fix"; at != ""; pages++ {
			p := s.mustGet(at)
			for _, one := range p.taskIDs() {
				if seen[one] {
					t.Fatalf("%s is found twice", one)
				}
				seen[one] = true
			}
			at = p.next()
		}
		if len(seen) != 130 || pages != 3 {
			t.Errorf("%d found on %d pages", len(seen), pages)
		}
	})
}

func TestATaskIsSubmitted(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reviewer := o.signedIn(picket.ScopeOperator), o.signedIn(picket.ScopeReviewer)
		fields := []string{"title", "Fix it", "input", " {\"n\": 1.50}", "role", "coder", "needs", "go, docker",
			"labels", "team=a issue=7", "priority", "9",
			"usd", "0.75", "tokens", "50,000", "review", "none"}
		made := s.submit("/console/tasks/new", "/console/tasks", fields...)
		id := strings.TrimSuffix(strings.TrimPrefix(made.header.Get("Location"), "/console/tasks/"), "?did=submitted")
		if p := s.follow(made); !strings.Contains(p.text(), "Submitted.") {
			t.Errorf("submitted: %s", p.text())
		}
		task, err := o.Task(t.Context(), id)
		must(t, err)
		if task.Title != "Fix it" || string(task.Input) != `{"n": 1.50}` || task.Role != "coder" ||
			len(task.Needs) != 2 || task.Labels["issue"] != "7" || task.Priority != 9 ||
			task.BudgetEnvelope.USD != 750_000_000 || task.BudgetEnvelope.Tokens != 50_000 || task.ReviewBy != "none" ||
			task.CreatedBy != s.key.KeyID {
			t.Errorf("submitted %+v", task)
		}
		once := s.mustGet("/console/tasks/new").nonce(t)
		first := s.post("/console/tasks", "title", "plain", "input", "words\r\nof a person", "once", once)
		if again := s.post("/console/tasks", "title", "plain", "input", "words\r\nof a person", "once",
			once); again.header.Get("Location") != first.header.Get("Location") {
			t.Errorf("the same form twice makes %s and %s", first.header.Get("Location"), again.header.Get("Location"))
		}
		page, err := o.Tasks(t.Context(), picket.TaskQuery{})
		must(t, err)
		if plain, err := o.Task(t.Context(), page.Tasks[0].TaskID); err != nil || len(page.Tasks) != 2 ||
			string(plain.Input) != `"words\nof a person"` || plain.BudgetEnvelope.USD != 1_000_000_000 {
			t.Errorf("%d tasks, the last %+v", len(page.Tasks), plain)
		}
		for field, value := range map[string]string{
			"title":    " ",
			"role":     "no good",
			"priority": "12",
			"usd":      "lots",
			"tokens":   "-1",
			"labels":   "team",
			"needs":    "{}",
		} {
			typed := []string{"input", "kept too", field, value, "once", s.mustGet("/console/tasks/new").nonce(t)}
			if field != "title" {
				typed = append(typed, "title", "kept")
			}
			p := s.post("/console/tasks", typed...)
			want := fmt.Sprintf(`<div class="field wrong"><label for="%s"`, field)
			if p.status != http.StatusBadRequest || !strings.Contains(p.body, want) ||
				!strings.Contains(p.body, "kept too") {
				t.Errorf("%s %q: %d %s", field, value, p.status, p.text())
			}
		}
		if p := reviewer.mustGet("/console/tasks"); strings.Contains(p.body, "/console/tasks/new") {
			t.Error("a reviewer is shown how to submit")
		}
		for _, p := range []response{reviewer.get("/console/tasks/new"),
			reviewer.post("/console/tasks", "title", "x", "once", once)} {
			if p.status != http.StatusForbidden {
				t.Errorf("a reviewer submits: %d", p.status)
			}
		}
	})
}
