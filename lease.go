package picket

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket/budget"
)

// Lease is the record handed to the adapter: the orchestrator's statement that
// one agent owns one task for one window. The first six fields are those of
// the lease protocol.
type Lease struct {
	TaskID         string          `json:"taskId"`
	RunID          string          `json:"runId"`
	LeaseExpiresAt Instant         `json:"leaseExpiresAt"`
	FencingToken   int64           `json:"fencingToken"` // above all earlier ones of the task
	BudgetEnvelope budget.Envelope `json:"budgetEnvelope"`
	WorkspacePath  string          `json:"workspacePath"`

	LeaseID string `json:"leaseId"`
	// LeaseToken is the bearer for the tool proxy. When there is an AgentToken it
	// opens only the routes below /v1/lease and /v1/run, which are the adapter's.
	LeaseToken Secret `json:"leaseToken"`
	// AgentToken opens the other routes: tools, MCP and language models. Only an
	// acquire with SeparateCredentials gets one.
	AgentToken Secret `json:"agentToken,omitzero"`
	// LeaseTTLMs is what remains now. It is min(window, 30 s) until the first
	// renewal or tool call confirms that the lease was received.
	LeaseTTLMs   int64     `json:"leaseTtlMs"`
	WindowMs     int64     `json:"windowMs"` // what each renewal gives
	Attempt      int       `json:"attempt"`  // counts the runs of the task from 1
	Task         LeaseTask `json:"task"`
	LastReport   *Report   `json:"lastReport"`
	Answers      []Answer  `json:"answers"` // also those to the task that this one repeats
	PreviousExit *Exit     `json:"previousExit"`
	Messages     int       `json:"messages,omitzero"` // how many the task has; get_task shows the last ones
	// Instructions are the standing instructions of the agent, at most 16 KiB. Only an acquire answers them. Empty:
	// there are none.
	Instructions string `json:"instructions,omitempty"`
	ProxyURL     string `json:"proxyUrl"`
	MCPURL       string `json:"mcpUrl"`
}

// AgentCredential is the credential that the agent is given.
func (l Lease) AgentCredential() Secret { return cmp.Or(l.AgentToken, l.LeaseToken) }

// LeaseTask is what an adapter needs to know of the task.
type LeaseTask struct {
	Title             string            `json:"title"`
	Input             RawJSON           `json:"input"`
	Role              string            `json:"role"`
	Needs             []string          `json:"needs"`
	Labels            map[string]string `json:"labels"`
	Priority          int               `json:"priority"`          // 0 to 9; 9 comes first
	TimeoutSeconds    *int              `json:"timeoutSeconds"`    // of this run; nil: no limit
	StallAfterSeconds *int              `json:"stallAfterSeconds"` // without a sign of life; nil: no limit
	OnExit            OnExit            `json:"onExit"`
	Fixes             *string           `json:"fixes"`
	Retries           *string           `json:"retries"`
	Trace             *Trace            `json:"trace"` // for the agent's environment
	// ReviewNote is what the reviewer said about the task this one repairs.
	ReviewNote string `json:"reviewNote,omitempty"`
}

// AcquireRequest is the body of POST /api/v1/leases.
type AcquireRequest struct {
	AgentID       string   `json:"agentId,omitempty"`
	Role          string   `json:"role,omitempty"`
	Capabilities  []string `json:"capabilities,omitempty"`
	Max           *int     `json:"max,omitempty"`           // 1 to 100; default 1
	WaitSeconds   *int     `json:"waitSeconds,omitempty"`   // 0 to 50; default 0
	WorkspaceRoot string   `json:"workspaceRoot,omitempty"` // absolute; each run works in {root}/{runId}
	// PinnedOnly acquires only tasks that are pinned to AgentID, because the adapter of "picket
	// run" must never run its command for another task.
	PinnedOnly bool `json:"pinnedOnly,omitempty"`
	// SeparateCredentials asks for two credentials for each lease: LeaseToken for
	// the adapter and AgentToken for the agent, so that an agent cannot speak as
	// its adapter. Without it LeaseToken opens every route.
	SeparateCredentials bool `json:"separateCredentials,omitempty"`
	// Incarnation is that of AgentID's registration. A superseded one is refused with agent_gone. 0
	// means that the caller does not name it.
	Incarnation int64 `json:"incarnation,omitzero"`
}

// Acquired answers an acquire; Leases is empty when the wait ran out.
type Acquired struct {
	Leases []Lease `json:"leases"`
}

// AdvanceRequest is the body of POST /api/v1/leases/advance: what
// mark_complete takes, with the lease it is about, and what is asked for next.
type AdvanceRequest struct {
	LeaseToken   Secret         `json:"leaseToken"`
	FencingToken int64          `json:"fencingToken,omitempty"` // optional; when sent, it must be the lease's own
	Output       RawJSON        `json:"output,omitempty"`
	Summary      string         `json:"summary,omitempty"`
	Children     Children       `json:"children,omitempty"` // as in [Completion]
	Acquire      AcquireRequest `json:"acquire"`
}

