package picket

import (
	"strconv"
	"strings"

	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/lazyregexp"
)

// EstimateHeader with the value true asks what a call would reserve. Nothing
// is called and nothing is charged.
const EstimateHeader = "Picket-Estimate"

// Effects says whether a tool acts on the world outside in a way that must not
// overlap with the next holder of the task.
type Effects string

const (
	EffectsNone Effects = "none" // reads and LLM calls: nobody waits for them
	// the next lease of the task waits until the call has ended or its deadline has passed
	EffectsExternal Effects = "external"
)

// MaxExternalCall is the longest deadline of a call with external effects, in
// seconds.
const MaxExternalCall = 120

// CallRequest asks for money before a tool is called.
type CallRequest struct {
	// CallID names the call within its task; it is made by the caller, from the
	// idempotency key where there is one, and is what makes a reservation happen
	// once. See [CallID].
	CallID string
	// Nonce tells the caller's own repetition, after a lost answer, from a second
	// call with the same key.
	Nonce string
	Tool  string
	// Model is the language model that is called, empty for other tools. The ledger and
	// the totals name its first 64 bytes.
	Model string
	// Hash is of the tool and the arguments: the same CallID with another one is
	// idempotency_conflict, and a run may make ten calls with the same one in a row. Empty
	// for anything other than a call of a tool, such as a call of a language model.
	Hash         string
	Reserve      budget.Envelope // upper bound of the price
	PriceVersion string
	Effects      Effects
	// TimeoutMs bounds the call; past it and a grace the reservation is settled
	// as it stands, flagged uncertain.
	TimeoutMs int64
	Keyed     bool // the result is kept under the CallID for a day
	// Probe says that the caller asks for less when this is too much: such a
	// refusal is not an event.
	Probe bool
}

// Reservation answers it. Exactly one of Replay and a new reservation holds.
type Reservation struct {
	CallID    string
	TaskID    string // or the id of the prompt of a session
	RunID     string
	Nonce     string
	Token     int64 // the fencing token the call was admitted under
	Reserved  budget.Envelope
	Available budget.Envelope // after the reservation
	// LeaseTTLMs is how long the lease still lasts: a call must not be believed
	// to be covered for longer.
	LeaseTTLMs int64
	// Replay is the kept answer of the same call made before; nil for a new one.
	Replay *Replay
	Nudge  *Nudge
}

// Replay is what a call answered when it was made.
type Replay struct {
	Result RawJSON // as it was kept
	Cost   budget.Envelope
}

// CallOutcome is how a call ended, as its money is concerned.
type CallOutcome string

const (
	CallDone         CallOutcome = "done"         // answered; Cost is true
	CallFailed       CallOutcome = "failed"       // answered with a failure; Cost says what it costs all the same
	CallUndispatched CallOutcome = "undispatched" // it never left: costs nothing
	CallUncertain    CallOutcome = "uncertain"    // nobody knows: costs what was reserved until a true figure comes
)

// Settlement books what a reserved call cost, exactly once. It needs no valid
// lease: money spent is spent.
type Settlement struct {
	CallID  string
	TaskID  string // or the id of the prompt of a session
	Nonce   string
	Outcome CallOutcome
	Cost    budget.Envelope // ignored for undispatched and uncertain
	Result  RawJSON         // kept for repetitions with the same key; at most MaxResult
	Detail  string          // for the ledger, such as an HTTP status; up to 256 bytes, no secrets
}

// MaxResult bounds the kept result of a call in bytes. A larger one is charged
// and answered, and a repetition is told that it was not kept.
const MaxResult = 1 << 20

// Settled answers a settlement; the same again answers the same.
type Settled struct {
	Cost      budget.Envelope
	Available budget.Envelope // of the envelope that paid
	Overrun   bool            // more than was available: the envelope is locked until a top-up
}

// UsageReport is the body of POST /v1/run/usage: what an agent's own output
// says it has used. The figures are cumulative, the difference to the last
// report is charged; what the LLM pass-through has charged to the same run is
// not charged again.
type UsageReport struct {
	Source  string `json:"source"`  // such as claude; 1 to 64 characters
	Session string `json:"session"` // of the agent's own making; up to 128 characters
	// Scope says since when the figures count: "run" (the default) since the run
	// began, "session" since the session did, which a later run may have resumed.
	Scope  string       `json:"scope,omitempty"`
	Tokens int64        `json:"tokens"` // 0 to MaxNumber
	USD    budget.Money `json:"usd"`    // not below zero
}

