package picket

// ClientTask says at which endpoint a client submitted a task, and by which ids the client knows it. The client is
// the key in Task.CreatedBy.
type ClientTask struct {
	// Role is the role of the pool that it was submitted to.
	Role string `json:"role,omitempty"`
	// AgentID and Incarnation name the instance of the pool that the task is for. If it is gone, any agent of the
	// pool runs the task. Both are zero for a task of the pool.
	AgentID     string `json:"agentId,omitempty"`
	Incarnation int64  `json:"incarnation,omitzero"`
	// ContextID groups tasks of one conversation. The client chose it, or the server made it.
	ContextID string `json:"contextId"`
	// MessageID is the client's id of the message that became the task.
	MessageID string `json:"messageId"`
	// TaskID is the id that the client chose for the task, or empty.
	TaskID string `json:"taskId,omitempty"`
	// TakesMessage says that the client takes a message as the answer, instead of a task: the tool reply.
	TakesMessage bool `json:"takesMessage,omitzero"`

	// MaxOpen is how many tasks of the client may be open at once, and MaxQueue how many may wait in the queue of
	// the pool. A task beyond one of them is refused with CodeQuota. 0 stands for no limit. They are not stored.
	MaxOpen  int `json:"-"`
	MaxQueue int `json:"-"`
}

// ClientTaskQuery selects tasks that clients have submitted at endpoints, the latest change of state first. Filters
// are AND-ed.
type ClientTaskQuery struct {
	Client    string // the key that submitted them; empty: any
	Role      string // of the pool; empty: any
	AgentID   string // the instance that they are for; empty: any
	ContextID string
	// States are the states that are asked for, and Handoffs the kinds of hand-offs for which tasks may wait. All of
	// them empty: all tasks.
	// TaskFailed stands for those that failed otherwise than by the rejection of an agent.
	States   []TaskState
	Rejected bool // also tasks that agents have rejected
	Handoffs []HandoffKind
	Since    Instant // in their state since this instant or later
	Emitted  bool    // with what their agents have emitted; such a page can be short
	Limit    int     // 1 to 100, default 50
	Cursor   string  // from the previous page
}

// ClientTaskPage is a page of such tasks with all their details. Total counts those of all pages, up to the 2,000 that
// are looked at.
type ClientTaskPage struct {
	Tasks      []Task
	Total      int64
	NextCursor string // empty: there are no more
}
