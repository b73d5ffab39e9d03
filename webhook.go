package picket

import "time"

// Webhook is a target that events are posted to, in order and at least once.
type Webhook struct {
	WebhookID string        `json:"webhookId"`
	Name      string        `json:"name"`
	URL       string        `json:"url"`   // scheme and host alone: the rest of a URL may be a secret
	Types     []string      `json:"types"` // event types; empty: notices, see Event.Notice
	Format    WebhookFormat `json:"format"`
	State     WebhookState  `json:"state"`
	// Cursor is the sequence number of the last event the target has taken, or
	// that was passed over because it is of another type.
	Cursor   string `json:"cursor"`
	Failures int    `json:"failures"` // in a row
	// HTTP status of the last answer; 0 before the first, or when there was none
	LastStatus    int     `json:"lastStatus"`
	LastError     string  `json:"lastError"`
	NextAttemptAt Instant `json:"nextAttemptAt"` // after a failure; null otherwise
	CreatedAt     Instant `json:"createdAt"`
	CreatedBy     string  `json:"createdBy"`
}

// WebhookFormat says what a target is sent.
type WebhookFormat string

const (
	WebhookStandard WebhookFormat = "standard" // the event as it is; the default
	WebhookSlack    WebhookFormat = "slack"    // {"text"}, for incoming webhooks of Slack and what is compatible
)

// WebhookFormats are all formats.
var WebhookFormats = []WebhookFormat{WebhookStandard, WebhookSlack}

// WebhookState says whether a target is sent events.
type WebhookState string

const (
	WebhookActive WebhookState = "active"
	WebhookDead   WebhookState = "dead" // failed for too long; revive goes on where it stopped
	WebhookOff    WebhookState = "off"  // answered 410 Gone; revive goes on where it stopped
)

// WebhookStates are all states.
var WebhookStates = []WebhookState{WebhookActive, WebhookDead, WebhookOff}

// WebhookSpec is the body of POST /api/v1/webhooks.
type WebhookSpec struct {
	Name   string        `json:"name"` // default: the host
	URL    Secret        `json:"url"`
	Types  []string      `json:"types,omitempty"`
	Format WebhookFormat `json:"format,omitempty"`
}

// NewWebhook answers it. Secret (whsec_…) verifies the signatures and is shown
// only here.
type NewWebhook struct {
	Webhook
	Secret Secret `json:"secret"`
}

// WebhookSecretPrefix starts every secret of a webhook, as Standard Webhooks
// says; standard base64 of 32 random bytes follows.
const WebhookSecretPrefix = "whsec_"

// MaxWebhooks is how many targets a namespace may have.
const MaxWebhooks = 100

// WebhookTurnTTL is how long one deliverer has a target for itself, in store
// time; each step begins it again.
const WebhookTurnTTL = 30 * time.Second

// WebhookTarget is a webhook with what it takes to post to it. Target and
// Secret are empty when they were sealed with a key that is not here.
type WebhookTarget struct {
	Webhook
	Target Secret // the whole URL
	Secret Secret
}

// WebhookTurn is what a deliverer gets that asks for something to do: a target
// that is its own for WebhookTurnTTL. Without one WebhookID is empty.
type WebhookTurn struct {
	WebhookTarget
	TurnID string
	// Seq is the number of the last event that was there: without a target all
	// have been sent what came up to it.
	Seq int64
	// Wait is how long it takes until a target is due, 0 when none will be
	// before something happens.
	Wait time.Duration
}

// WebhookStep says how far a target was served under a claim.
type WebhookStep struct {
	WebhookID string
	TurnID    string
	From      int64 // the cursor before
	To        int64 // the cursor after
	Outcome   WebhookOutcome
	Status    int           // HTTP status of the answer; 0: there was none
	Error     string        // at most 200 bytes; no part of the URL but its host
	Delay     time.Duration // of WebhookFailed, until the next try
}

// WebhookOutcome is what came of a step.
type WebhookOutcome string

const (
	WebhookTaken  WebhookOutcome = "taken"  // it took an event; the claim goes on
	WebhookPassed WebhookOutcome = "passed" // nothing was for it, or it is left to others; the claim is given back
	WebhookFailed WebhookOutcome = "failed" // given back, to be tried again after Delay
	WebhookGone   WebhookOutcome = "gone"   // it answered 410; given back permanently
	WebhookGap    WebhookOutcome = "gap"    // what comes next was deleted by retention; the claim goes on
)

// WebhookTest is what came of a test notice.
type WebhookTest struct {
	WebhookID string `json:"webhookId"`
	Name      string `json:"name"`
	Delivered bool   `json:"delivered"`
	Status    int    `json:"status"` // HTTP status of the answer; 0: there was none
	Error     string `json:"error"`
}
