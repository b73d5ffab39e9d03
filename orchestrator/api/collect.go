package api

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// engineCollector asks the engines when /metrics is read.
type engineCollector struct {
	engines func() []*orchestrator.Engine
	calls   func() []orchestrator.Calls // may be nil
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("picket_"+name, help, append([]string{"namespace"}, labels...), nil)
}

var (
	upDesc       = describe("store_up", "1 when the store answers.")
	tasksDesc    = describe("tasks", "Tasks by state.", "state")
	agentsDesc   = describe("agents", "Registered agents by status.", "status")
	lateDesc     = describe("agent_judged_late_seconds", "How long the next silent agent has waited to be judged; 0 when none is due.")
	driftDesc    = describe("agent_drift_total", "Heartbeats that this process took from agents whose clock is off by more than twice their interval.")
	handoffsDesc = describe("handoffs_open", "Hand-offs waiting for a person.")
	reviewsDesc  = describe("reviews_pending", "Completed tasks waiting for a decision.")
	lanesDesc    = describe("lanes", "Queues that are not empty.")
	delayedDesc  = describe("delayed", "Tasks waiting for their time.")
	waitersDesc  = describe("waiters", "Long polls waiting for a lease.")
	seqDesc      = describe("event_seq", "Sequence number of the newest event.")
	pausedDesc   = describe("paused", "1 while no leases are granted.")
	tickDesc     = describe("reaper_tick_age_seconds", "Time since a reaper last ticked; leases do not expire while none does.")
	brokenDesc   = describe("invariant_violations_total", "Violated invariants that the scanner of this process met.", "kind", "repaired")
	refusedDesc  = describe("refused_writes_total", "Writes refused by the fence in this process.", "code")

	callsDesc   = prometheus.NewDesc("picket_script_calls_total", "Transitions and reads asked of the store by this process.", []string{"script"}, nil)
	secondsDesc = prometheus.NewDesc("picket_script_seconds_total", "Time spent waiting for their replies.", []string{"script"}, nil)
)

func (e *engineCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{upDesc, tasksDesc, agentsDesc, lateDesc, driftDesc, handoffsDesc, reviewsDesc, lanesDesc, delayedDesc, waitersDesc, seqDesc, pausedDesc, tickDesc, brokenDesc, refusedDesc, callsDesc, secondsDesc} {
		ch <- d
	}
}

func (e *engineCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), readyTimeout)
	defer cancel()
	for _, engine := range e.engines() {
		ns := engine.Namespace()
		for code, n := range engine.RefusedWrites() {
			ch <- prometheus.MustNewConstMetric(refusedDesc, prometheus.CounterValue, float64(n), ns, string(code))
		}
		for _, v := range engine.Violations() {
			ch <- prometheus.MustNewConstMetric(brokenDesc, prometheus.CounterValue, float64(v.Count), ns, v.Kind, strconv.FormatBool(v.Repaired))
		}
		ch <- prometheus.MustNewConstMetric(driftDesc, prometheus.CounterValue, float64(engine.Drifts()), ns)
		counts, err := engine.Stats(ctx)
		ch <- gauge(upDesc, flag(err == nil), ns)
		if err == nil {
			collectStats(ch, ns, counts)
		}
	}
	e.collectCalls(ch)
}

func (e *engineCollector) collectCalls(ch chan<- prometheus.Metric) {
	if e.calls == nil {
		return
	}
	for _, c := range e.calls() {
		ch <- prometheus.MustNewConstMetric(callsDesc, prometheus.CounterValue, float64(c.Count), c.Script)
		ch <- prometheus.MustNewConstMetric(secondsDesc, prometheus.CounterValue, c.Total.Seconds(), c.Script)
	}
}

func collectStats(ch chan<- prometheus.Metric, ns string, s picket.Stats) {
	for _, state := range picket.TaskStates {
		ch <- gauge(tasksDesc, s.Tasks[state], ns, string(state))
	}
	for _, status := range picket.AgentStatuses {
		ch <- gauge(agentsDesc, s.Agents[status], ns, string(status))
	}
	ch <- prometheus.MustNewConstMetric(lateDesc, prometheus.GaugeValue, float64(s.JudgeLateMs)/1000, ns)
	ch <- gauge(handoffsDesc, s.Handoffs, ns)
	ch <- gauge(reviewsDesc, s.Reviews, ns)
	ch <- gauge(lanesDesc, s.Lanes, ns)
	ch <- gauge(delayedDesc, s.Delayed, ns)
	ch <- gauge(waitersDesc, s.Waiters, ns)
	ch <- gauge(seqDesc, s.LastSeq, ns)
	ch <- gauge(pausedDesc, flag(s.Pause.Paused), ns)
	ch <- prometheus.MustNewConstMetric(tickDesc, prometheus.GaugeValue, float64(s.SinceTickMs)/1000, ns)
}

func gauge(d *prometheus.Desc, v int64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
}

func flag(b bool) int64 {
	if b {
		return 1
	}
	return 0
}
