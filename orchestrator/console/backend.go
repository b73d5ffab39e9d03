package console

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// Backend is what the console asks of the engine of a namespace: a small interface
// for each group of pages. *orchestrator.Engine has the methods of all of them.
type Backend struct {
	Logins    LoginBackend
	Stats     StatsBackend
	Handoffs  HandoffBackend
	Reviews   ReviewBackend
	Tasks     TaskBackend
	Changes   TaskChanger
	Agents    AgentBackend
	Leases    LeaseBackend
	Budgets   BudgetBackend
	Events    EventBackend
	Pause     PauseBackend
	Messages  MessageBackend
	Sessions  SessionBackend
	Policies  PolicyBackend
	Endpoints EndpointBackend
}

// MessageBackend shows conversations and sends messages of people.
type MessageBackend interface {
	Messages(ctx context.Context, by picket.Caller, of string, q picket.MessageQuery) (picket.MessagePage, error)
	Tell(ctx context.Context, by picket.Caller, to string, m picket.MessageRequest) (picket.MessageSent, error)
}

// SessionBackend shows agent sessions with their prompts, prompts them and stops them.
type SessionBackend interface {
	AgentSessions(ctx context.Context, q picket.AgentSessionQuery) (picket.AgentSessionPage, error)
	AgentSession(ctx context.Context, sessionID string) (picket.AgentSession, error)
	SessionPrompts(ctx context.Context, sessionID string, before int64, limit int) (picket.PromptPage, error)
	SessionPrompt(ctx context.Context, sessionID, promptID string, offset int,
		wait time.Duration) (picket.SessionPrompt, error)
	PromptSession(ctx context.Context, by picket.Caller, sessionID string,
		req picket.PromptRequest) (picket.SessionPrompt, error)
	StopSession(ctx context.Context, by picket.Caller, sessionID string) error
}

// PolicyBackend shows wake policies, changes them and wakes by them.
type PolicyBackend interface {
	Policies(ctx context.Context, q picket.PolicyQuery) (picket.PolicyPage, error)
	PolicyVersions(ctx context.Context, name string) (picket.PolicyVersions, error)
	PolicyStatus(ctx context.Context, name string, at picket.Instant) (picket.PolicyStatus, error)
	PolicyHistory(ctx context.Context, name string, q picket.PolicyHistoryQuery) (picket.PolicyHistory, error)
	ValidatePolicy(name, body string) (picket.WakePolicy, error)
	WritePolicy(ctx context.Context, by picket.Caller, name string, w picket.PolicyWrite) (picket.WakePolicy, error)
	DeletePolicy(ctx context.Context, by picket.Caller, name string,
		c picket.PolicyCondition) (picket.WakePolicy, error)
	Wake(ctx context.Context, by picket.Caller, name string, req picket.WakeRequest) (picket.WakeDecision, error)
	Wakes(ctx context.Context, name string, q picket.WakeQuery) (picket.WakePage, error)
	RollbackPolicy(ctx context.Context, by picket.Caller, name string,
		r picket.PolicyRollback) (picket.WakePolicy, error)
}

