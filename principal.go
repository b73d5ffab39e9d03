package picket

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"
)

// Scope is a right of an API key.
type Scope string

const (
	ScopeClient   Scope = "client"   // submit tasks through A2A, see its own tasks; nothing else
	ScopeAgent    Scope = "agent"    // acquire leases, read tasks
	ScopeReviewer Scope = "reviewer" // read everything but keys; decide hand-offs and reviews
	ScopeOperator Scope = "operator" // all of reviewer; submit, acquire, cancel, retry, expire, pause
	ScopeAdmin    Scope = "admin"    // everything, keys included
)

// Scopes are all scopes, weakest first.
var Scopes = []Scope{ScopeClient, ScopeAgent, ScopeReviewer, ScopeOperator, ScopeAdmin}

// Principal is who an API key speaks for.
type Principal struct {
	KeyID     string
	Name      string
	Namespace string
	Scopes    []Scope
	// Parent is the key that made this one, and AgentID the only agent it may act
	// for. Both are empty unless it is a run key.
	Parent  string
	AgentID string
	// Client are the limits of a key with [ScopeClient], and nil for any other key.
	Client *ClientLimits
}

// IsRunKey reports whether the principal is the adapter of one agent id.
func (p Principal) IsRunKey() bool { return p.AgentID != "" }

// May reports whether the principal holds any of the scopes, or admin.
func (p Principal) May(any ...Scope) bool {
	if slices.Contains(p.Scopes, ScopeAdmin) {
		return true
	}
	return slices.ContainsFunc(any, func(s Scope) bool { return slices.Contains(p.Scopes, s) })
}

// maxKey bounds a presented key, in bytes.
const maxKey = 256

// KeyNamespace reads the namespace in an API key: pkk_<namespace>_<random>.
// Whether there is such a key, only the engine of the namespace knows.
func KeyNamespace(key string) (namespace string, ok bool) {
	rest, ok := strings.CutPrefix(key, KeyPrefix)
	if !ok || len(key) > maxKey {
		return "", false
	}
	namespace, _, ok = strings.Cut(rest, "_")
	return namespace, ok && CheckNamespace("namespace", namespace) == nil
}

// APIKey is a key as it is listed; the secret itself is shown only once.
type APIKey struct {
	KeyID     string  `json:"keyId"`
	Name      string  `json:"name"`
	Scopes    []Scope `json:"scopes"`
	CreatedAt Instant `json:"createdAt"`
	ExpiresAt Instant `json:"expiresAt"` // null: never
	RevokedAt Instant `json:"revokedAt"` // null: it was not
	// Leases says whether the revocation ended or kept the leases of the key.
	// It is empty while the key is not revoked.
	Leases KeyLeases `json:"leases,omitempty"`
	// ParentKeyID is the key that made a run key, and AgentID the agent that the
	// run key is for. Both are empty for any other key.
	ParentKeyID string `json:"parentKeyId,omitempty"`
	AgentID     string `json:"agentId,omitempty"`
	// Client are the limits of a key with [ScopeClient], and nil for any other key.
	Client *ClientLimits `json:"client,omitempty"`
}

// KeyLeases is what the revocation of a key did to the leases that it acquired.
type KeyLeases string

const (
	KeyLeasesEnded KeyLeases = "ended" // all of them are void
	KeyLeasesKept  KeyLeases = "kept"  // they go on
)

// KeyRevocation is the body of DELETE /api/v1/keys/{id}.
type KeyRevocation struct {
	// KeepLeases says whether the leases that the key acquired go on. Without it
	// those of a key with scope agent end, and those of any other key go on.
	KeepLeases *bool `json:"keepLeases,omitempty"`
}

// KeyRequest is the body of POST /api/v1/keys.
type KeyRequest struct {
	Name      string  `json:"name"`
	Scopes    []Scope `json:"scopes"`
	ExpiresAt Instant `json:"expiresAt,omitempty"` // zero: never
	// Client are the limits of a key with [ScopeClient], which needs them. Any other
	// key has none.
	Client *ClientLimits `json:"client,omitempty"`
}