// Advanced answers it: the state of the completed task, and the next leases.
type Advanced struct {
	State  TaskState `json:"state"`
	Leases []Lease   `json:"leases"`
}

// Renewal answers a renewal.
type Renewal struct {
	LeaseExpiresAt Instant   `json:"leaseExpiresAt"`
	LeaseTTLMs     int64     `json:"leaseTtlMs"`   // until LeaseExpiresAt
	FencingToken   int64     `json:"fencingToken"` // higher after a reclaim
	Commands       []Command `json:"commands"`
	// IdleMs is how long ago the agent called a tool, in ms; nil when it has not
	// yet, or the server does not say.
	IdleMs *int64 `json:"idleMs,omitempty"`
}

// AppendJSON appends the renewal to b as JSON, byte for byte as package json encodes it. Servers answer more renewals
// than anything else.
func (r Renewal) AppendJSON(b []byte) ([]byte, error) {
	b = r.LeaseExpiresAt.appendJSON(append(b, `{"leaseExpiresAt":`...))
	b = strconv.AppendInt(append(b, `,"leaseTtlMs":`...), r.LeaseTTLMs, 10)
	b = strconv.AppendInt(append(b, `,"fencingToken":`...), r.FencingToken, 10)
	b = append(b, `,"commands":`...)
	if len(r.Commands) == 0 {
		b = append(b, "[]"...)
	} else {
		commands, err := json.Marshal(r.Commands, json.Deterministic(true))
		if err != nil {
			return nil, fmt.Errorf("encode commands: %w", err)
		}
		b = append(b, commands...)
	}
	if r.IdleMs != nil {
		b = strconv.AppendInt(append(b, `,"idleMs":`...), *r.IdleMs, 10)
	}
	return append(b, '}'), nil
}

// MaxRenewals is how many leases one request can renew.
const MaxRenewals = 64

// RenewRequest is the body of POST /v1/leases/renew: the leases that are renewed together, 1 to [MaxRenewals].
type RenewRequest struct {
	Leases []LeaseToRenew `json:"leases"`
}

// LeaseToRenew names a lease that the key of the request has acquired.
type LeaseToRenew struct {
	LeaseToken   Secret `json:"leaseToken"`             // that of the adapter
	FencingToken int64  `json:"fencingToken,omitempty"` // optional; when sent, it must be the lease's own
}

// Command is an order to the adapter, delivered by watch and renewal.
type Command struct {
	Command string `json:"command"` // stop, nudge, messages or exec
	Reason  string `json:"reason,omitempty"`
	// Number counts the nudges of a run from 1. Of messages it is the number of the last one that
	// waits. Both may be delivered more than once; the number tells whether they are new.
	Number int64  `json:"number,omitzero"`
	Cause  string `json:"cause,omitempty"` // of a nudge: silent or loop
	// Exec is of exec. It may be delivered more than once; its CallID tells.
	Exec *ExecRequest `json:"exec,omitempty"`
}

// Nudge tells an agent that it seems to be stuck. It is a word, not an end.
type Nudge struct {
	Number int64   `json:"number"` // counts per run from 1
	Cause  string  `json:"cause"`  // NudgeSilent or NudgeLoop
	Reason string  `json:"reason"`
	At     Instant `json:"at"`
}

// The causes of a nudge.
const (
	NudgeSilent = "silent" // no report, output or tool call for the task's stallAfterSeconds
	NudgeLoop   = "loop"   // the same tool call with the same arguments, again and again
)

// Watch answers a lease watch.
type Watch struct {
	State    WatchState `json:"state"`
	Commands []Command  `json:"commands"`
}

// WatchState is what has become of the watched lease.
type WatchState string

const (
	WatchHeld      WatchState = "held"
	WatchCompleted WatchState = "completed" // mark_complete was called
	WatchCancelled WatchState = "cancelled"
	WatchHandoff   WatchState = "handoff" // request_human_help was called
	WatchReclaim   WatchState = "reclaim" // the store was adopted: POST /v1/lease/reclaim, then go on
	WatchLost      WatchState = "lost"    // expired, released or failed: stop now
)

// ExpireRequest is the body of POST /api/v1/leases/{task}/expire.
type ExpireRequest struct {
	Reason string `json:"reason,omitempty"` // for the log, at most 4096 bytes
	// RunID is the run that the person saw. If another run has the task by now, its
	// lease stays and the answer is state_conflict. "": whichever has the task.
	RunID string `json:"runId,omitempty"`
}

// LeaseQuery selects leases that are held; its zero value selects all of them.
type LeaseQuery struct {
	TaskID string // only the lease of this task
	// AgentID selects the leases of an agent: those of its present registration or, where it has
	// none, those of its runs. It cannot be combined with TaskID.
	AgentID string
	Order   LeaseOrder // default: LeasesByExpiry
	Limit   int        // 1 to 1,000; default 1,000
}

