package api

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/picket-dev/picket"
)

// storeGauge is a number of the store.
type storeGauge struct {
	desc  *prometheus.Desc
	value func(picket.Stats) float64
}

var storeGauges = []storeGauge{
	{describe("agent_judged_late_seconds",
		"How long the next silent agent has waited to be judged; 0 when none is due."),
		func(s picket.Stats) float64 { return float64(s.JudgeLateMs) / 1000 }},
	{describe("handoff_oldest_seconds", "How long the oldest open hand-off has waited; 0 when none is open."),
		func(s picket.Stats) float64 { return age(s, s.OldestHandoff) }},
	{describe("reviews_pending", "Completed tasks waiting for a decision."),
		func(s picket.Stats) float64 { return float64(s.Reviews) }},
	{describe("review_oldest_seconds",
		"How long the task has waited that has waited longest for a decision; 0 when none waits."),
		func(s picket.Stats) float64 { return age(s, s.OldestReview) }},
	{describe("sessions", "Logins of the last 12 hours that nobody has ended."),
		func(s picket.Stats) float64 { return float64(s.Logins) }},
	{describe("webhook_lag_events", "How many events the active target of a webhook is behind that is behind most."),
		func(s picket.Stats) float64 { return float64(s.WebhookLag) }},
	{describe("held_usd", "Dollars held for calls under way."),
		func(s picket.Stats) float64 { return float64(s.Money.Held.USD) / 1e9 }},
	{describe("held_tokens", "Tokens held for calls under way."),
		func(s picket.Stats) float64 { return float64(s.Money.Held.Tokens) }},
	{describe("lanes", "Queues that are not empty."), func(s picket.Stats) float64 { return float64(s.Lanes) }},
	{describe("delayed", "Tasks waiting for their time."), func(s picket.Stats) float64 { return float64(s.Delayed) }},
	{describe("waiters", "Long polls waiting for a lease."),
		func(s picket.Stats) float64 { return float64(s.Waiters) }},
	{describe("agent_sessions", "Sessions of coding agents that have not ended."),
		func(s picket.Stats) float64 { return float64(s.AgentSessions) }},
	{describe("event_seq", "Sequence number of the newest event."),
		func(s picket.Stats) float64 { return float64(s.LastSeq) }},
	{describe("audit_events", "Events in the audit log."),
		func(s picket.Stats) float64 { return float64(s.AuditEvents) }},
	{describe("audit_oldest_seconds", "Age of the oldest event of the audit log; 0 when it has none."),
		func(s picket.Stats) float64 { return age(s, s.OldestAudit) }},
	{describe("paused", "1 while no leases are granted."),
		func(s picket.Stats) float64 { return flag(s.Pause.Paused) }},
	{describe("reaper_tick_age_seconds", "Time since a reaper last ticked; leases do not expire while none does."),
		func(s picket.Stats) float64 { return float64(s.SinceTickMs) / 1000 }},
	{describe("store_clock_offset_seconds", "How far the clock of the store's machine is ahead of this one's."),
		func(s picket.Stats) float64 { return float64(s.ClockOffsetMs) / 1000 }},
}

// memoryGauges exist only if the store is a Redis.
var memoryGauges = []storeGauge{
	{describe("store_used_bytes", "Memory that the Redis server of the namespace uses."),
		func(s picket.Stats) float64 { return float64(s.Memory.StoreUsed) }},
	{describe("store_max_bytes", "Memory that this Redis server may use; 0 if it has no bound."),
		func(s picket.Stats) float64 { return float64(s.Memory.StoreMax) }},
}

// sizeGauges exist once the namespace was measured.
var sizeGauges = []storeGauge{
	{describe("namespace_bytes", "Memory that the keys of the namespace take, an estimate."),
		func(s picket.Stats) float64 { return float64(s.Memory.Bytes) }},
	{describe("namespace_bytes_age_seconds", "How long ago that estimate was made."),
		func(s picket.Stats) float64 { return age(s, s.Memory.MeasuredAt) }},
}

// dailyGauges are there only where a day has a limit.
var dailyGauges = []storeGauge{
	{describe("house_limit_usd", "Dollars that the tasks of this day (UTC) may be given."),
		func(s picket.Stats) float64 { return float64(s.DailyEnvelope.Limit.USD) / 1e9 }},
	{describe("house_limit_tokens", "Tokens that the tasks of this day (UTC) may be given."),
		func(s picket.Stats) float64 { return float64(s.DailyEnvelope.Limit.Tokens) }},
	{describe("house_available_usd", "Dollars of this day that no task has."),
		func(s picket.Stats) float64 { return float64(s.DailyEnvelope.Available.USD) / 1e9 }},
	{describe("house_available_tokens", "Tokens of this day that no task has."),
		func(s picket.Stats) float64 { return float64(s.DailyEnvelope.Available.Tokens) }},
}

