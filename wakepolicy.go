package picket

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/budget"
)

// The wake policy of an agent name is its file HEARTBEAT.md. It says when a session of the agent may be
// woken, and what the agent should look at then. It gives no right to any task. The members of these
// types are in snake case, as the document of the file has them.

// WakePolicy is the wake policy of an agent name.
type WakePolicy struct {
	AgentName string `json:"agent_name"`
	Present   bool   `json:"present"` // false: the name has no policy, and the other members are empty
	Valid     bool   `json:"valid"`
	// Digest is sha256: and the hash of what the policy means under the settings of the server. It
	// is the expected_digest of the next change. Of an invalid policy it is the hash of its bytes.
	Digest     string `json:"digest"`
	RevisionID string `json:"revision_id"`
	Body       string `json:"body"` // the whole file, byte for byte

	Version     int    `json:"version,omitzero"` // of the format: 1
	Enabled     bool   `json:"enabled"`
	Summary     string `json:"summary"`
	MinInterval string `json:"min_interval"` // as it is written, such as 30m0s; empty: the policy has none
	// EffectiveMinInterval is MinInterval, raised to wake.min_interval. It is what counts.
	EffectiveMinInterval string       `json:"effective_min_interval"`
	ActiveHours          []TimeWindow `json:"active_hours"`
	QuietWindows         []TimeWindow `json:"quiet_windows"`
	Include              []string     `json:"include"` // what the prompt of a wake quotes

	WrittenAt   *Instant           `json:"written_at"`
	WrittenBy   string             `json:"written_by"` // key
	Diagnostics []PolicyDiagnostic `json:"diagnostics"`
	// File is the file in the directory of the server, if it differs from the store; else null.
	File *PolicyFile `json:"file"`
	// Instructions is the file AGENT.md of the name; null: there is none.
	Instructions *AgentInstructions `json:"instructions"`
}

// Bounds of the files of agent names, and where they are beside picket.yaml, in a directory for each name.
const (
	MaxInstructions = 16 << 10 // bytes of AGENT.md
	MaxPolicyFile   = 1 << 20  // bytes of HEARTBEAT.md; the server may allow less
	MaxAgentFiles   = 200      // names
	AgentFilesDir   = "picket/agents"
)

// AgentInstructions is what a server knows of a file AGENT.md: the standing instructions that the agents of a name get
// with each lease and each prompt.
type AgentInstructions struct {
	Path   string `json:"path"`   // in the directory of the server, or beside picket.yaml
	Digest string `json:"digest"` // of its bytes; empty: it cannot be read
	Bytes  int    `json:"bytes"`  // of the text; 0: it is refused, or empty
	// Diagnostics say why it is refused. The instructions before it stay in force then. Empty: it is used.
	Diagnostics []PolicyDiagnostic `json:"diagnostics"`
}

// IntervalText is min_interval for people: as it is written, and what counts if that is another value. It is empty if
// the policy has none.
func IntervalText(written, effective string) string {
	if effective == written {
		return written
	}
	return effective + ", written as " + written
}

// PolicyFile is a file HEARTBEAT.md that differs from the policy in the store.
type PolicyFile struct {
	State string `json:"state"` // PolicyFileEdited and so on
	Path  string `json:"path"`  // in the directory of the server
	// Digest is that of the policy in the file. It is empty if there is no file, or if it is not read.
	Digest string `json:"digest"`
}

// The states of files.
const (
	PolicyFileEdited   = "edited"   // the policy is what the file has
	PolicyFileRemoved  = "removed"  // the name has no policy
	PolicyFileConflict = "conflict" // file and store were both changed, and neither counts
	PolicyFileRefused  = "refused"  // something else than a file is in its place
	// PolicyFileWorkspace means that the name has trusted files beside picket.yaml, which alone count.
	PolicyFileWorkspace = "workspace"
)

// PolicySummary is what a list says about the wake policy of an agent name.
type PolicySummary struct {
	AgentName string
	Present   bool // false: the policy was deleted, or its file is gone
	Valid     bool
	Enabled   bool
	Summary   string
	Digest    string
	WrittenAt *Instant
	File      *PolicyFile // null: it is as the store has it
}

// PolicyQuery asks for a page of wake policies, by name.
type PolicyQuery struct {
	After string // agent name behind which they are; empty: the first page
	Limit int    // 1 to 100; 0: 50
}

// PolicyPage is a page of wake policies.
type PolicyPage struct {
	Policies []PolicySummary
	Next     string // After of the next page; empty: there is none
}

// PolicyVersions is the wake policy of an agent name in the store and in the directory of the server.
type PolicyVersions struct {
	Now    WakePolicy // the one that counts
	Stored WakePolicy
	// InFile has no text if the file is invalid, because the text may contain a token or a key.
	InFile WakePolicy
}

// TimeWindow is a window of local time, from Start up to End. It crosses midnight if End is before Start.
type TimeWindow struct {
	Timezone string `json:"timezone"` // IANA name
	Start    string `json:"start"`    // HH:MM
	End      string `json:"end"`
}

