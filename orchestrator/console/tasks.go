package console

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// ageChoices are the ages that are offered.
var ageChoices = []pair{{"", "any time"}, {"1h", "the last hour"}, {"24h", "the last day"}, {"168h", "the last 7 days"}}

// taskQuery checks the filter; now is store time.
func taskQuery(f filter, now picket.Instant) (q picket.TaskQuery, err error) {
	q = picket.TaskQuery{Role: f["role"], Parent: f["parent"], Cursor: f["cursor"], Limit: pageRows}
	if state := f["state"]; state != "" {
		q.States = []picket.TaskState{picket.TaskState(state)}
	}
	if q.Labels, err = labelFilter(f["label"]); err != nil {
		return q, err
	}
	q.Since, err = parseSince(f["since"], now)
	return q, err
}

// parseSince reads an age such as 24h, or a time.
func parseSince(text string, now picket.Instant) (picket.Instant, error) {
	if text == "" {
		return 0, nil
	}
	if age, err := time.ParseDuration(text); err == nil && age > 0 {
		return max(now-picket.Instant(age.Milliseconds()), 0), nil
	}
	for _, layout := range []string{time.RFC3339, "2006-01-02T15:04", "2006-01-02"} {
		if t, err := time.Parse(layout, text); err == nil && t.Year() >= 1970 {
			return picket.InstantOf(t), nil
		}
	}
	return 0, picket.Invalid("since", "Write an age such as 24h, or a time such as 2026-04-11T10:42:17Z.",
		"%q is neither an age nor a time", clip(64, text))
}

// taskList is what the page shows.
type taskList struct {
	Filter filter
	Sinces []pair
	Tabs   []tab
	Rows   []picket.Task
	Next   string
	// Looked is how many tasks a search has looked through, and Ended whether
	// these were all.
	Looked int64
	Ended  bool
	Later  bool   // newer ones were looked through on the page before
	Clear  string // the same list without filters
}

// listTasks answers with the list, or, to a search for an id, with its task.
func listTasks(v *request) error {
	if id := v.parameter("q"); picket.CheckID("q", "task", id) == nil {
		return v.Redirect(http.StatusSeeOther, taskPath(id))
	}
	return v.show(showTasks)
}

func showTasks(v *request) (page, error) {
	f := v.filter("state", "role", "label", "parent", "since", "q", "cursor")
	list := taskList{
		Filter: f,
		Sinces: ageChoices,
		Tabs:   v.taskTabs(f),
		Clear:  queryPath(tasksPath, "state", f["state"]),
		Later:  f["cursor"] != "",
	}
	if !slices.ContainsFunc(ageChoices, func(p pair) bool { return p.Name == f["since"] }) {
		list.Sinces = append([]pair{{f["since"], clip(40, f["since"])}}, ageChoices...)
	}
	err := v.fillTasks(&list)
	return page{
		name:    "tasks",
		title:   "Tasks",
		topics:  []string{"task.", "lease.", "budget.", "namespace."},
		body:    list,
		problem: err,
	}, nil
}

// taskTabs has a tab for each state; the counts are of all tasks, whatever else
// is filtered.
func (v *request) taskTabs(f filter) []tab {
	first := f.with("cursor", "")
	tabs := []tab{{
		Label:   "all",
		Path:    first.with("state", "").link(tasksPath),
		Counted: true,
		Current: f["state"] == "",
	}}
	for _, s := range picket.TaskStates {
		tabs = append(tabs, tab{
			Label:   string(s),
			Path:    first.with("state", string(s)).link(tasksPath),
			Count:   v.stats.Tasks[s],
			Counted: true,
			Current: f["state"] == string(s),
		})
		tabs[0].Count += v.stats.Tasks[s]
	}
	return tabs
}

func (v *request) fillTasks(list *taskList) error {
	q, err := taskQuery(list.Filter, v.now())
	if err != nil {
		return err
	}
	var next *string
	if list.Filter["q"] == "" {
		found, err := v.backend.Tasks.Tasks(v.ctx(), q)
		if err != nil {
			return err
		}
		list.Rows, next = found.Tasks, found.NextCursor
	} else if list.Rows, next, err = v.searchTasks(list, q); err != nil {
		return err
	}
	if next != nil {
		list.Next = list.Filter.with("cursor", *next).link(tasksPath)
	}
	return nil
}

// Of a search, searchPages pages of searchStep tasks are looked through at a
// time.
const (
	searchPages = 5
	searchStep  = 200
)

// searchTasks looks through the newest tasks that the filter lets through for those
// whose title or id has the text; next is where a further search begins.
func (v *request) searchTasks(list *taskList, q picket.TaskQuery) (found []picket.Task, next *string, err error) {
	q.Limit = searchStep
	matches := taskMatcher(list.Filter["q"])
	for range searchPages {
		page, err := v.backend.Tasks.Tasks(v.ctx(), q)
		if err != nil {
			return nil, nil, err
		}
		for i, t := range page.Tasks {
			list.Looked++
			if !matches(t) {
				continue
			}
			if found = append(found, t); len(found) < pageRows || i == len(page.Tasks)-1 {
				continue
			}
			// The rows are full: the next ones begin after this task.
			q.Limit = i + 1
			page, err := v.backend.Tasks.Tasks(v.ctx(), q)
			return found, page.NextCursor, err
		}
		if next = page.NextCursor; next == nil {
			list.Ended = true
			return found, nil, nil
		}
		if len(found) >= pageRows {
			break
		}
		q.Cursor = *next
	}
	return found, next, nil
}

// taskMatcher finds tasks by a part of their title, whatever its case, or by the
// beginning or end of their id, also as lists show it.
func taskMatcher(text string) func(picket.Task) bool {
	lower := strings.ToLower(text)
	id := strings.ToUpper(strings.TrimPrefix(strings.TrimPrefix(lower, "task_"), "…"))
	return func(t picket.Task) bool {
		_, body, _ := strings.Cut(t.TaskID, "_")
		return strings.Contains(strings.ToLower(t.Title), lower) ||
			len(id) >= 2 && (strings.HasPrefix(body, id) || strings.HasSuffix(body, id))
	}
}

// titlesOf are the titles of tasks by their ids.
func titlesOf(all []picket.Task) map[string]string {
	titles := make(map[string]string, len(all))
	for _, t := range all {
		titles[t.TaskID] = cmp.Or(clip(120, t.Title), t.TaskID)
	}
	return titles
}
