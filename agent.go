package picket

import "slices"

// Agent is the record of a registered agent, as RFC-0016 section 1 shows it.
// Members that are optional there are left out when they were not given.
type Agent struct {
	AgentID      string          `json:"agent_id"`
	RoleID       string          `json:"role_id,omitempty"`
	Name         string          `json:"name,omitempty"`
	Capabilities []string        `json:"capabilities"`
	Capacity     Capacity        `json:"capacity"`
	Status       AgentStatus     `json:"status"`
	Endpoint     string          `json:"endpoint,omitempty"` // stored and shown, never dialled
	Heartbeat    HeartbeatConfig `json:"heartbeat_config"`
	Metadata     RawJSON         `json:"metadata"` // every digit and the order are kept; {} when none was given
	RegisteredAt Instant         `json:"registered_at"`
	// LastHeartbeatAt is when the server received it; registration counts as one.
	LastHeartbeatAt Instant `json:"last_heartbeat_at"`
	// Version moves on changes of status and configuration, never on heartbeats.
	// It starts at 1 again when the id is registered again.
	Version int64 `json:"version"`
	// Incarnation numbers the registrations of all agents. It never falls, so it distinguishes a
	// registration from earlier ones of the same id.
	Incarnation int64 `json:"incarnation"`
	// DrainTimeoutSeconds is the time a drain gets when it names none.
	DrainTimeoutSeconds *int `json:"drain_timeout_seconds,omitempty"`
	// DrainDeadlineAt is when a drain that goes on ends by force.
	DrainDeadlineAt Instant `json:"drain_deadline_at,omitzero"`
}

// Capacity is advisory: it is shown and counted, never enforced.
type Capacity struct {
	MaxConcurrentTasks *int `json:"max_concurrent_tasks,omitempty"` // nil: not declared
	CurrentLoad        int  `json:"current_load"`                   // as the last heartbeat said
}

// HeartbeatConfig says when silence means what, in seconds.
type HeartbeatConfig struct {
	IntervalSeconds       int `json:"interval_seconds"`        // between two heartbeats
	UnhealthyAfterSeconds int `json:"unhealthy_after_seconds"` // of silence; at least twice IntervalSeconds
	DeadAfterSeconds      int `json:"dead_after_seconds"`      // of silence; at least twice UnhealthyAfterSeconds
}

// AgentStatus is the lifecycle status of an agent, RFC-0016 section 2.
type AgentStatus string

const (
	AgentRegistering  AgentStatus = "registering" // only as the previous status of a first registration
	AgentActive       AgentStatus = "active"
	AgentUnhealthy    AgentStatus = "unhealthy" // silent; keeps its leases and may take more
	AgentDraining     AgentStatus = "draining"  // finishes what it has, takes nothing new
	AgentDead         AgentStatus = "dead"      // all its leases have ended
	AgentDeregistered AgentStatus = "deregistered"
)

// AgentStatuses are all that a record can have, in the order of a life.
var AgentStatuses = []AgentStatus{AgentActive, AgentUnhealthy, AgentDraining, AgentDead, AgentDeregistered}

// Valid reports whether a record can have the status.
func (s AgentStatus) Valid() bool { return slices.Contains(AgentStatuses, s) }

// Gone reports whether the agent no longer participates: heartbeats and
// acquires are refused until it registers again.
func (s AgentStatus) Gone() bool { return s == AgentDead || s == AgentDeregistered }

// LifecycleReason is why a status changed; the list is closed.
type LifecycleReason string

const (
	ReasonRegistered       LifecycleReason = "registered"
	ReasonReRegistered     LifecycleReason = "re_registered"
	ReasonHeartbeatTimeout LifecycleReason = "heartbeat_timeout"
	ReasonHeartbeatResumed LifecycleReason = "heartbeat_resumed"
	ReasonDrainInitiated   LifecycleReason = "drain_initiated"
	ReasonDrainCompleted   LifecycleReason = "drain_completed"
	ReasonDrainTimeout     LifecycleReason = "drain_timeout" // leases were still held at the deadline
	ReasonDeregistered     LifecycleReason = "deregistered"
)

// LifecycleFields are the members of an agent.lifecycle event that stand at the
// top level, as RFC-0016 section 2.3 shows them; reason and type are the
// event's own.
type LifecycleFields struct {
	LifecycleAgentID string      `json:"agent_id,omitempty"`
	PreviousStatus   AgentStatus `json:"previous_status,omitempty"`
	NewStatus        AgentStatus `json:"new_status,omitempty"`
	Timestamp        Instant     `json:"timestamp,omitzero"`
}

// AgentRow is an agent as a list shows it, RFC-0016 section 6.1.
type AgentRow struct {
	AgentID         string      `json:"agent_id"`
	RoleID          string      `json:"role_id,omitempty"`
	Name            string      `json:"name,omitempty"`
	Capabilities    []string    `json:"capabilities"`
	Capacity        Capacity    `json:"capacity"`
	Status          AgentStatus `json:"status"`
	LastHeartbeatAt Instant     `json:"last_heartbeat_at"`
}

// AgentQuery selects agents, RFC-0016 section 6.2; the filters are AND-ed.
type AgentQuery struct {
	Capabilities []string      // any of them; empty: all agents
	Statuses     []AgentStatus // empty: active
	Role         string        // empty: all roles
	// of max_concurrent_tasks - current_load; above 0 leaves out who declares no maximum; nil: all
	MinAvailable *int
	Limit        int    // 1 to 1,000; default 1,000
	Cursor       string // next_cursor of the page before
	// Attached includes the workers of `picket run`, whose role is [RoleAttached]. Without it
	// they are left out, also where Role names their role.
	Attached bool
	// Owner, a key id, leaves only the pools in which that key has registered an
	// agent, and its own agents without a role.
	Owner string
}

// AgentPage answers it. NextCursor is set only when there is more.
type AgentPage struct {
	Agents     []AgentRow `json:"agents"`
	Total      int        `json:"total"` // of all pages
	NextCursor string     `json:"next_cursor,omitempty"`
}

// Pool is what is known of all agents of a role, RFC-0016 section 7.2.
type Pool struct {
	RoleID  string              `json:"role_id"`
	Members map[AgentStatus]int `json:"members"` // how many agents have each status
	// The sums are over active members that declare a maximum.
	MaxConcurrentTasks int         `json:"max_concurrent_tasks"`
	CurrentLoad        int         `json:"current_load"`       // as their last heartbeats reported
	AvailableCapacity  int         `json:"available_capacity"` // MaxConcurrentTasks - CurrentLoad
	Advisory           *PoolAdvice `json:"advisory"`
	// Capabilities are those of its active members, in order. Cards of A2A endpoints show them; RFC-0016 does not.
	Capabilities []string `json:"-"`
}

// Living is how many members of the pool are neither dead nor deregistered.
func (p Pool) Living() (n int) {
	for status, count := range p.Members {
		if !status.Gone() {
			n += count
		}
	}
	return n
}

// PoolAdvice is what the workflow file says of a pool, for orchestration
// systems to read; nothing here enforces it.
type PoolAdvice struct {
	MinInstances *int `json:"min_instances"` // nil: no advice
	MaxInstances *int `json:"max_instances"` // nil: no advice
}

// PoolList answers GET /api/v1/pools.
type PoolList struct {
	Pools []Pool `json:"pools"`
}
