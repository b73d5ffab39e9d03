package moves

import "github.com/picket-dev/picket"

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
	picket.EventKeyCreated:     AuditAlways,
	picket.EventKeyRevoked:     AuditAlways,
	picket.EventLoginOpened:    AuditAlways,
	picket.EventLoginClosed:    AuditAlways,
	picket.EventPaused:         AuditAlways,
	picket.EventResumed:        AuditAlways,
	picket.EventWebhookCreated: AuditAlways,
	picket.EventWebhookDeleted: AuditAlways,
	picket.EventWebhookRevived: AuditAlways,
	picket.EventStoreAdopted:   AuditAlways,

	picket.EventPolicyWritten:    AuditAlways,
	picket.EventPolicyDeleted:    AuditAlways,
	picket.EventPolicyRolledBack: AuditAlways,
	picket.EventSessionPrompted:  AuditAlways,
	picket.EventSessionStopping:  AuditAlways,

	picket.EventTaskSubmitted:  AuditPerson,
	picket.EventTaskCancelled:  AuditPerson,
	picket.EventTaskRetried:    AuditPerson,
	picket.EventTaskApproved:   AuditPerson,
	picket.EventTaskRejected:   AuditPerson,
	picket.EventTaskAnswered:   AuditPerson,
	picket.EventTaskFinished:   AuditPerson,
	picket.EventHandoffClaimed: AuditPerson,
	picket.EventBudgetToppedUp: AuditPerson,
	picket.EventLeaseExpired:   AuditPerson,
	picket.EventLeaseReleased:  AuditPerson,
	picket.EventAgentLifecycle: AuditPerson,
	picket.EventAgentCommand:   AuditPerson,
	picket.EventMessageSent:    AuditPerson,

	picket.EventInvariantRepaired: AuditPerson,
}
