package console

import (
	"strconv"

	"github.com/picket-dev/picket"
)

const leasesPath = "/console/leases"

func leaseRoutes() []route {
	return []route{
		show("leases", leasesPath, personScopes, listLeases, "GET /api/v1/leases").inNav("Leases"),
		act("lease.expire", leasesPath+"/:id/expire", operatorScopes, expireLease, "POST /api/v1/leases/:task/expire"),
	}
}

// leasesView is what the page shows.
type leasesView struct {
	Rows       []leaseRow
	Total      int
	From       int
	Full       bool // there may be more than the engine lists
	Before     string
	Next       string
	Form       formInput
	FormTaskID string
}

// leaseRow is a live lease in a list.
type leaseRow struct {
	picket.LiveLease
	Title     string
	TaskPath  string
	AgentPath string
}

func (v *request) leaseRows(all []picket.LiveLease, titles map[string]string) []leaseRow {
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

// maxLeases is how many leases the engine lists.
const maxLeases = 1000

func listLeases(v *request) error { return v.leasesPage("", formInput{}, nil) }

func (v *request) leasesPage(taskID string, typed formInput, problem error) error {
	if err := v.loadStats(); err != nil {
		return err
	}
	all, err := v.backend.Leases.Leases(v.ctx())
	if err != nil {
		return err
	}
	// The titles of the newest; the others show their id.
	named, err := v.backend.Tasks.Tasks(v.ctx(), picket.TaskQuery{States: []picket.TaskState{picket.TaskLeased},
		Limit: 200})
	if err != nil {
		return err
	}
	from := int(min(v.position("from"), int64(len(all))))
	to := min(from+pageRows, len(all))
	list := leasesView{
		Rows:       v.leaseRows(all[from:to], titlesOf(named.Tasks)),
		Total:      len(all),
		From:       from,
		Full:       len(all) == maxLeases,
		Form:       typed,
		FormTaskID: taskID,
	}
	if from > 0 {
		list.Before = queryPath(leasesPath, "from", strconv.Itoa(max(from-pageRows, 0)))
	}
	if to < len(all) {
		list.Next = queryPath(leasesPath, "from", strconv.Itoa(to))
	}
	return v.render(page{
		name:  "leases",
		title: "Leases",
		nav:   "leases",
		topics: []string{"task.leased", "task.review", "task.completed", "task.handoff", "task.cancelled", "lease.",
			"namespace."},
		body:    list,
		problem: problem,
	})
}

func expireLease(v *request) error {
	id := v.Param("id")
	if err := v.decide(func(by picket.Caller, reason string) error {
		_, err := v.backend.Changes.ExpireRun(v.ctx(), by, id, v.formValue("run"), reason)
		return err
	}); err != nil {
		return v.leasesPage(id, formInput{Open: "expire", Reason: v.formValue("reason")}, err)
	}
	return v.redirectWithFlash(leasesPath, "expired", "")
}
