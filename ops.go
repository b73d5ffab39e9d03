package picket

import (
	"time"

	"github.com/picket-dev/picket/budget"
)

// PauseState says whether the stop button is pressed: no grants while Paused;
// Hard has ended every run as well.
type PauseState struct {
	Paused bool    `json:"paused"`
	Hard   bool    `json:"hard"`
	Reason string  `json:"reason"`
	By     string  `json:"by"`
	At     Instant `json:"at"` // when it was paused
}

// ResumeRequest is the body of POST /api/v1/resume.
type ResumeRequest struct {
	Reason string `json:"reason,omitempty"` // for the log, at most 4096 bytes
	// PausedAt is the At of the pause that the person saw. A later pause, such as a
	// stop, stays, and the answer is state_conflict. Zero: whichever pause there is.
	PausedAt Instant `json:"pausedAt,omitzero"`
}

// Stats are the counts of a namespace.
type Stats struct {
	Namespace string                `json:"namespace"`
	Tasks     map[TaskState]int64   `json:"tasks"`   // by state
	Agents    map[AgentStatus]int64 `json:"agents"`  // records, by status
	Lanes     int64                 `json:"lanes"`   // queues with at least one task
	Delayed   int64                 `json:"delayed"` // tasks that wait for a time, such as notBefore or a backoff
	Waiters   int64                 `json:"waiters"` // long polls waiting for a lease
	// AgentSessions are the sessions of coding agents that have not ended.
	AgentSessions int64 `json:"agentSessions"`
	Handoffs      int64 `json:"handoffs"`  // open ones
	Reviews       int64 `json:"reviews"`   // tasks in review
	Leases        int64 `json:"leases"`    // that hold
	LeasesDue     int64 `json:"leasesDue"` // past their deadline, not ended yet
	// HandoffKinds are the open hand-offs by kind.
	HandoffKinds map[HandoffKind]int64 `json:"handoffKinds"`
	// OldestHandoff is when the open hand-off was made that has waited longest;
	// zero when none is open.
	OldestHandoff Instant `json:"oldestHandoff"`
	OldestReview  Instant `json:"oldestReview"` // the same for tasks in review
	// Logins are the logins of the last 12 hours that nobody has ended.
	Logins int64 `json:"sessions"`
	// Webhooks are the targets by state. WebhookLag is how many events the slowest
	// active target is behind, and 0 without one.
	Webhooks   map[WebhookState]int64 `json:"webhooks"`
	WebhookLag int64                  `json:"webhookLag"`
	// Expired are the leases that were ended for their holders, by class, since
	// the namespace began.
	Expired map[ExitClass]int64 `json:"expired"`
	// Wakes are the decisions about wakes by reason, since the namespace began.
	Wakes map[WakeReason]int64 `json:"wakes"`
	// Money is that of all tasks together.
	Money MoneyStats `json:"money"`
	// DailyEnvelope is the envelope of today (UTC), nil when there is no limit a day.
	DailyEnvelope *DailyEnvelope `json:"house"`
	// Activity is what came of the last hour, oldest first: [ActivitySlots] slots of the
	// store's own clock, the last of which still runs. Those in which nothing
	// happened, or was counted yet, are left out.
	Activity []ActivitySlot `json:"pulse"`
	LastSeq  int64          `json:"lastSeq"` // sequence number of the newest event
	// AuditEvents is the number of events in the audit log. OldestAudit is when
	// the oldest of them was written; it is zero if there is none.
	AuditEvents int64   `json:"auditEvents"`
	OldestAudit Instant `json:"oldestAudit"`
	// Memory is what the store takes, and this namespace of it.
	Memory    MemoryStats `json:"memory"`
	Pause     PauseState  `json:"pause"`
	StoreTime Instant     `json:"storeTime"` // the clock every deadline is judged by
	LastTick  Instant     `json:"lastTick"`  // of a reaper, on the store's own clock
	// SinceTickMs is how long ago LastTick was, on the same clock.
	SinceTickMs int64 `json:"sinceTickMs"`
	// ClockOffsetMs is how far the clock of the store's machine is ahead of that
	// of the server that was asked; negative when it is behind.
	ClockOffsetMs int64 `json:"clockOffsetMs"`
	// JudgeLateMs is how long the next silent agent has waited to be judged by a
	// reaper; 0 when none is due.
	JudgeLateMs int64 `json:"judgeLateMs"`
	// StoreID, Floor and AdoptedAt tell which store this is: no fencing token up to
	// Floor holds any more. AdoptedAt is zero for a store that was never adopted.
	StoreID   string  `json:"storeId"`
	Floor     int64   `json:"floor"`
	AdoptedAt Instant `json:"adoptedAt,omitzero"`
}

