package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
)

// How runs end and what was spent, by role and model.
var (
	endedDesc     = describe("runs_ended_total", "Runs that have ended, by the class of their end.", "class", "role")
	runDesc       = describe("run_seconds", "From the grant of a run's lease to the end of the lease.", "role")
	queueWaitDesc = describe("queue_wait_seconds",
		"From when a task could first run to its first lease, of leases that this process granted.", "role")

	roleSpentDescs    = moneyDescs("spent_by_role", "charged to tasks")
	roleReturnedDescs = moneyDescs("returned_by_role", "that corrections gave back")
)

// moneyDescs describe a total of dollars and one of tokens.
func moneyDescs(name, what string) [2]*prometheus.Desc {
	return [2]*prometheus.Desc{
		describe(name+"_usd_total", "Dollars "+what+", by role and model.", "role", "model"),
		describe(name+"_tokens_total", "Tokens "+what+", by role and model.", "role", "model"),
	}
}

// collectTotals shows a 0 for each way in which the runs of a role can end: a counter that begins
// with its first event has not risen, as Prometheus sees it.
func collectTotals(ch chan<- prometheus.Metric, ns string, t orchestrator.Totals) {
	for role, took := range t.RunSeconds {
		for _, class := range picket.EndClasses {
			ch <- counter(endedDesc, t.Ended[orchestrator.RunEnd{Class: class, Role: role}], ns, string(class), role)
		}
		ch <- histogram(runDesc, took, ns, role)
	}
	collectMoney(ch, ns, roleSpentDescs, t.Spent)
	collectMoney(ch, ns, roleReturnedDescs, t.Returned)
}

// collectMoney shows a 0 for tasks without a role, so that the metric is there from the beginning.
func collectMoney(ch chan<- prometheus.Metric, ns string, descs [2]*prometheus.Desc,
	by map[orchestrator.Spender]budget.Envelope) {
	send := func(who orchestrator.Spender, sum budget.Envelope) {
		ch <- prometheus.MustNewConstMetric(descs[0], prometheus.CounterValue, float64(sum.USD)/1e9, ns, who.Role,
			who.Model)
		ch <- counter(descs[1], sum.Tokens, ns, who.Role, who.Model)
	}
	send(orchestrator.Spender{}, by[orchestrator.Spender{}])
	for who, sum := range by {
		if who != (orchestrator.Spender{}) {
			send(who, sum)
		}
	}
}
