package picket

import "github.com/picket-dev/picket/budget"

// Bounds of an [AgentContext].
const (
	MaxContextTasks   = 20
	MaxContextSenders = 20
	MaxContextLanes   = 50
)

// AgentContext answers the tool get_context and GET /agent/context of the tool proxy: what an agent needs to know
// before it acts. It has no text of a message. Reading it changes nothing.
type AgentContext struct {
	Self ContextSelf `json:"self"`
	// Session is that of a session capability. Under a lease it is the session of the agent, if it has
	// exactly one. Null: there is none.
	Session *ContextSession `json:"session"`
	// Tasks are the first MaxContextTasks tasks that the agent has leased, and TasksHeld is how many there are.
	Tasks     []ContextTask `json:"tasks"`
	TasksHeld int           `json:"tasksHeld"`
	Unread    ContextUnread `json:"unread"`
	// Claimable says how many tasks wait where the agent takes tasks, at most MaxContextLanes rows, the row of
	// the next task first. MoreClaimable says that there may be more rows.
	Claimable     []ClaimableTasks `json:"claimable"`
	MoreClaimable bool             `json:"moreClaimable,omitzero"`
	// Budget is what the task of the run, or the prompt of a session, has left. Null: it is not known.
	Budget *ContextBudget `json:"budget"`
	// NextAllowedWake is when a person could wake the session if it were idle, as its wake policy and the wakes so far
	// allow it. It is never in the past. Null: there is no session, or no later time would allow a wake.
	NextAllowedWake *Instant `json:"nextAllowedWake"`
}

// ContextBudget is what an agent may still spend.
type ContextBudget struct {
	// Tokens is nil for a session, because its prompt does not limit them.
	Tokens *int64 `json:"tokens,omitempty"`
	// USD is what may still be spent, in dollars.
	USD budget.Money `json:"usd"`
}

// ContextSelf is who the agent is.
type ContextSelf struct {
	AgentID string `json:"agentId"`
	// AgentName is the key of agents: in picket.yaml. Empty: the agent has none.
	AgentName    string        `json:"agentName,omitempty"`
	Name         string        `json:"name,omitempty"`   // as the agent was registered
	Role         string        `json:"role,omitempty"`   // whose tasks it takes
	Status       AgentStatus   `json:"status,omitempty"` // empty: the agent is not registered
	Capabilities []string      `json:"capabilities"`
	Limits       ContextLimits `json:"limits"`
}

// ContextLimits bound what an agent does.
type ContextLimits struct {
	MaxConcurrentTasks *int `json:"maxConcurrentTasks"` // null: none was declared
	MaxSendsPerMinute  int  `json:"maxSendsPerMinute"`  // of messages
}

// ContextSession is the session of an agent.
type ContextSession struct {
	SessionID string        `json:"sessionId"`
	Health    SessionHealth `json:"health"`
	// PromptID is the prompt of the session capability, and RemainingMs the time until its deadline.
	PromptID    string `json:"promptId,omitempty"`
	RemainingMs int64  `json:"remainingMs,omitzero"`
}

// ContextTask is a task that the agent has leased.
type ContextTask struct {
	TaskID string `json:"taskId"`
	Title  string `json:"title"`
	TaskLane
	// RemainingMs is the time until the lease ends if nobody renews it.
	RemainingMs int64 `json:"remainingMs"`
	// AnsweredHandoffs is how many questions of the task people have answered so far. get_task shows them.
	AnsweredHandoffs int `json:"answeredHandoffs"`
}

// TaskLane says who takes a task: an agent of a role that has all needs, or one certain agent.
type TaskLane struct {
	Role  string   `json:"role,omitempty"` // empty: any
	Needs []string `json:"needs"`
	Agent string   `json:"agent,omitempty"` // empty: any
}

// ClaimableTasks is how many tasks wait for an agent such as this one.
type ClaimableTasks struct {
	TaskLane
	Tasks int `json:"tasks"` // that are queued now
}

// A NextTaskReason says why no turn was reserved.
type NextTaskReason string

// The reasons of [NextTask].
const (
	NextTaskNone     NextTaskReason = "none"     // no task waits that the agent would get
	NextTaskBusy     NextTaskReason = "busy"     // the agent works on as many tasks as it may
	NextTaskDraining NextTaskReason = "draining" // the agent takes no more tasks
)

// NextTask answers the tool next_task of an agent session.
type NextTask struct {
	// Reserved is true if the session takes a task when its prompt is answered. Another agent can be faster.
	Reserved bool           `json:"reserved"`
	Reason   NextTaskReason `json:"reason,omitempty"` // why it is not reserved; else empty
	// Claimable and MoreClaimable are those of [AgentContext].
	Claimable     []ClaimableTasks `json:"claimable"`
	MoreClaimable bool             `json:"moreClaimable,omitzero"`
	Unread        int              `json:"unread,omitzero"` // how many messages wait for the agent
}

// ContextUnread is what waits in the inboxes of an agent.
type ContextUnread struct {
	Messages int `json:"messages"` // in all
	// Senders are those of the messages that have waited longest, at most MaxContextSenders.
	Senders []UnreadSender `json:"senders"`
}

// UnreadSender is a sender of messages that wait.
type UnreadSender struct {
	Kind     string `json:"kind"` // SenderPerson, SenderClient or SenderAgent
	ID       string `json:"id"`
	Name     string `json:"name,omitempty"`
	Messages int    `json:"messages"` // of this sender, among those that have waited longest
}
