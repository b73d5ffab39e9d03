package console

import (
	"strconv"

	"github.com/picket-dev/picket"
)

// leasesView is what the page shows.
type leasesView struct {
	Rows   []picket.LiveLease
	Titles map[string]string // of the tasks that were changed last
	Total  int
	Full   bool // there may be more than the engine lists
	Before string
	Next   string
	Open   string // the task whose form was just refused
}

// maxLeases is how many leases the engine lists.
const maxLeases = 1000

func listLeases(v *request) (page, error) {
	all, err := v.backend.Leases.Leases(v.ctx())
	if err != nil {
		return page{}, err
	}
	named, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{States: []picket.TaskState{picket.TaskLeased},
		Limit: 200})
	if err != nil {
		return page{}, err
	}
	from := int(min(v.position("from"), int64(len(all))))
	to := min(from+pageRows, len(all))
	list := leasesView{
		Rows:   all[from:to],
		Titles: titlesOf(named.Tasks),
		Total:  len(all),
		Full:   len(all) == maxLeases,
		Open:   v.Param("id"),
	}
	if from > 0 {
		list.Before = queryPath(leasesPath, "from", strconv.Itoa(max(from-pageRows, 0)))
	}
	if to < len(all) {
		list.Next = queryPath(leasesPath, "from", strconv.Itoa(to))
	}
	return page{
		name:  "leases",
		title: "Leases",
		topics: []string{"task.leased", "task.review", "task.completed", "task.handoff", "task.cancelled", "lease.",
			"namespace."},
		body: list,
	}, nil
}

func expireLease(v *request, by picket.Caller, reason string) (string, error) {
	_, err := v.backend.Changes.ExpireRun(v.ctx(), by, v.Param("id"), v.formValue("run"), reason)
	return withFlash(leasesPath, "expired", ""), err
}
