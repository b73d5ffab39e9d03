package console

import (
	"strconv"

	"github.com/picket-dev/picket"
)

// leasesView is what the page shows.
type leasesView struct {
	Rows   []picket.LiveLease
	Total  int64
	Listed int64 // of them, at most those that the engine lists
	Before string
	Next   string
	Open   string // the task whose form was just refused
}

func listLeases(v *request) (page, error) {
	held, err := v.backend.Leases.Leases(v.ctx())
	if err != nil {
		return page{}, err
	}
	all := held.Leases
	from := int(min(v.position("from"), int64(len(all))))
	to := min(from+pageRows, len(all))
	list := leasesView{
		Rows:   all[from:to],
		Total:  held.Total,
		Listed: int64(len(all)),
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
