package picket

// Webhook is a target that events are posted to, in order and at least once.
type Webhook struct {
	WebhookID string        `json:"webhookId"`
	Name      string        `json:"name"`
	URL       string        `json:"url"`
	Types     []string      `json:"types"` // event types; empty: NoticeTypes
	Format    WebhookFormat `json:"format"`
	State     WebhookState  `json:"state"`
	// Cursor is the sequence number of the last event the target has taken, or
	// that was passed over because it is of another type.
	Cursor        string  `json:"cursor"`
	Failures      int     `json:"failures"` // in a row
	LastStatus    int     `json:"lastStatus"`
	LastError     string  `json:"lastError"`
	NextAttemptAt Instant `json:"nextAttemptAt"`
	CreatedAt     Instant `json:"createdAt"`
	CreatedBy     string  `json:"createdBy"`
}

// WebhookFormat says what a target is sent.
type WebhookFormat string

const (
	WebhookStandard WebhookFormat = "standard" // the event, signed as Standard Webhooks says; the default
	WebhookSlack    WebhookFormat = "slack"    // {"text"}, for incoming webhooks of Slack and what is compatible
)

// WebhookState says whether a target is sent events.
type WebhookState string

const (
	WebhookActive WebhookState = "active"
	WebhookDead   WebhookState = "dead" // failed for too long; revive goes on where it stopped
	WebhookOff    WebhookState = "off"  // answered 410 Gone
)

// WebhookSpec is the body of POST /api/v1/webhooks.
type WebhookSpec struct {
	Name   string        `json:"name"`
	URL    string        `json:"url"`
	Types  []string      `json:"types,omitempty"`
	Format WebhookFormat `json:"format,omitempty"`
}

// NewWebhook answers it. Secret (whsec_…) verifies the signatures and is shown
// only here.
type NewWebhook struct {
	Webhook
	Secret Secret `json:"secret"`
}

// NoticeTypes are the events a person wants to hear of, one for each change
// that needs them or ends something.
var NoticeTypes = []string{
	EventTaskHandoff, EventHandoffOverdue, EventTaskReview, EventTaskCompleted, EventTaskRejected, EventTaskCancelled,
	EventBudgetOverrun, EventStoreAdopted, EventInvariantViolated, EventPaused, EventResumed,
}
