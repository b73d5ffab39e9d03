package api

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// What runs now, by role, of the 1,000 leases that expire first.
var (
	runningDesc = describe("running", "Runs that hold a lease.", "role")
	nudgedDesc  = describe("running_nudged",
		"Runs that were told that they seem to be stuck, and have made no report since.", "role")
	timeoutDesc = describe("running_timeout_ratio_max",
		"Largest part of its timeout that a run has used, 1 when all of it; 0 when none has a timeout.", "role")
	envelopeDesc = describe("running_envelope_ratio_max",
		"Largest part of its envelope that a running task has spent, holds or gave to its children.", "role")
	reportAgeDesc = describe("running_report_age_seconds_max",
		"Longest time since a run's last report, or since it began when it has made none.", "role")
)

// roleRuns sums up the runs of a role.
type roleRuns struct{ running, nudged, timeout, envelope, reportAge float64 }

// roleLabels are the labels of the roles of what runs: their names, as long as there is room beside
// those that are known already, and [orchestrator.OtherName] for the rest. Agents that delegate choose
// roles, and a label for each one would fill the memory of Prometheus.
func roleLabels(runs []picket.LiveLease, known []string) map[string]string {
	labels := map[string]string{"": ""}
	for _, role := range known {
		labels[role] = role
	}
	roles := make([]string, 0, len(runs))
	for _, l := range runs {
		roles = append(roles, l.Role)
	}
	slices.Sort(roles)
	room := orchestrator.MaxCountedRoles - len(known)
	for _, role := range slices.Compact(roles) {
		if _, ok := labels[role]; ok {
			continue
		}
		if labels[role] = orchestrator.OtherName; room > 0 {
			labels[role] = role
			room--
		}
	}
	return labels
}

func collectRuns(ch chan<- prometheus.Metric, ns string, runs []picket.LiveLease, known []string) {
	byRole, labels := map[string]*roleRuns{}, roleLabels(runs, known)
	for _, l := range runs {
		r := byRole[labels[l.Role]]
		if r == nil {
			r = &roleRuns{}
			byRole[labels[l.Role]] = r
		}
		r.running++
		r.nudged += flag(l.Nudged())
		share, _ := l.TimeoutShare()
		silent := l.ElapsedMs
		if l.LastReport != nil {
			silent -= int64(l.LastReport.At - l.StartedAt)
		}
		r.timeout, r.envelope = max(r.timeout, share), max(r.envelope, l.SpentShare())
		r.reportAge = max(r.reportAge, float64(silent)/1000)
	}
	for role, r := range byRole {
		ch <- gauge(runningDesc, r.running, ns, role)
		ch <- gauge(nudgedDesc, r.nudged, ns, role)
		ch <- gauge(timeoutDesc, r.timeout, ns, role)
		ch <- gauge(envelopeDesc, r.envelope, ns, role)
		ch <- gauge(reportAgeDesc, r.reportAge, ns, role)
	}
}
