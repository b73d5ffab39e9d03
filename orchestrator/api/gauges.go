package api

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
)

// storeGauge is a number of the store.
type storeGauge struct {
	desc *prometheus.Desc
	of   func(picket.Stats) float64
}

var storeGauges = []storeGauge{
	{describe("agent_judged_late_seconds", "How long the next silent agent has waited to be judged; 0 when none is due."),
		func(s picket.Stats) float64 { return float64(s.JudgeLateMs) / 1000 }},
	{describe("handoffs_open", "Hand-offs waiting for a person."), func(s picket.Stats) float64 { return float64(s.Handoffs) }},
	{describe("handoff_oldest_seconds", "How long the oldest open hand-off has waited; 0 when none is open."),
		func(s picket.Stats) float64 { return age(s, s.OldestHandoff) }},
	{describe("reviews_pending", "Completed tasks waiting for a decision."), func(s picket.Stats) float64 { return float64(s.Reviews) }},
	{describe("lanes", "Queues that are not empty."), func(s picket.Stats) float64 { return float64(s.Lanes) }},
	{describe("delayed", "Tasks waiting for their time."), func(s picket.Stats) float64 { return float64(s.Delayed) }},
	{describe("waiters", "Long polls waiting for a lease."), func(s picket.Stats) float64 { return float64(s.Waiters) }},
	{describe("event_seq", "Sequence number of the newest event."), func(s picket.Stats) float64 { return float64(s.LastSeq) }},
	{describe("paused", "1 while no leases are granted."), func(s picket.Stats) float64 { return flag(s.Pause.Paused) }},
	{describe("reaper_tick_age_seconds", "Time since a reaper last ticked; leases do not expire while none does."),
		func(s picket.Stats) float64 { return float64(s.SinceTickMs) / 1000 }},
	{describe("store_clock_offset_seconds", "How far the clock of the store's machine is ahead of this one's."),
		func(s picket.Stats) float64 { return float64(s.ClockOffsetMs) / 1000 }},
}

// houseGauges are there only where a day has a limit, from its first task on.
var houseGauges = []storeGauge{
	{describe("house_limit_usd", "Dollars that the tasks of this day (UTC) may be given."),
		func(s picket.Stats) float64 { return float64(s.House.Limit.USD) / 1e9 }},
	{describe("house_limit_tokens", "Tokens that the tasks of this day (UTC) may be given."),
		func(s picket.Stats) float64 { return float64(s.House.Limit.Tokens) }},
	{describe("house_available_usd", "Dollars of this day that no task has."),
		func(s picket.Stats) float64 { return float64(s.House.Available.USD) / 1e9 }},
	{describe("house_available_tokens", "Tokens of this day that no task has."),
		func(s picket.Stats) float64 { return float64(s.House.Available.Tokens) }},
}

var (
	tasksDesc  = describe("tasks", "Tasks by state.", "state")
	leasesDesc = describe("leases", "Leases that hold, and those that are due: past their deadline and not ended yet.", "state")
	agentsDesc = describe("agents", "Registered agents by status.", "status")
)

func collectStats(ch chan<- prometheus.Metric, ns string, s picket.Stats) {
	for _, state := range picket.TaskStates {
		ch <- gauge(tasksDesc, float64(s.Tasks[state]), ns, string(state))
	}
	ch <- gauge(leasesDesc, float64(s.Leases), ns, "held")
	ch <- gauge(leasesDesc, float64(s.LeasesDue), ns, "due")
	for _, status := range picket.AgentStatuses {
		ch <- gauge(agentsDesc, float64(s.Agents[status]), ns, string(status))
	}
	for _, g := range storeGauges {
		ch <- gauge(g.desc, g.of(s), ns)
	}
	if s.House == nil {
		return
	}
	for _, g := range houseGauges {
		ch <- gauge(g.desc, g.of(s), ns)
	}
}

// age is how long ago something was by the clock of the store, in seconds; 0
// for nothing.
func age(s picket.Stats, of picket.Instant) float64 {
	if of.IsZero() {
		return 0
	}
	return max(0, float64(int64(s.LastTick)+s.SinceTickMs-int64(of))/1000)
}