// expiryClasses are the ends of a lease that its holder did not bring about.
var expiryClasses = []picket.ExitClass{picket.ExitLeaseExpired, picket.ExitAgentDead, picket.ExitReleased,
	picket.ExitUndelivered,
	picket.ExitByOperator, picket.ExitStoreAdopted}

// storeCounters are counted by the store, over the life of the namespace.
var storeCounters = []storeGauge{
	{describe("spent_usd_total", "Dollars charged to tasks, whatever was given back of them."),
		func(s picket.Stats) float64 { return float64(s.Money.Spent.USD) / 1e9 }},
	{describe("spent_tokens_total", "Tokens charged to tasks, whatever was given back of them."),
		func(s picket.Stats) float64 { return float64(s.Money.Spent.Tokens) }},
	{describe("returned_usd_total", "Dollars of those that corrections gave back."),
		func(s picket.Stats) float64 { return float64(s.Money.Returned.USD) / 1e9 }},
	{describe("returned_tokens_total", "Tokens of those that corrections gave back."),
		func(s picket.Stats) float64 { return float64(s.Money.Returned.Tokens) }},
	{describe("unverified_usd_total", "Dollars that agents reported and that were charged to nobody at that time."),
		func(s picket.Stats) float64 { return float64(s.Money.Unverified.USD) / 1e9 }},
	{describe("unverified_tokens_total", "Tokens that agents reported and that were charged to nobody at that time."),
		func(s picket.Stats) float64 { return float64(s.Money.Unverified.Tokens) }},
}

var (
	handoffsDesc = describe("handoffs_open", "Hand-offs waiting for a person, by kind.", "kind")
	webhooksDesc = describe("webhooks", "Targets of webhooks by state.", "state")
	wakesDesc    = describe("wakes_total", "Decisions about wakes of agent sessions.", "result", "reason")
	expiredDesc  = describe("leases_expired_total", "Leases that were ended for their holders, by class.", "class")
	tasksDesc    = describe("tasks", "Tasks by state.", "state")
	leasesDesc   = describe("leases",
		"Leases that hold, and those that are due: past their deadline and not ended yet.", "state")
	agentsDesc = describe("agents", "Registered agents by status.", "status")
)

func collectStats(ch chan<- prometheus.Metric, ns string, s picket.Stats) {
	sendCounts(ch, tasksDesc, ns, picket.TaskStates, s.Tasks)
	ch <- gauge(leasesDesc, float64(s.Leases), ns, "held")
	ch <- gauge(leasesDesc, float64(s.LeasesDue), ns, "due")
	sendCounts(ch, agentsDesc, ns, picket.AgentStatuses, s.Agents)
	sendCounts(ch, handoffsDesc, ns, picket.HandoffKinds, s.HandoffKinds)
	sendCounts(ch, webhooksDesc, ns, picket.WebhookStates, s.Webhooks)
	for _, class := range expiryClasses {
		ch <- counter(expiredDesc, s.Expired[class], ns, string(class))
	}
	for _, reason := range picket.WakeReasons() {
		ch <- counter(wakesDesc, s.Wakes[reason], ns, string(reason.Result()), string(reason))
	}
	for _, c := range storeCounters {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.CounterValue, c.value(s), ns)
	}
	gauges := storeGauges
	if s.Memory.StoreUsed > 0 {
		gauges = slices.Concat(gauges, memoryGauges)
	}
	if !s.Memory.MeasuredAt.IsZero() {
		gauges = slices.Concat(gauges, sizeGauges)
	}
	if s.DailyEnvelope != nil {
		gauges = slices.Concat(gauges, dailyGauges)
	}
	for _, g := range gauges {
		ch <- gauge(g.desc, g.value(s), ns)
	}
}

// sendCounts sends a gauge for each of the values of a label.
func sendCounts[Value ~string](ch chan<- prometheus.Metric, d *prometheus.Desc, ns string, values []Value,
	counts map[Value]int64) {
	for _, value := range values {
		ch <- gauge(d, float64(counts[value]), ns, string(value))
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
