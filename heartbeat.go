package picket

import (
	"strconv"
	"unicode/utf8"
)

// maxReason bounds the reason of a command, in characters.
const maxReason = 1000

// maxInProgress bounds tasks_in_progress of one heartbeat.
const maxInProgress = 1000

// MaxPendingCommands bounds the commands that wait for one agent.
const MaxPendingCommands = 32

// Heartbeat is the body of POST /api/v1/agents/{id}/heartbeat, RFC-0016
// section 4.1. The members after client_timestamp are optional additions.
type Heartbeat struct {
	Status          AgentStatus `json:"status"`                      // active or draining
	CurrentLoad     *int        `json:"current_load,omitempty"`      // nil: as before
	TasksInProgress []string    `json:"tasks_in_progress,omitempty"` // held against the leases; see CommandStopTask
	ClientTimestamp Instant     `json:"client_timestamp"`            // for the drift warning only; never decides
	// HandledCommands are ids of pending commands that were carried out.
	HandledCommands []string `json:"handled_commands,omitempty"`
	// Incarnation is that of the sender's registration. A superseded one is refused with
	// agent_gone. 0 means that the sender does not name it.
	Incarnation int64 `json:"incarnation,omitzero"`
}

// HeartbeatAnswer is the answer, RFC-0016 section 4.2.
type HeartbeatAnswer struct {
	Acknowledged    bool             `json:"acknowledged"`
	ServerTimestamp Instant          `json:"server_timestamp"`
	AgentStatus     AgentStatus      `json:"agent_status"`
	PendingCommands []PendingCommand `json:"pending_commands"`
}

// The commands an agent can be given.
const (
	CommandDrain    = "drain"     // honoured by leaving active
	CommandStopTask = "stop_task" // the agent reports a task that it holds no lease of, or an operator asks
	CommandPing     = "ping"
)

// AgentCommand is the body of POST /api/v1/agents/{id}/commands.
type AgentCommand struct {
	Command             string `json:"command"`
	TaskID              string `json:"task_id,omitempty"` // of stop_task
	Reason              string `json:"reason,omitempty"`
	DrainTimeoutSeconds *int   `json:"drain_timeout_seconds,omitempty"` // of drain
}

// PendingCommand is a command on its way to an agent. It comes with every
// heartbeat's answer until it was honoured, so at least once.
type PendingCommand struct {
	CommandID string `json:"command_id"`
	AgentCommand
}

// CommandAccepted answers POST /api/v1/agents/{id}/commands.
type CommandAccepted struct {
	CommandID string `json:"command_id"`
}

// AgentStatusChange is the body of PATCH /api/v1/agents/{id}/status, RFC-0016
// section 5.1.
type AgentStatusChange struct {
	Status              AgentStatus `json:"status"`
	DrainTimeoutSeconds *int        `json:"drain_timeout_seconds,omitempty"` // of draining; 0 to 604,800
	// Incarnation is that of the registration it is meant for; once that was
	// superseded it is refused with agent_gone. Versions begin at 1 again with
	// each registration, so they do not tell. 0: whichever there is.
	Incarnation int64 `json:"incarnation,omitzero"`
}

// Check reports the first member that is wrong and what it may be.
func (h Heartbeat) Check() error {
	if h.Status != AgentActive && h.Status != AgentDraining {
		return Invalid("/status", `Send "active", or "draining" to take no more work.`,
			"status of a heartbeat is active or draining, not %.40q", h.Status)
	}
	if h.ClientTimestamp.IsZero() {
		return Invalid("/client_timestamp", "Send the agent's own time, such as 2026-02-08T10:30:00Z.",
			"client_timestamp is required")
	}
	if h.CurrentLoad != nil && (*h.CurrentLoad < 0 || *h.CurrentLoad > maxConcurrent) {
		return Invalid("/current_load", "Send the number of tasks in progress.", "current_load is %d, not 0 to %d",
			*h.CurrentLoad, maxConcurrent)
	}
	if n := len(h.TasksInProgress); n > maxInProgress {
		return Invalid("/tasks_in_progress", "Report the newest ones.",
			"tasks_in_progress has %d entries, at most %d are allowed", n, maxInProgress)
	}
	for i, id := range h.TasksInProgress {
		if err := CheckName("/tasks_in_progress/"+strconv.Itoa(i), id); err != nil {
			return err
		}
	}
	if n := len(h.HandledCommands); n > maxInProgress {
		return Invalid("/handled_commands", "Report each command once.",
			"handled_commands has %d entries, at most %d are allowed", n, maxInProgress)
	}
	for i, id := range h.HandledCommands {
		if err := CheckName("/handled_commands/"+strconv.Itoa(i), id); err != nil {
			return err
		}
	}
	return checkIncarnation(h.Incarnation)
}

func checkIncarnation(n int64) error {
	if n < 0 || n > MaxNumber {
		return Invalid("/incarnation", "Send the incarnation of the registration, or leave it out.",
			"incarnation is not a number of a registration")
	}
	return nil
}

// Check reports the first member that is wrong and what it may be.
func (c AgentCommand) Check() error {
	if err := oneOf("/command", c.Command, CommandDrain, CommandStopTask, CommandPing); err != nil {
		return err
	}
	if c.Command == CommandStopTask {
		if c.TaskID == "" {
			return Invalid("/task_id", "Name the task to stop.", "task_id is required for stop_task")
		}
		if err := CheckName("/task_id", c.TaskID); err != nil {
			return err
		}
	} else if c.TaskID != "" {
		return Invalid("/task_id", "Leave it out.", "task_id is for stop_task only")
	}
	if c.Command != CommandDrain && c.DrainTimeoutSeconds != nil {
		return Invalid("/drain_timeout_seconds", "Leave it out.", "drain_timeout_seconds is for drain only")
	}
	if n := utf8.RuneCountInString(c.Reason); n > maxReason {
		return Invalid("/reason", "Say it in fewer words: it comes with every answer until the command is handled.",
			"reason has %d characters, at most %d are allowed", n, maxReason)
	}
	return CheckDrainTimeout("/drain_timeout_seconds", c.DrainTimeoutSeconds)
}

// Check reports the first member that is wrong and what it may be.
func (c AgentStatusChange) Check() error {
	if !c.Status.Valid() && c.Status != AgentRegistering {
		return Invalid("/status", `Send "draining" or "deregistered".`, "%.40q is not a status of an agent", c.Status)
	}
	if c.Status != AgentDraining && c.DrainTimeoutSeconds != nil {
		return Invalid("/drain_timeout_seconds", "Leave it out.", "drain_timeout_seconds is for draining only")
	}
	if err := checkIncarnation(c.Incarnation); err != nil {
		return err
	}
	return CheckDrainTimeout("/drain_timeout_seconds", c.DrainTimeoutSeconds)
}
