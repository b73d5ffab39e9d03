package picket

import "strings"

// AuditRule says when an event is copied to the audit log.
type AuditRule string

const (
	// AuditAlways copies every event of a type.
	AuditAlways AuditRule = "always"
	// AuditPerson copies an event that a person caused: its actor is an API key,
	// and it is not an agent that acts for itself.
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
}

// Audited reports whether the audit log has a copy of the event.
func (e Event) Audited() bool {
	switch Audited[e.Type] {
	case AuditAlways:
		return true
	case AuditPerson:
		return strings.HasPrefix(e.Actor, "key_") && e.Actor != e.AgentID
	}
	return false
}