// MoneyStats is what tasks have spent since the namespace began, what of it was
// given back by corrections, and what is held for calls under way.
type MoneyStats struct {
	Spent    budget.Envelope `json:"spent"`
	Returned budget.Envelope `json:"returned"`
	Held     budget.Envelope `json:"held"`
	// Unverified is what agents reported and nobody was charged for.
	Unverified budget.Envelope `json:"unverified,omitzero"`
}

// DailyEnvelope is the day's envelope: what all tasks of the day may be given, and
// what is left to give.
type DailyEnvelope struct {
	Limit     budget.Envelope `json:"limit"`
	Available budget.Envelope `json:"available"` // below zero after an overrun
	// SpentInAll is what the tasks of the day have spent, with all below them; nil
	// where that was not counted from its beginning.
	SpentInAll *budget.Envelope `json:"spentInAll,omitempty"`
}

// The counters of the last hour: how many slots there are, and how long each is, in ms.
const (
	ActivitySlots  = 30
	ActivitySlotMs = 120_000
)

// ActivitySlot counts what happened in one slot of the last hour, by the events that
// were written in it.
type ActivitySlot struct {
	At      Instant        `json:"at"`      // when it began
	Ended   int64          `json:"ended"`   // results handed in
	Failed  int64          `json:"failed"`  // runs that ended without one
	Asked   int64          `json:"asked"`   // hand-offs to people
	Refused map[Code]int64 `json:"refused"` // writes without a lease that holds, by why
}

// NoReaper reports whether no reaper has ticked for five seconds: deadlines
// pass, but nothing acts on them.
func (s Stats) NoReaper() bool { return s.SinceTickMs > 5000 }

// DueWork says which background work of a namespace has become due.
type DueWork struct {
	Leases  bool // some are past their deadline
	Chores  bool // a transition has left book-keeping
	Overdue bool // hand-offs that nobody has decided in time, or refused writes that were only counted
	Agents  bool // the silence or the drain of some, or the health of a session
	Calls   bool // paid ones that nobody has settled in time
	Totals  bool // runs have ended, or charges were made, that are not in the totals by role
}

// Retention says how long what has ended is kept. Zero means its default.
type Retention struct {
	Tasks     time.Duration // terminal tasks. Defaults to 30 days.
	Events    time.Duration // Defaults to 7 days.
	MaxEvents int64         // Up to 499 more can stay, because events go in groups. Defaults to 1,000,000.
	// Of the audit log, which has a retention of its own.
	AuditAge    time.Duration // Defaults to 400 days.
	AuditEvents int64         // Defaults to 1,000,000.
}

// WorkspaceRetention says how long adapters keep the workspace of a run. Zero means its default.
type WorkspaceRetention struct {
	Failed  time.Duration // after the end of a run that failed or expired. Defaults to 7 days.
	Decided time.Duration // after the task was decided, by a review or otherwise. Defaults to a day.
}

// Bounds of what a server keeps of one task and of one run.
const (
	MaxReports  = 5000    // progress reports of a task
	MinLogBytes = 1 << 16 // of one output stream of a run
	MaxLogBytes = 1 << 22
)

// MemoryStats tells how much memory the Redis server of a namespace uses, and
// about how much of it the keys of the namespace take.
type MemoryStats struct {
	// Bytes is an estimate: a pass over the keys adds up what each takes, large
	// ones by samples. MeasuredAt is when the last whole pass ended; both are zero
	// until the first has.
	Bytes      int64   `json:"bytes"`
	MeasuredAt Instant `json:"measuredAt"`
	// StoreUsed and StoreMax are the server's own used_memory and maxmemory in bytes,
	// of all its namespaces. StoreMax is 0 if it has no bound; both are 0 for a store
	// in the memory of this process.
	StoreUsed int64 `json:"storeUsed"`
	StoreMax  int64 `json:"storeMax"`
}

// MemoryHeadroom is how much memory below a bound of most bytes stays free, so that
// leases end, people decide and servers start on a full store.
func MemoryHeadroom(most int64) int64 { return min(32<<20, most/3) }
