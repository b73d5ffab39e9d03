package picket

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strings"

	"github.com/picket-dev/picket/budget"
)

// A session capability is the credential of the process of an agent session. The adapter makes one for each
// prompt, or one for a process that answers several prompts. It is valid while a prompt is open that was accepted
// with it. The store has its hash alone.

// SessionCapabilityPrefix begins every session capability.
const SessionCapabilityPrefix = "pks_"

// capabilityBytes is how many random bytes a session capability has.
const capabilityBytes = 32

// sessionIDPrefix begins the id of an agent session.
const sessionIDPrefix = "asession_"

// NewSessionCapability makes a capability for a prompt: pks_, the namespace, the ULID of the prompt and 32 random
// bytes in base64url, with dots between them. That of a process, which answers several prompts, has the id of its
// session, asession_ and a ULID, in place of the ULID of a prompt.
func NewSessionCapability(namespace, promptOrSessionID string) Secret {
	random := make([]byte, capabilityBytes)
	_, _ = rand.Read(random) // it never fails: the program ends if the system has no randomness
	id := promptOrSessionID
	if !strings.HasPrefix(id, sessionIDPrefix) {
		_, id, _ = strings.Cut(id, "_")
	}
	return Secret(SessionCapabilityPrefix + namespace + "." + id + "." + base64.RawURLEncoding.EncodeToString(random))
}

// SessionCapabilityHash is what the server keeps of a capability: the SHA-256 of all of its text, in hex.
func SessionCapabilityHash(capability Secret) string {
	sum := sha256.Sum256([]byte(capability.Reveal()))
	return hex.EncodeToString(sum[:])
}

// ParseSessionCapability checks the form of a capability. Whether it is valid is for the store to say.
func ParseSessionCapability(token string) (held LeaseCredential, ok bool) {
	body, ok := strings.CutPrefix(token, SessionCapabilityPrefix)
	parts := strings.Split(body, ".")
	if !ok || len(token) > 256 || len(parts) != 3 || CheckNamespace("", parts[0]) != nil {
		return LeaseCredential{}, false
	}
	random, err := base64.RawURLEncoding.Strict().DecodeString(parts[2])
	if err != nil || len(random) != capabilityBytes {
		return LeaseCredential{}, false
	}
	held = LeaseCredential{Namespace: parts[0], Secret: SessionCapabilityHash(Secret(token)), Side: SideAgent}
	if strings.HasPrefix(parts[1], sessionIDPrefix) {
		held.SessionID = parts[1]
		return held, CheckID("", "asession", held.SessionID) == nil
	}
	held.PromptID = "prompt_" + parts[1]
	return held, CheckID("", "prompt", held.PromptID) == nil
}

// SessionGrant says whose a session capability is.
type SessionGrant struct {
	AgentID     string // for whom messages are sent and read
	SessionID   string
	PromptID    string
	Actor       string       // as whom the log names the session
	RemainingMs int64        // until the capability ends
	Available   budget.Money // what the model calls of the prompt may still cost
}

// LeaseRequired refuses what a session capability does not open.
func LeaseRequired() *Error {
	return Refuse(CodeLeaseRequired,
		"Use get_context, read_messages, send_message, next_task and the models below /llm. Everything else is for the agent of a run, which has a lease.",
		"a session capability does not open this")
}

// checkCapabilityHash refuses what is not the hash of a capability.
func checkCapabilityHash(r CommandResult) error {
	if r.CapabilityHash == "" {
		return nil
	}
	sum, err := hex.DecodeString(r.CapabilityHash)
	switch {
	case r.State != PromptAccepted:
		return Invalid("/capabilityHash", "Send it with accepted.", "capabilityHash came with %s", string(r.State))
	case err != nil || len(sum) != sha256.Size || strings.ToLower(r.CapabilityHash) != r.CapabilityHash:
		return Invalid("/capabilityHash", "Send the SHA-256 of the capability, in lower-case hex.",
			"capabilityHash is not a hash")
	}
	return nil
}
