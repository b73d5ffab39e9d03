package picket

import "time"

// RunKeyLifetime is how long a run key lives after it was made or last renewed.
const RunKeyLifetime = 24 * time.Hour

// MaxRunKeys is how many run keys of one key may live at once.
const MaxRunKeys = 256

// RunKeyRequest is the body of POST /api/v1/run-keys.
type RunKeyRequest struct {
	AgentID string `json:"agentId"`
}

// Normalize checks the request.
func (r *RunKeyRequest) Normalize() error {
	if r.AgentID == "" {
		return Invalid("/agentId", "Send the id of the agent that the key is for.", "agentId is required")
	}
	return CheckName("/agentId", r.AgentID)
}

// NewRunKey is the answer. Key is shown only in it.
type NewRunKey struct {
	KeyID     string  `json:"keyId"`
	Key       Secret  `json:"key"`
	AgentID   string  `json:"agentId"`
	ExpiresAt Instant `json:"expiresAt"`
}
