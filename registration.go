package picket

import (
	"bytes"
	"cmp"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"
)

// The defaults of RFC-0016, in seconds, and bounds of a registration.
const (
	DefaultHeartbeat    = 30
	DefaultUnhealthy    = 90
	DefaultDead         = 300
	DefaultDrainTimeout = 120
	MaxDrainTimeout     = 604_800
	MaxMetadata         = 64 << 10 // bytes
	maxThreshold        = 31_536_000
	maxConcurrent       = 1_000_000
	maxAgentName        = 256
	maxEndpoint         = 2048
)

// RoleAttached is the role of the workers of `picket run`, each of which serves the one task
// that it was started for. They are in lists of agents that ask for them, and in no pool. Only
// a run key may register in this role, and no task may name it.
const RoleAttached = "attached"

// Registration is the body of POST /api/v1/agents, RFC-0016 section 3.1.
type Registration struct {
	AgentID             string            `json:"agent_id,omitempty"` // empty: the server makes agent_{ulid}
	RoleID              string            `json:"role_id,omitempty"`
	Name                string            `json:"name,omitempty"`
	Capabilities        []string          `json:"capabilities,omitempty"`
	Capacity            *DeclaredCapacity `json:"capacity,omitempty"`
	Endpoint            string            `json:"endpoint,omitempty"`
	Heartbeat           *Thresholds       `json:"heartbeat_config,omitempty"`
	DrainTimeoutSeconds *int              `json:"drain_timeout_seconds,omitempty"` // 0 to 604,800; default 120
	Metadata            RawJSON           `json:"metadata,omitempty"`

	ServerOwned
}

// DeclaredCapacity is the part of the capacity that the agent declares.
type DeclaredCapacity struct {
	MaxConcurrentTasks *int    `json:"max_concurrent_tasks,omitempty"` // 0 to 1,000,000; nil: not declared
	CurrentLoad        RawJSON `json:"current_load,omitempty"`         // ignored: heartbeats report it
}

// Thresholds are a heartbeat_config in which each member has a default. They are 1 to 31,536,000 seconds,
// in the proportions of [HeartbeatConfig].
type Thresholds struct {
	IntervalSeconds       *int `json:"interval_seconds,omitempty"`        // default 30
	UnhealthyAfterSeconds *int `json:"unhealthy_after_seconds,omitempty"` // default 90
	DeadAfterSeconds      *int `json:"dead_after_seconds,omitempty"`      // default 300
}

// ServerOwned are members of a record that are accepted in a registration, so
// that a record can be sent back as it was read, and ignored.
type ServerOwned struct {
	Status          RawJSON `json:"status,omitempty"`
	Version         RawJSON `json:"version,omitempty"`
	RegisteredAt    RawJSON `json:"registered_at,omitempty"`
	LastHeartbeatAt RawJSON `json:"last_heartbeat_at,omitempty"`
	Incarnation     RawJSON `json:"incarnation,omitempty"`
	DrainDeadlineAt RawJSON `json:"drain_deadline_at,omitempty"`
}

// Normalize checks a registration and fills in every default but the id. The
// error names the first member that is wrong and what it may be.
func (r *Registration) Normalize() error {
	if err := cmp.Or(CheckOptionalName("/agent_id", r.AgentID), CheckOptionalName("/role_id", r.RoleID)); err != nil {
		return err
	}
	if strings.HasPrefix(r.AgentID, "task_") {
		return Invalid("/agent_id", "Choose an id that does not begin with task_.", "agent_id looks like the id of a task")
	}
	if r.RoleID == RoleAttached && r.Endpoint != "" {
		return Invalid("/endpoint", "Leave the endpoint out.", "an agent of the role %s has no endpoint", RoleAttached)
	}
	if n := utf8.RuneCountInString(r.Name); n > maxAgentName {
		return Invalid("/name", "Use a shorter name.", "name has %d characters, at most %d are allowed", n,
			maxAgentName)
	}
	var err error
	if r.Capabilities, err = distinctCapabilities("/capabilities", r.Capabilities); err != nil {
		return err
	}
	var most *int
	if r.Capacity != nil {
		most = r.Capacity.MaxConcurrentTasks
	}
	r.Heartbeat = owned(r.Heartbeat)
	return cmp.Or(
		inRange("/capacity/max_concurrent_tasks", most, 0, maxConcurrent),
		checkEndpoint(r.Endpoint),
		r.Heartbeat.Normalize("/heartbeat_config"),
		CheckDrainTimeout("/drain_timeout_seconds", r.DrainTimeoutSeconds),
		r.checkMetadata())
}