var (
	usageSourcePattern  = lazyregexp.New(`^[A-Za-z0-9_.-]{1,64}$`)
	usageSessionPattern = lazyregexp.New(`^[!-~]{0,128}$`)
)

// Check refuses a report that is out of bounds.
func (u UsageReport) Check() error {
	switch {
	case !usageSourcePattern().MatchString(u.Source):
		return Invalid("/source", "Send the agent's name, such as claude.", "source is not a name of 1 to 64 characters")
	case !usageSessionPattern().MatchString(u.Session):
		return Invalid("/session", "Send the id that the agent gave its session.",
			"session is not an id of up to 128 characters")
	case u.Scope != "" && u.Scope != "run" && u.Scope != "session":
		return Invalid("/scope", "Send run or session, or leave it out.", "scope is %.40q", u.Scope)
	case u.Tokens < 0 || u.Tokens > MaxNumber:
		return Invalid("/tokens", "Send how many were used in all.", "tokens are %d", u.Tokens)
	case u.USD < 0:
		return Invalid("/usd", "Send what it cost in all.", "usd is below zero")
	}
	return nil
}

// Usage answers it.
type Usage struct {
	Charged   budget.Envelope `json:"charged"` // by this report
	Available budget.Envelope `json:"available"`
	Overrun   bool            `json:"overrun"`
	// Unverified is usage that was recorded and charged to nobody: usage beyond the grant of the
	// task, and all usage of runs other than its last.
	Unverified budget.Envelope `json:"unverified,omitzero"`
}

// TopUp is the body of POST /api/v1/envelopes/{id}/top-up.
type TopUp struct {
	Tokens int64        `json:"tokens,omitzero"` // to add, not below zero
	USD    budget.Money `json:"usd,omitzero"`    // to add, not below zero
	Reason string       `json:"reason,omitempty"`
	// KeepParked only adds: the hand-off of a task that waits for money stays open.
	KeepParked bool `json:"keepParked,omitzero"`
	// HandoffID is the open hand-off that the caller saw. If it has been decided in the
	// meantime, nothing is added. Empty: whatever the task waits for now.
	HandoffID string `json:"handoffId,omitempty"`
}

// TopUpResult answers a top-up.
type TopUpResult struct {
	EnvelopeState `json:",inline"`
	// Handoff is the hand-off that the task was parked on, nil if it was not parked.
	Handoff *TopUpHandoff `json:"handoff,omitempty"`
}

// TopUpHandoff says what a top-up made of the hand-off of its task.
type TopUpHandoff struct {
	HandoffID string       `json:"handoffId"`
	Kind      HandoffKind  `json:"kind"`
	Outcome   TopUpOutcome `json:"outcome"`
	// Lacking is what the envelope still lacks for the call that the run was refused last.
	Lacking budget.Envelope `json:"lacking,omitzero"`
}

// TopUpOutcome is what became of a hand-off.
type TopUpOutcome string

const (
	TopUpAnswered    TopUpOutcome = "answered"     // the task is queued again
	TopUpKeptParked  TopUpOutcome = "kept_parked"  // the caller wanted only to add
	TopUpTooSmall    TopUpOutcome = "too_small"    // the call that was refused would be refused again
	TopUpOtherReason TopUpOutcome = "other_reason" // the task does not wait for money
)

// TopUpCommand is what a person runs to add what is lacking to an envelope. The
// dollars are rounded up to whole cents; what is zero or less is left out.
func TopUpCommand(envelope string, lacking budget.Envelope) string {
	command := "picket budget top-up " + envelope
	if lacking.USD > 0 {
		command += " --usd " + strings.TrimPrefix(lacking.USD.CeilCent().Dollars(), "$")
	}
	if lacking.Tokens > 0 {
		command += " --tokens " + strconv.FormatInt(lacking.Tokens, 10)
	}
	return command
}

// MaxEnvelopes is how many envelopes of a tree are shown at once.
const MaxEnvelopes = 500

// EnvelopeState is an envelope with what was carved from it: the answer of
// GET /api/v1/envelopes/{id}.
type EnvelopeState struct {
	ID     string `json:"id"` // a task id, or house:<UTC date>
	Parent string `json:"parent,omitempty"`
	State  string `json:"state"` // open or closed
	// Envelope is what the task was given: carved at first plus topped up. It
	// stays when Granted shrinks at closing.
	Envelope budget.Envelope `json:"budgetEnvelope"`
	budget.Account
	// SpentInAll is what was spent from it and from all that was carved from it,
	// nil where that was not counted from its beginning.
	SpentInAll *budget.Envelope `json:"spentInAll,omitempty"`

	// Unverified is what its agents reported beyond what was available. It is in
	// no column of the account, and what is available pays for nothing else first.
	Unverified budget.Envelope `json:"unverified,omitzero"`

	Locked   bool            `json:"locked"` // overrun: no paid call until a top-up
	Calls    []OpenCall      `json:"calls"`  // under way, oldest deadline first, at most 100
	Children []EnvelopeState `json:"children"`
}

