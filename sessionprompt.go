package picket

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket/budget"
)

// PromptState is how far a prompt has come.
type PromptState string

// The states of a prompt. A prompt that is queued is accepted or ends, and one that is accepted ends.
const (
	PromptQueued   PromptState = "queued"   // it waits for its turn, or for the adapter
	PromptAccepted PromptState = "accepted" // the agent works on it
	PromptAnswered PromptState = "answered"
	PromptRefused  PromptState = "refused" // by the adapter, before the agent has seen it
	PromptFailed   PromptState = "failed"  // the agent has not answered
	PromptExpired  PromptState = "expired" // its deadline passed before it was accepted
)

// Ended reports whether the prompt stays as it is.
func (s PromptState) Ended() bool { return s != PromptQueued && s != PromptAccepted }

// Times of prompts, in seconds.
const (
	DefaultPromptSeconds = 600
	MaxPromptSeconds     = 3600
)

// PromptRequest is the body of POST /api/v1/agent-sessions/{id}/prompts.
type PromptRequest struct {
	Text string `json:"text"` // at most MaxPromptText bytes
	// TimeoutSeconds limits the time from sending the prompt to the end of the answer, 1 to 3,600.
	// Defaults to 600.
	TimeoutSeconds *int `json:"timeoutSeconds,omitempty"`
}

// Check refuses a prompt that is out of bounds.
func (r PromptRequest) Check() error {
	switch {
	case strings.TrimSpace(r.Text) == "":
		return Invalid("/text", "Say what the agent should do.", "text is required")
	case len(r.Text) > MaxPromptText:
		return Invalid("/text", "Shorten the text, or put it into a file that the agent can read and name the file.",
			"text has %d bytes, at most %d are allowed", len(r.Text), MaxPromptText)
	case !utf8.ValidString(r.Text):
		return Invalid("/text", "Send UTF-8.", "text is not UTF-8")
	case r.TimeoutSeconds != nil && (*r.TimeoutSeconds < 1 || *r.TimeoutSeconds > MaxPromptSeconds):
		return Invalid("/timeoutSeconds", "Send 1 to 3600.", "timeoutSeconds is %d", *r.TimeoutSeconds)
	}
	return nil
}

// SessionPrompt is a prompt of a session, and what came of it.
type SessionPrompt struct {
	PromptID  string      `json:"promptId"`
	SessionID string      `json:"sessionId"`
	State     PromptState `json:"state"`
	Wake      bool        `json:"wake,omitzero"` // Picket sent it, to wake the session
	By        string      `json:"by"`            // key of the person who sent it; empty: a wake
	Text      string      `json:"text"`
	// Answer is what the agent has answered so far, from the byte Offset on.
	Answer string `json:"answer"`
	Offset int    `json:"offset"`
	Reason string `json:"reason,omitempty"` // of a prompt that was refused or has failed
	// NextTask is true if the agent has asked for a task with the tool next_task, and TaskID is the task that
	// the session took after the answer. Empty: none yet, or another agent was faster.
	NextTask bool   `json:"nextTask,omitzero"`
	TaskID   string `json:"taskId,omitempty"`

	CreatedAt  Instant  `json:"createdAt"`
	AcceptedAt *Instant `json:"acceptedAt"`
	EndedAt    *Instant `json:"endedAt"`
	// RemainingMs is the time until the deadline; 0: it has ended.
	RemainingMs int64 `json:"remainingMs"`
	// Budget is what the model calls of the prompt may cost in all, in dollars, and Spent is what they have cost. Only
	// calls through the tool proxy are known. Budget is 0 when the prompt has ended.
	Budget budget.Money    `json:"budget"`
	Spent  budget.Envelope `json:"spent"`
}

// PromptPage is a page of the prompts of a session, newest first.
type PromptPage struct {
	Prompts []SessionPrompt `json:"prompts"`
	Cursor  int64           `json:"cursor,omitzero"` // of the next page; 0: there is none
}

// The commands that an adapter gets for its sessions.
const (
	CommandPrompt      = "prompt"
	CommandWake        = "wake" // a prompt that is refused while another one is under way
	CommandStopSession = "stop_session"
)

