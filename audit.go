package picket

// An AuditRule says which events of a type are copied to the audit log.
type AuditRule string

const (
	// AuditAlways copies every event of a type.
	AuditAlways AuditRule = "always"
	// AuditPerson copies an event that a person caused: its actor is an API key.
	// An agent that acts for itself is named by its own id, and is not copied
	// even if that id looks like the id of a key.
	AuditPerson AuditRule = "person"
)

// Audited lists the types of events that the audit log contains, with their rules:
// events of people, keys, settings, decisions about money, stops and drains. An
// agent must not be able to cause any of them, because a flood of them would
// displace the others.
var Audited = map[string]AuditRule{
	EventKeyCreated:     AuditAlways,
	EventKeyRevoked:     AuditAlways,
	EventLoginOpened:    AuditAlways,
	EventLoginClosed:    AuditAlways,
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