// Normalize checks the name, the scopes and the limits, and fills in the defaults of
// the limits. Whether ExpiresAt has passed, it does not check.
func (r *KeyRequest) Normalize() error {
	if strings.TrimSpace(r.Name) == "" || len(r.Name) > 128 {
		return Invalid("/name", "Say in 1 to 128 bytes who or what uses the key.",
			"name is required and has at most 128 bytes")
	}
	if len(r.Scopes) == 0 {
		return Invalid("/scopes", `Send for example {"scopes":["agent"]}.`, "a key needs at least one scope")
	}
	for i, s := range r.Scopes {
		if !slices.Contains(Scopes, s) {
			return Invalid(fmt.Sprint("/scopes/", i), "Send one of: "+ScopeNames()+".", "%.64q is not a scope", s)
		}
	}
	return r.normalizeClient()
}

// normalizeClient checks that the key has limits if and only if it is a client key.
func (r *KeyRequest) normalizeClient() error {
	switch isClient := slices.Contains(r.Scopes, ScopeClient); {
	case isClient && len(r.Scopes) > 1:
		return Invalid("/scopes", "Make one key with scope client, and another one with the other scopes.",
			"a key with scope client has no other scope")
	case isClient && r.Client == nil:
		return Invalid("/client", `Send the roles that it may use, for example {"client":{"roles":["builder"]}}.`,
			"a key with scope client needs limits")
	case !isClient && r.Client != nil:
		return Invalid("/client", "Leave client out, or send the scope client alone.",
			"only a key with scope client has these limits")
	case isClient:
		limits := *r.Client // the caller keeps its own
		r.Client = &limits
		return r.Client.Normalize()
	}
	return nil
}

// ScopeNames lists the names of all scopes for people, weakest first.
func ScopeNames() string {
	names := make([]string, len(Scopes))
	for i, s := range Scopes {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}

// NewKey answers POST /api/v1/keys.
type NewKey struct {
	KeyID string `json:"keyId"`
	Key   Secret `json:"key"`
}

// Caller is who asks for a change through the control plane.
type Caller struct {
	Actor       string      // the key id, or "reaper"; written into events
	Idempotency Idempotency // zero when no Idempotency-Key was sent
	// Key is the API key that a lease is acquired with: the lease remembers it, and
	// it has to hold in the step of the grant. Empty for a caller without a key.
	Key string
	// Operator may act for agents that another principal has registered.
	Operator bool
}

// Idempotency identifies a request so that its effect happens once: both members are
// hex SHA-256, Key over the caller, the route and the Idempotency-Key, Body
// over the body. The same Key with another Body is refused.
type Idempotency struct {
	Key  string
	Body string
}

// A session is a person's login at the console: a key was shown once, and a
// secret in a cookie stands for it until the session ends. The key is asked
// again with every request, so a revoked key ends its sessions at once.
const (
	// LoginLifetime is the longest a session lasts, however busy it is.
	LoginLifetime = 12 * time.Hour
	// LoginIdleTimeout is how long a session lasts without a request.
	LoginIdleTimeout = 2 * time.Hour
)

// Login is an open login.
type Login struct {
	Principal Principal
	OpenedAt  Instant
	ExpiresAt Instant // LoginLifetime after OpenedAt
}

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

// Secret is a string that must not be logged: it prints as [redacted] through
// fmt and slog. JSON carries it in full, for it has to reach its owner.
type Secret string

const redacted = "[redacted]"

// String returns [redacted].
func (Secret) String() string { return redacted }

// GoString returns [redacted] for %#v.
func (Secret) GoString() string { return redacted }

// LogValue is [redacted] in a log.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// Reveal returns the secret itself.
func (s Secret) Reveal() string { return string(s) }