// SessionCommand is a command for one session. It comes with every answer until the adapter has
// reported what became of it.
type SessionCommand struct {
	CommandID string `json:"commandId"` // of a prompt: its id
	Command   string `json:"command"`   // CommandPrompt, CommandWake or CommandStopSession
	SessionID string `json:"sessionId"`
	Text      string `json:"text,omitempty"` // of a prompt or a wake
	// ExpiresInMs is how long after this answer a prompt may still be delivered to the agent, and how
	// long the agent may work on it.
	ExpiresInMs int64 `json:"expiresInMs,omitzero"`
	// Namespace is that of a session capability for the prompt. Without it, the server admits none.
	Namespace string `json:"namespace,omitempty"`
	// ProxyURL is the tool proxy that admits it. Empty: the address of the server.
	ProxyURL string `json:"proxyUrl,omitempty"`
}

// PendingQuery asks for what waits for the sessions of an agent.
type PendingQuery struct {
	Incarnation int64    // of the agent
	Known       []string // ids of commands that are left out
	// MessagesAfter asks for the number of the last message that the agent has not read, if it is above this one. Nil:
	// messages do not count.
	MessagesAfter *int64
	Wait          time.Duration // if there is nothing; at most 50 s
}

// PendingCommands answers GET /api/v1/agents/{id}/commands/pending.
type PendingCommands struct {
	Sessions []SessionCommand `json:"sessions"` // for the sessions of the agent
	Agent    []PendingCommand `json:"agent"`    // those that heartbeats carry as well
	// NewestMessage is the number of the last message that the agent has not read. It comes only if it is above the
	// messagesAfter of the request. 0: there is none, or nobody has asked.
	NewestMessage int64 `json:"newestMessage,omitzero"`
	// Instructions are the standing instructions of the agent, for its prompts and wakes. Empty: there are none.
	Instructions string `json:"instructions,omitempty"`
}

// CommandResult is the body of POST /api/v1/agents/{id}/commands/{commandId}/result.
type CommandResult struct {
	Incarnation int64 `json:"incarnation"` // of the agent
	// State is PromptAccepted, PromptAnswered, PromptRefused or PromptFailed. For
	// CommandStopSession, PromptAnswered means that the session was stopped.
	State  PromptState `json:"state"`
	Reason string      `json:"reason,omitempty"` // why it was refused or has failed
	// CapabilityHash is the SHA-256, in hex, of the session capability that the process of the session
	// gets for this prompt. It comes with PromptAccepted, and the first one stays.
	CapabilityHash string `json:"capabilityHash,omitempty"`
	// Output is a piece of the answer that begins at the byte Offset. The server ignores bytes that
	// it has, so a repeated piece does no harm. The pieces may come with PromptAccepted.
	Output string `json:"output,omitempty"`
	Offset int    `json:"offset,omitzero"`
}

// ResultTaken answers a CommandResult.
type ResultTaken struct {
	// NextTask asks the adapter to acquire a task for the session now. The agent has reserved this turn with the
	// tool next_task, and its prompt is answered.
	NextTask bool `json:"nextTask,omitzero"`
}

// Check refuses a result that is out of bounds.
func (r CommandResult) Check() error {
	switch r.State {
	case PromptAccepted, PromptAnswered, PromptRefused, PromptFailed:
	default:
		return Invalid("/state", "Send accepted, answered, refused or failed.", "%.40q is not a result", string(r.State))
	}
	switch {
	case r.Incarnation <= 0 || r.Incarnation > MaxNumber:
		return Invalid("/incarnation", "Send the incarnation that the registration has answered.", "incarnation is required")
	case len(r.Reason) > MaxPromptReason:
		return Invalid("/reason", "Say it in 500 bytes.", "reason has %d bytes", len(r.Reason))
	case len(r.Output) > MaxAnswerText:
		return Invalid("/output", "Send a shorter piece.", "output has %d bytes, at most %d are allowed", len(r.Output),
			MaxAnswerText)
	case r.Offset < 0 || r.Offset > MaxAnswerText:
		return Invalid("/offset", "Send the number of bytes that came before.", "offset is %d", r.Offset)
	case !utf8.ValidString(r.Output) || !utf8.ValidString(r.Reason):
		return Invalid("/output", "Send UTF-8.", "the text is not UTF-8")
	}
	return checkCapabilityHash(r)
}
