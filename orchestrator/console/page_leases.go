package console

import (
	"context"
	"net/http"
	"strconv"

	"github.com/picket-dev/picket"
)

// leaseList is what the page of leases asks of the engine.
type leaseList interface {
	Leases(ctx context.Context) ([]picket.LiveLease, error)
}

const leasesPath = "/console/leases"

func leasePages() []route {
	return []route{
		{
			name:   "leases",
			method: get,
			path:   leasesPath,
			scopes: people,
			as:     []string{"GET /api/v1/leases"},
			handle: leases,
			nav:    "Leases",
		},
		{
			name:   "lease.expire",
			method: post,
			path:   leasesPath + "/:id/expire",
			scopes: operators,
			as:     []string{"POST /api/v1/leases/:task/expire"},
			handle: expireLease,
		},
	}
}

// leasesView is what the page shows.
type leasesView struct {
	Rows           []leaseRow
	Total          int
	From           int
	Full           bool // there may be more than the engine lists
	Before         string
	Next           string
	Acting         acting
	ActingOnTaskID string
}

// leaseRow is a live lease in a list.
type leaseRow struct {
	picket.LiveLease
	Title     string
	TaskPath  string
	AgentPath string
}

func (v *visit) leaseRows(all []picket.LiveLease, titles map[string]string) []leaseRow {
	var rows []leaseRow
	for _, l := range all {
		row := leaseRow{LiveLease: l, Title: titles[l.TaskID], TaskPath: taskPath(l.TaskID)}
		if l.AgentID != "" && v.may("agent") {
			row.AgentPath = agentPath(l.AgentID)
		}
		rows = append(rows, row)
	}
	return rows
}

// mostLeases is how many leases the engine lists.
const mostLeases = 1000

func leases(v *visit) error { return v.leasesPage("", acting{}, nil) }

func (v *visit) leasesPage(taskID string, typed acting, problem error) error {
	if err := v.look(); err != nil {
		return err
	}
	all, err := v.desk.Leases(v.ctx())
	if err != nil {
		return err
	}
	// The titles of the newest; the others show their id.
	named, err := v.desk.Tasks(v.ctx(), picket.TaskQuery{States: []picket.TaskState{picket.TaskLeased}, Limit: 200})
	if err != nil {
		return err
	}
	from := int(min(v.position("from"), int64(len(all))))
	to := min(from+pageRows, len(all))
	list := leasesView{
		Rows:           v.leaseRows(all[from:to], titlesOf(named.Tasks)),
		Total:          len(all),
		From:           from,
		Full:           len(all) == mostLeases,
		Acting:         typed,
		ActingOnTaskID: taskID,
	}
	if from > 0 {
		list.Before = address(leasesPath, "from", strconv.Itoa(max(from-pageRows, 0)))
	}
	if to < len(all) {
		list.Next = address(leasesPath, "from", strconv.Itoa(to))
	}
	status := http.StatusOK
	if problem != nil {
		status = picket.CodeOf(problem).Status()
	}
	return v.show(status, page{
		name:  "leases",
		title: "Leases",
		nav:   "leases",
		topics: []string{"task.leased", "task.review", "task.completed", "task.handoff", "task.cancelled", "lease.",
			"namespace."},
		body:    list,
		problem: problem,
	})
}

func expireLease(v *visit) error {
	id := v.Param("id")
	reason, err := v.reason()
	if err == nil {
		var by picket.Caller
		if by, err = v.caller(); err == nil {
			_, err = v.desk.ExpireRun(v.ctx(), by, id, v.form("run"), reason)
		}
	}
	if err != nil {
		return v.leasesPage(id, acting{Open: "expire", Reason: v.form("reason")}, err)
	}
	return v.done(leasesPath, "expired", "")
}
