package picket

// Violation is one thing that the invariant scanner found wrong.
type Violation struct {
	Kind string `json:"kind"` // one of InvariantKinds
	// Subject is the task, hand-off, lane, agent, pool, call, message, session, prompt or day that is wrong.
	Subject  string `json:"subject"`
	Detail   string `json:"detail"` // what is wrong, in words
	Repaired bool   `json:"repaired"`
}

// InspectRequest asks for the next part of a whole pass over a namespace.
type InspectRequest struct {
	// Repair repairs what is safe to repair. Defaults to false.
	Repair bool `json:"repair"`
	// Cursor is Next of the part before. Defaults to "", the beginning.
	Cursor string `json:"cursor"`
}

// Inspection is one part of a pass. A violation can stand in more than one.
type Inspection struct {
	Checked    int64       `json:"checked"` // entries looked at
	Violations []Violation `json:"violations"`
	Next       string      `json:"next"` // "" at the end of the pass
}

// InvariantKinds are the kinds of violations; true are those that a scanner
// repairs. The others are alarms: no repair is known to be safe.
var InvariantKinds = map[string]bool{
	"record_damaged":          false,
	"emissions_differ":        true,
	"push_damaged":            true,
	"push_missing":            true,
	"push_extra":              true,
	"entry_orphaned":          true,
	"state_missing":           true,
	"state_extra":             true,
	"state_score":             true,
	"client_extra":            true,
	"client_missing":          true,
	"client_score":            true,
	"list_missing":            true,
	"list_score":              true,
	"terminal_missing":        true,
	"terminal_extra":          true,
	"run_lost":                false,
	"token_fell":              false,
	"token_differs":           false,
	"lease_wrong":             false,
	"attempt_differs":         false,
	"deadline_missing":        true,
	"deadline_extra":          true,
	"deadline_far":            false,
	"place_wrong":             true,
	"lane_missing":            true,
	"lane_extra":              true,
	"lane_score":              true,
	"head_missing":            true,
	"head_extra":              true,
	"head_score":              true,
	"delayed_missing":         true,
	"delayed_extra":           true,
	"delayed_score":           true,
	"start_extra":             true,
	"gate_missing":            true,
	"bundle_torn":             true,
	"upload_missing":          true,
	"upload_extra":            true,
	"agent_damaged":           false,
	"silence_missing":         true,
	"silence_extra":           true,
	"silence_late":            true,
	"roster_missing":          true,
	"roster_extra":            true,
	"roster_score":            true,
	"pool_count":              true,
	"pool_missing":            true,
	"pool_extra":              true,
	"pool_score":              true,
	"role_missing":            true,
	"role_score":              true,
	"gone_missing":            true,
	"gone_extra":              true,
	"commands_differ":         true,
	"holder_missing":          true,
	"holder_extra":            true,
	"lease_of_gone":           true,
	"key_lease_missing":       true,
	"key_lease_extra":         true,
	"lease_of_revoked":        true,
	"books_differ":            false,
	"held_differs":            false,
	"carved_differs":          false,
	"total_differs":           true,
	"not_given_back":          false,
	"envelope_missing":        false,
	"envelope_kept":           true,
	"prompt_envelope_missing": true,
	"prompt_envelope_extra":   true,
	"envelope_state":          false,
	"hold_missing":            true,
	"hold_extra":              true,
	"call_extra":              true,
	"inflight_extra":          true,
	"audit_differs":           false,
	"handoff_closed":          false,
	"handoff_open":            false,
	"handoff_missing":         true,
	"handoff_extra":           true,
	"message_damaged":         false,
	"message_uncounted":       true,
	"message_score":           true,
	"inbox_missing":           true,
	"inbox_extra":             true,
	"inbox_score":             true,
	"inbox_bytes":             true,
	"sent_missing":            true,
	"session_damaged":         false,
	"session_missing":         true,
	"session_extra":           true,
	"session_score":           true,
	"prompt_missing":          true,
	"prompt_extra":            true,
	"prompt_score":            true,
	"wake_open":               true,
}