// LeaseOrder is the order of a list of leases.
type LeaseOrder string

const (
	LeasesByExpiry LeaseOrder = "expiry" // the next to expire first
	LeasesByNeed   LeaseOrder = "look"   // first what needs a look, as [CompareRunning] orders them
)

// LeasePage answers GET /api/v1/leases.
type LeasePage struct {
	Leases []LiveLease `json:"leases"` // at most as many as asked for
	Total  int64       `json:"total"`  // how many are held in all, of those that the query selects
}

// LiveLease is a row of GET /api/v1/leases: a lease that is held, and how its run goes.
type LiveLease struct {
	TaskID         string  `json:"taskId"`
	RunID          string  `json:"runId"`
	AgentID        string  `json:"agentId"`
	FencingToken   int64   `json:"fencingToken"` // the newest of the run
	LeaseExpiresAt Instant `json:"leaseExpiresAt"`
	LeaseTTLMs     int64   `json:"leaseTtlMs"` // below zero when it is past its deadline
	Renewals       int64   `json:"renewals"`   // so far

	Title     string            `json:"title"`
	Role      string            `json:"role"`
	Labels    map[string]string `json:"labels"`
	AgentName string            `json:"agentName"` // "" unless the agent is registered under a name
	Attempt   int               `json:"attempt"`   // counts the runs of the task from 1
	StartedAt Instant           `json:"startedAt"`
	ElapsedMs int64             `json:"elapsedMs"` // since StartedAt
	// TimeoutSeconds is the task's. If the task has none, it is the one that the adapter sets, once a
	// launcher event has told it. nil: no limit.
	TimeoutSeconds *int `json:"timeoutSeconds"`
	// StallAfterSeconds is the task's; nil: no limit.
	StallAfterSeconds *int `json:"stallAfterSeconds"`
	// IdleMs is how long ago the agent called a tool; nil when it has not yet.
	IdleMs *int64 `json:"idleMs"`
	// LastReport is the last progress report of this run; nil when it has not made any.
	LastReport *ReportNote `json:"lastReport"`
	Nudge      *Nudge      `json:"nudge"` // the last one of the run; nil: none
	// Granted, Spent, Held and Carved are those of the task's envelope, see [budget.Account].
	Granted budget.Envelope `json:"granted"`
	Spent   budget.Envelope `json:"spent"`
	Held    budget.Envelope `json:"held"`
	Carved  budget.Envelope `json:"carved"`
}

// ReportNote is a progress report in a list.
type ReportNote struct {
	Summary string  `json:"summary"` // its beginning, at most MaxReportNote bytes, in one line
	At      Instant `json:"at"`
}

// LeaseCredential is a verified lease credential: which run of which task speaks. Every
// fenced verb takes one right after its context; the zero Held is refused. It also stands for a
// session capability, which has a prompt, and neither task nor run.
type LeaseCredential struct {
	Namespace string
	TaskID    string
	RunID     string
	Secret    string    // hex SHA-256 of the lease secret, or of the capability, as the store keeps it
	Fence     int64     // the X-Fencing-Token presented beside it; 0 when none was
	Side      LeaseSide // the side of the lease that speaks
	PromptID  string    // of a session capability: the prompt that it is for; else empty
	// SessionID is the session of a capability that belongs to a process, which answers several prompts. PromptID is
	// empty until the store has said which of them is open. Of every other credential it is empty.
	SessionID string
}

// OfSession reports whether it is a session capability.
func (h LeaseCredential) OfSession() bool { return h.PromptID != "" || h.SessionID != "" }

// EnvelopeID is the id of what pays: the task, or the prompt of a session.
func (h LeaseCredential) EnvelopeID() string { return cmp.Or(h.TaskID, h.PromptID) }

// HolderID is the id of what holds the credential: the run, the session of a process, or the prompt.
func (h LeaseCredential) HolderID() string { return cmp.Or(h.RunID, h.SessionID, h.PromptID) }

// IsZero reports whether no credential was presented.
func (h LeaseCredential) IsZero() bool { return h.RunID == "" || h.TaskID == "" || h.Secret == "" }

// LeaseTokenPrefix begins every lease token, and KeyPrefix every API key.
const (
	LeaseTokenPrefix = "pkl_"
	KeyPrefix        = "pkk_"
)

// A LeaseSide is the side of a lease that a lease token was made for. The MAC of the
// token covers it, so a token of one side cannot be changed into one of the other.
type LeaseSide string

// The sides of a lease.
const (
	// SideBoth is the token of an acquire that did not ask for two: it
	// opens every route.
	SideBoth LeaseSide = ""
	// SideAdapter keeps the lease and reports about the run.
	SideAdapter LeaseSide = "adapter"
	// SideAgent calls tools and language models.
	SideAgent LeaseSide = "agent"
)
