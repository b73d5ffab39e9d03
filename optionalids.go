package picket

import "github.com/go-json-experiment/json/jsontext"

// The bodies below have ids that may be left out. Each OptionalIDs returns their
// JSON pointers, so that the decoder can refuse an empty string for one of them.

// OptionalIDs implements the check of empty ids.
func (TaskSpec) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/role", "/agent", "/fixes"}
}

// OptionalIDs implements the check of empty ids.
func (Registration) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/agent_id", "/role_id"}
}

// OptionalIDs implements the check of empty ids.
func (AgentCommand) OptionalIDs() []jsontext.Pointer { return []jsontext.Pointer{"/task_id"} }

// OptionalIDs implements the check of empty ids.
func (AcquireRequest) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/agentId", "/role"}
}

// OptionalIDs implements the check of empty ids.
func (AdvanceRequest) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/acquire/agentId", "/acquire/role"}
}

// OptionalIDs implements the check of empty ids.
func (BulkApproval) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/filter/role", "/filter/parent"}
}