// distinctCapabilities checks capabilities and drops doubles; the order stays the
// agent's own.
func distinctCapabilities(field string, tags []string) ([]string, error) {
	if _, err := NormalizeCapabilities(field, tags); err != nil {
		return nil, err
	}
	out := make([]string, 0, len(tags))
	for _, t := range tags {
		if !slices.Contains(out, t) {
			out = append(out, t)
		}
	}
	return out, nil
}

// Normalize fills in the defaults of RFC-0016 and then demands its proportions
// (section 3.3); prefix is where the thresholds stand in the body.
func (t *Thresholds) Normalize(prefix string) error {
	for _, m := range []struct {
		name  string
		value **int
		def   int
	}{
		{"interval_seconds", &t.IntervalSeconds, DefaultHeartbeat},
		{"unhealthy_after_seconds", &t.UnhealthyAfterSeconds, DefaultUnhealthy},
		{"dead_after_seconds", &t.DeadAfterSeconds, DefaultDead},
	} {
		if err := defaultedInRange(prefix+"/"+m.name, m.value, m.def, 1, maxThreshold); err != nil {
			return err
		}
	}
	c := t.Config()
	if c.UnhealthyAfterSeconds < 2*c.IntervalSeconds {
		return Invalid(prefix+"/unhealthy_after_seconds",
			"Make unhealthy_after_seconds at least twice interval_seconds; the defaults are 30, 90 and 300.",
			"unhealthy_after_seconds is %d, less than twice interval_seconds (%d)", c.UnhealthyAfterSeconds,
			c.IntervalSeconds)
	}
	if c.DeadAfterSeconds < 2*c.UnhealthyAfterSeconds {
		return Invalid(prefix+"/dead_after_seconds",
			"Make dead_after_seconds at least twice unhealthy_after_seconds; the defaults are 30, 90 and 300.",
			"dead_after_seconds is %d, less than twice unhealthy_after_seconds (%d)", c.DeadAfterSeconds,
			c.UnhealthyAfterSeconds)
	}
	return nil
}

// Config is what was normalized.
func (t *Thresholds) Config() HeartbeatConfig {
	of := func(n *int) int { return *cmp.Or(n, new(int)) }
	return HeartbeatConfig{of(t.IntervalSeconds), of(t.UnhealthyAfterSeconds), of(t.DeadAfterSeconds)}
}

// CheckDrainTimeout checks a drain timeout in seconds. nil means that none was given.
func CheckDrainTimeout(field string, seconds *int) error {
	return inRange(field, seconds, 0, MaxDrainTimeout)
}

func checkEndpoint(endpoint string) error {
	if endpoint == "" {
		return nil
	}
	u, err := url.Parse(endpoint)
	if err != nil || len(endpoint) > maxEndpoint || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return Invalid("/endpoint", "Send an absolute URL such as https://agent.example.com/webhook, or leave it out.",
			"endpoint is not an http or https URL of at most %d bytes", maxEndpoint)
	}
	if u.User != nil {
		return Invalid("/endpoint",
			"Leave user name and password out: everybody who may read the registry sees the endpoint.",
			"endpoint holds credentials")
	}
	return nil
}

func (r *Registration) checkMetadata() error {
	if len(r.Metadata) == 0 || string(r.Metadata) == "null" {
		r.Metadata = RawJSON("{}")
	}
	if len(r.Metadata) > MaxMetadata {
		return Refuse(CodeTooLarge, "Send less; metadata is for a few facts such as a version.",
			"metadata has %d bytes, at most %d are allowed", len(r.Metadata), MaxMetadata).With("field", "/metadata")
	}
	if !bytes.HasPrefix(bytes.TrimSpace(r.Metadata), []byte("{")) {
		return Invalid("/metadata", `Send an object such as {"version":"1.2.0"}.`, "metadata is not a JSON object")
	}
	return nil
}