// PolicyDiagnostic is one finding in the text of a wake policy.
type PolicyDiagnostic struct {
	Code     string `json:"code"`
	Severity string `json:"severity"` // error: the policy is invalid; warning
	Message  string `json:"message"`
	Path     string `json:"path"` // the field; empty: the text below the front matter, or all
	// Line and Column are from 1, in characters. They are 0 for the text as a whole.
	Line   int `json:"line"`
	Column int `json:"column"`
	// OwnerSurface is where a field belongs that a policy must not have.
	OwnerSurface string `json:"owner_surface"`
	SourcePath   string `json:"source_path"` // relative
}

// PolicyWrite replaces a wake policy, or makes the first one.
type PolicyWrite struct {
	Body string `json:"body"` // the whole file
	PolicyCondition
}

// PolicyCondition is what each change of a wake policy has beside its own members.
type PolicyCondition struct {
	// ExpectedDigest is the digest of the policy that is changed; empty: there is none.
	ExpectedDigest string `json:"expected_digest,omitempty"`
	// IdempotencyKey makes a repeated request have its effect once, as the header Idempotency-Key does.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
}

// PolicyValidation asks what a wake policy with this text would be.
type PolicyValidation struct {
	Body string `json:"body"`
}

// PolicyRollback makes an earlier revision the wake policy again. It has one of RevisionID and TargetDigest.
type PolicyRollback struct {
	RevisionID   string `json:"revision_id,omitempty"`
	TargetDigest string `json:"target_digest,omitempty"` // of the newest revision that has it
	PolicyCondition
}

// OptionalIDs implements the check of empty ids.
func (PolicyRollback) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/revision_id", "/target_digest"}
}

// Check refuses a rollback that does not name one revision.
func (r PolicyRollback) Check() error {
	if (r.RevisionID == "") == (r.TargetDigest == "") {
		return Invalid("/revision_id", "Send revision_id or target_digest, as the history lists them.",
			"a rollback names exactly one revision")
	}
	return CheckOptionalID("/revision_id", "revision", r.RevisionID)
}

// The actions of revisions.
const (
	PolicyWritten    = "write"
	PolicyDeleted    = "delete"
	PolicyRolledBack = "rollback"
)

// PolicyRevision is what a wake policy was after one change.
type PolicyRevision struct {
	RevisionID string  `json:"revision_id"`
	Action     string  `json:"action"`             // PolicyWritten, PolicyDeleted or PolicyRolledBack
	Restored   string  `json:"restored,omitempty"` // of a rollback: id of the revision whose text it has
	Digest     string  `json:"digest"`             // at the time of the change; empty: deleted
	Body       string  `json:"body"`
	WrittenAt  Instant `json:"written_at"`
	WrittenBy  string  `json:"written_by"` // key
	Current    bool    `json:"current"`
}

// PolicyHistory is a page of the revisions of a wake policy, newest first.
type PolicyHistory struct {
	AgentName string           `json:"agent_name"`
	Revisions []PolicyRevision `json:"revisions"`
	Cursor    int64            `json:"cursor,omitzero"` // of the next page; 0: there is none
}

// PolicyHistoryQuery asks for a page of revisions.
type PolicyHistoryQuery struct {
	Cursor int64 // of the page; 0: the newest revisions
	Limit  int   // 1 to 50; 0: 20
}

// MaxPolicyRevisions is how many revisions of a wake policy are kept.
const MaxPolicyRevisions = 50

// PolicyStatus says what a wake policy means at one instant.
type PolicyStatus struct {
	AgentName  string  `json:"agent_name"`
	Present    bool    `json:"present"`
	Valid      bool    `json:"valid"`
	Enabled    bool    `json:"enabled"`
	Summary    string  `json:"summary"`
	Digest     string  `json:"digest"`
	RevisionID string  `json:"revision_id"`
	At         Instant `json:"at"`
	// MinInterval and EffectiveMinInterval are those of [WakePolicy].
	MinInterval          string `json:"min_interval"`
	EffectiveMinInterval string `json:"effective_min_interval"`
	// Active is true if the policy allows wakes at this instant. If it does not, Reason says why.
	Active bool       `json:"active"`
	Reason WakeReason `json:"reason"` // empty: active. If file and store contradict each other: heartbeat_conflict
	// NextAllowedAt is when the windows of the policy next allow a wake; null: now, or never.
	NextAllowedAt *Instant           `json:"next_allowed_at"`
	Diagnostics   []PolicyDiagnostic `json:"diagnostics"`
	WakeBudget    WakeBudget         `json:"wake_budget"` // now, whatever At is
	// File is the file in the directory of the server, if it differs from the store; else null.
	File *PolicyFile `json:"file"`
	// Instructions is the file AGENT.md of the name; null: there is none.
	Instructions *AgentInstructions `json:"instructions"`
}

// WakeBudget is what the wakes of an agent name may still spend on the present UTC day.
type WakeBudget struct {
	// Envelope is the one that has the least: wake:NAME:DAY, sessions:DAY or house:DAY.
	Envelope string       `json:"envelope"`
	Left     budget.Money `json:"left_usd"` // neither spent nor reserved
	// Setting is the key of picket.yaml that limits it: agents.NAME.wake_budget, wake.budget or budget.house.
	Setting string `json:"setting"`
	// RenewedAt is when the next day begins; null: the setting is 0, so no day has more.
	RenewedAt *Instant `json:"renewed_at"`
}