// LoginBackend is what logging in needs.
type LoginBackend interface {
	Authenticate(ctx context.Context, key picket.Secret) (picket.Principal, error)
	BeginLogin(ctx context.Context, key picket.Secret,
		host, from string) (code picket.Secret, who picket.Principal, err error)
	OpenLogin(ctx context.Context, code picket.Secret, host string) (token picket.Secret, s picket.Login, err error)
	Login(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CheckLogin(ctx context.Context, token picket.Secret, host string) (picket.Login, error)
	CloseLogin(ctx context.Context, token picket.Secret, host string) error
}

// StatsBackend has the figures that every page shows.
type StatsBackend interface {
	Stats(ctx context.Context) (picket.Stats, error)
}

// HandoffBackend lists and decides hand-offs.
type HandoffBackend interface {
	Handoffs(ctx context.Context, q picket.HandoffQuery) (picket.HandoffPage, error)
	Handoff(ctx context.Context, handoffID string) (picket.Handoff, error)
	Claim(ctx context.Context, by picket.Caller, handoffID string, req picket.ClaimRequest) (picket.Handoff, error)
	Answer(ctx context.Context, by picket.Caller, handoffID string, req picket.AnswerRequest) (picket.Task, error)
	Finish(ctx context.Context, by picket.Caller, handoffID string, output picket.RawJSON) (picket.Task, error)
	CancelHandoff(ctx context.Context, by picket.Caller, handoffID, reason string) (picket.Task, error)
}

// ReviewBackend lists and decides reviews.
type ReviewBackend interface {
	Reviews(ctx context.Context, q picket.ReviewQuery) (picket.ReviewPage, error)
	Approve(ctx context.Context, by picket.Caller, taskID string, d picket.Decision) (picket.Task, error)
	Reject(ctx context.Context, by picket.Caller, taskID string, d picket.Decision,
		fix *picket.TaskSpec) (picket.Task, string, error)
	ApproveAll(ctx context.Context, by picket.Caller, b picket.BulkApproval) (picket.BulkApproved, error)
}

// TaskBackend shows tasks and what their runs have left.
type TaskBackend interface {
	Tasks(ctx context.Context, q picket.TaskQuery) (picket.TaskPage, error)
	Task(ctx context.Context, taskID string) (picket.Task, error)
	Explain(ctx context.Context, taskID string) (picket.Explanation, error)
	Reports(ctx context.Context, taskID string) ([]picket.Report, error)
	Evidence(ctx context.Context, taskID, runID string) ([]picket.Evidence, error)
	Log(ctx context.Context, taskID, runID, stream string, offset int64, limit int) (picket.LogChunk, error)
}

// TaskChanger submits tasks and changes them.
type TaskChanger interface {
	Submit(ctx context.Context, by picket.Caller, spec picket.TaskSpec) (picket.Task, error)
	DefaultEnvelope() budget.Envelope
	Cancel(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error)
	Retry(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error)
	ExpireRun(ctx context.Context, by picket.Caller, taskID, runID, reason string) (picket.Task, error)
}

// AgentBackend shows agents and tells them what to do.
type AgentBackend interface {
	Agents(ctx context.Context, q picket.AgentQuery) (picket.AgentPage, error)
	Agent(ctx context.Context, agentID string) (a picket.Agent, owner string, err error)
	Pools(ctx context.Context, role, owner string) ([]picket.Pool, error)
	ChangeAgent(ctx context.Context, by picket.Caller, agentID string, match []int64,
		change picket.AgentStatusChange) (picket.Agent, error)
	CommandAgent(ctx context.Context, by picket.Caller, agentID string,
		c picket.AgentCommand) (commandID string, err error)
}

// EndpointBackend lists the tasks that clients have submitted at endpoints.
type EndpointBackend interface {
	ClientTasks(ctx context.Context, q picket.ClientTaskQuery) (picket.ClientTaskPage, error)
}

// LeaseBackend lists live leases.
type LeaseBackend interface {
	Leases(ctx context.Context) (picket.LeasePage, error)
	FindLeases(ctx context.Context, q picket.LeaseQuery) (picket.LeasePage, error)
}

// BudgetBackend shows envelopes and what was spent, and tops envelopes up.
type BudgetBackend interface {
	Envelope(ctx context.Context, id string) (picket.EnvelopeState, error)
	Ledger(ctx context.Context, q picket.LedgerQuery) (picket.LedgerPage, error)
	Spending(ctx context.Context, q picket.SpendingQuery) (picket.SpendingReport, error)
	TopUp(ctx context.Context, by picket.Caller, id string, t picket.TopUp) (picket.TopUpResult, error)
}

// EventBackend reads the event log.
type EventBackend interface {
	Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error)
}

// PauseBackend is the stop button.
type PauseBackend interface {
	PauseUnlessChanged(ctx context.Context, by picket.Caller, hard bool, reason string,
		seen picket.Instant) (picket.PauseState, error)
	ResumeUnlessChanged(ctx context.Context, by picket.Caller, reason string,
		seen picket.Instant) (picket.PauseState, error)
}
