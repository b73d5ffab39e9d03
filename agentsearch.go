package picket

import "cmp"

// AgentSearch asks to whom an agent can delegate: the body of POST /v1/tools/find_agents.
type AgentSearch struct {
	Role  string   `json:"role"`  // of the pool; empty: all
	Needs []string `json:"needs"` // capabilities that a member must have, all of them
}

// Check refuses a search that is out of bounds, and sorts the needs.
func (s *AgentSearch) Check() error {
	needs, err := NormalizeCapabilities("/needs", s.Needs)
	s.Needs = needs
	return cmp.Or(CheckOptionalName("/role", s.Role), err)
}

// FoundPools answers an [AgentSearch]. It names no agent and no machine.
type FoundPools struct {
	Pools []FoundPool `json:"pools"` // by role; of 50 roles at most
	// More is set when there are more pools, or more members than were looked at.
	More   bool   `json:"more"`
	Nudge  *Nudge `json:"nudge,omitempty"`
	Unread int    `json:"unread,omitzero"` // how many messages wait for the agent
}

// FoundPool is what one role has to offer.
type FoundPool struct {
	Role         string   `json:"role"`
	Members      int      `json:"members"`      // that live, take tasks and have what is needed
	Capabilities []string `json:"capabilities"` // of these members, 64 at most
	// FreeSlots is how many more tasks they take at once, as their last heartbeats say.
	FreeSlots int `json:"freeSlots"`
	// Unlimited is set when a member states no limit. It is not part of FreeSlots.
	Unlimited bool `json:"unlimited"`
}
