package picket

// AuditRule says when an event is copied to the audit log.
type AuditRule string

const (
	// AuditAlways copies every event of a type.
	AuditAlways AuditRule = "always"
	// AuditPerson copies an event that a person caused: its actor is an API key.
	// An agent that acts for itself is named by its own id, and is not copied
	// even if that id looks like the id of a key.
	AuditPerson AuditRule = "person"
)

// Audited are the types of events that the audit log has, with their rules: what
// people do, keys, settings, decisions about money, stops and drains. An agent
// must not be able to cause one, since a flood of them would displace the others.
var Audited = map[string]AuditRule{
	EventKeyCreated:     AuditAlways,
	EventKeyRevoked:     AuditAlways,
	EventSessionOpened:  AuditAlways,
	EventSessionClosed:  AuditAlways,
	EventPaused:         AuditAlways,
	EventResumed:        AuditAlways,
	EventWebhookCreated: AuditAlways,
	EventWebhookDeleted: AuditAlways,
	EventWebhookRevived: AuditAlways,
	EventStoreAdopted:   AuditAlways,
	EventTaskSubmitted:  AuditPerson,
	EventTaskCancelled:  AuditPerson,
	EventTaskRetried:    AuditPerson,
	EventTaskApproved:   AuditPerson,
	EventTaskRejected:   AuditPerson,
	EventTaskAnswered:   AuditPerson,
	EventTaskFinished:   AuditPerson,
	EventHandoffClaimed: AuditPerson,
	EventBudgetToppedUp: AuditPerson,
	EventLeaseExpired:   AuditPerson,
	EventLeaseReleased:  AuditPerson,
	EventAgentLifecycle: AuditPerson,
	EventAgentCommand:   AuditPerson,

	EventInvariantRepaired: AuditPerson,
}