// OpenCall is a reservation that is not settled yet.
type OpenCall struct {
	CallID     string          `json:"callId"`
	RunID      string          `json:"runId"`
	Tool       string          `json:"tool"`
	Reserved   budget.Envelope `json:"reserved"`
	DeadlineMs int64           `json:"deadlineMs"` // until it settles automatically
	Effects    Effects         `json:"effects"`
}

// LedgerRow is one change of money: each settled call, each usage report that
// charged, each correction and each top-up has one.
type LedgerRow struct {
	Seq          int64           `json:"seq"` // of its event; the cursor
	At           Instant         `json:"at"`
	TaskID       string          `json:"taskId"` // or the id of a prompt, or house:<UTC date>
	RunID        string          `json:"runId,omitempty"`
	CallID       string          `json:"callId,omitempty"`
	Kind         LedgerKind      `json:"kind"`
	Tool         string          `json:"tool,omitempty"` // or the source of a usage report
	Model        string          `json:"model,omitempty"`
	Outcome      CallOutcome     `json:"outcome,omitempty"`
	Reserved     budget.Envelope `json:"reserved"`
	Charged      budget.Envelope `json:"charged"` // a top-up: what was added
	PriceVersion string          `json:"priceVersion,omitempty"`
	Unverified   budget.Envelope `json:"unverified,omitzero"`
	Late         bool            `json:"late,omitzero"` // the envelope was closed: an ancestor paid
	Detail       string          `json:"detail,omitempty"`
	Actor        string          `json:"actor,omitempty"`
}

// LedgerKind is why a row was written.
type LedgerKind string

const (
	LedgerCall       LedgerKind = "call"
	LedgerUsage      LedgerKind = "usage"
	LedgerCorrection LedgerKind = "correction" // a true figure after an uncertain one
	LedgerTopUp      LedgerKind = "top_up"
	LedgerUnverified LedgerKind = "unverified" // an agent reported it, and it is charged to nobody
)

// LedgerQuery selects rows in ascending order; After is the seq read last.
type LedgerQuery struct {
	TaskID string // empty: of the whole namespace
	After  int64  // 0: none was read
	Limit  int    // 1 to 1,000, default 100
	// NewestFirst reads the newest first: After is then the lowest seq read so far, 0
	// the end of the ledger.
	NewestFirst bool
}

// LedgerPage is a page of the ledger; Next is the cursor of the next one, empty
// at the end.
type LedgerPage struct {
	Rows []LedgerRow `json:"rows"`
	Next string      `json:"next,omitempty"`
}

// Funds answers await_top_up.
type Funds struct {
	ToppedUp  bool            `json:"toppedUp"` // false: the wait ran out, call again
	Available budget.Envelope `json:"available"`
	Locked    bool            `json:"locked"`
	Nudge     *Nudge          `json:"nudge,omitempty"` // set when the run seems to be stuck
	Unread    int             `json:"unread,omitzero"` // how many messages wait for the agent
}

// ExecRequest is a process that an agent wants run inside its run's containment.
type ExecRequest struct {
	CallID         string   `json:"callId"`
	Argv           []string `json:"argv"`
	Stdin          string   `json:"stdin,omitempty"`
	TimeoutSeconds int      `json:"timeoutSeconds"` // of the process, from its start
	// TTLMs is what is left until the call's deadline, in ms: after it nobody
	// takes the result, and the process must not run any more.
	TTLMs int64 `json:"ttlMs"`
}

// MaxExecOutput bounds each stream of an ExecResult, in bytes of UTF-8.
const MaxExecOutput = 64 << 10

// ExecResult is the body of POST /v1/run/exec/{callId}.
type ExecResult struct {
	Code       *int    `json:"code"` // nil if a signal ended it
	Signal     *string `json:"signal"`
	Stdout     string  `json:"stdout"`
	Stderr     string  `json:"stderr"`
	Truncated  bool    `json:"truncated"`
	DurationMs int64   `json:"durationMs"` // of the process
	// Failed says why the process could not be started; Code is null then.
	Failed string `json:"failed,omitempty"`
	// Stopped says which limit it was killed for, its time included.
	Stopped string `json:"stopped,omitempty"`
}
