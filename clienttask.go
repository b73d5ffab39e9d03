package picket

import (
	"crypto/sha256"
	"encoding/hex"
	"net/url"
	"strings"
	"time"
)

// ClientTask says at which endpoint a client submitted a task, and by which ids the client knows it. The client is
// the key in Task.CreatedBy.
type ClientTask struct {
	// Role is the role of the pool that it was submitted to.
	Role string `json:"role,omitempty"`
	// AgentID and Incarnation name the instance of the pool that the task is for. If it is gone, any agent of the
	// pool runs the task. Both are zero for a task of the pool.
	AgentID     string `json:"agentId,omitempty"`
	Incarnation int64  `json:"incarnation,omitzero"`
	// ContextID groups tasks of one conversation. The client chose it, or the server made it.
	ContextID string `json:"contextId"`
	// MessageID is the client's id of the message that became the task.
	MessageID string `json:"messageId"`
	// TaskID is the id that the client chose for the task, or empty.
	TaskID string `json:"taskId,omitempty"`
	// TakesMessage says that the client takes a message as the answer, instead of a task: the tool reply.
	TakesMessage bool `json:"takesMessage,omitzero"`

	// MaxOpen is how many tasks of the client may be open at once, and MaxQueue how many may wait in the queue of
	// the pool. A task beyond one of them is refused with CodeQuota. 0 stands for no limit. They are not stored.
	MaxOpen  int `json:"-"`
	MaxQueue int `json:"-"`

	// Closed says that the instance takes no new tasks. A new one is refused with CodeAgentDraining, and a
	// repeated request gets its task. It is not stored.
	Closed bool `json:"-"`

	// Push is the push configuration that the task begins with, or nil. It is stored apart.
	Push *PushConfig `json:"-"`
}

// ClientTaskQuery selects tasks that clients have submitted at endpoints, the latest change of state first. Filters
// are AND-ed.
type ClientTaskQuery struct {
	Client    string // the key that submitted them; empty: any
	Role      string // of the pool; empty: any
	AgentID   string // the instance that they are for; empty: any
	ContextID string
	// States are the states that are asked for, and Handoffs the kinds of hand-offs for which tasks may wait. All of
	// them empty: all tasks.
	// TaskFailed stands for those that failed otherwise than by the rejection of an agent.
	States   []TaskState
	Rejected bool // also tasks that agents have rejected
	Handoffs []HandoffKind
	Since    Instant // in their state since this instant or later
	Emitted  bool    // with what their agents have emitted; such a page can be short
	Limit    int     // 1 to 100, default 50
	Cursor   string  // from the previous page
}

// ClientTaskPage is a page of such tasks with all their details. Total counts those of all pages, up to the 2,000 that
// are looked at.
type ClientTaskPage struct {
	Tasks      []Task
	Total      int64
	NextCursor string // empty: there are no more
}

// Bounds of push configurations.
const (
	MaxTaskPushes      = 5       // of one task
	MaxClientPushes    = 1000    // of one client
	MaxPushID          = 128     // bytes of an id
	MaxPushToken       = 1024    // bytes of a token
	MaxPushCredentials = 4 << 10 // bytes of credentials
)

// PushConfig is where the client of a task wants to be told by push notifications what happens to the task. Token and
// Credentials are secrets: they are stored sealed, and nothing shows them.
type PushConfig struct {
	TaskID string
	// ID identifies it among those of the task. Empty: one is made of the URL, so that a repeated request makes no
	// second configuration.
	ID  string
	URL Secret
	// Token is sent with each notification, and is the key of its signature. Empty: there is none.
	Token Secret
	// Scheme and Credentials are sent as the header Authorization, if there are credentials.
	Scheme      string
	Credentials Secret
}

// PushTurn is a push configuration with something to send, which one deliverer has for itself until PushTurnTTL is
// over. Without one ID is empty.
type PushTurn struct {
	PushConfig
	TurnID string
	// Client is the key that has submitted the task.
	Client string
	// Name stands for the configuration in the ids of notifications. It is never used again.
	Name     string
	Cursor   int64 // how many updates were sent before
	Failures int   // in a row
	// Updates are the next ones, oldest first. There can be more.
	Updates []TaskUpdate
	// HeldSince is not after the store made the claim, by the clock of this process.
	HeldSince time.Time
	// Sealed says that the configuration was sealed with a key that is not here, so that its URL is not known.
	Sealed bool
}

// PushTurnTTL is how long one deliverer has a push configuration for itself, in store time. Each step begins it again.
const PushTurnTTL = 30 * time.Second

// TaskUpdate is something that has happened to a task: a change of its state, an emission, or its result. Not every
// change of state is one for the client.
type TaskUpdate struct {
	Seq int64 // counts the updates of the task since it has had push configurations
	// Emission is the number of an emission, else 0. Result stands for the result of the task.
	Emission int64
	Result   bool
	// From and To are the states of a change, and At is its instant.
	From, To TaskState
	At       Instant
	// Handoff is the hand-off that begins or ends with the change. Only its id, kind, question and options are known.
	Handoff *Handoff
}

// PushStep says how far a push configuration was served under a claim.
type PushStep struct {
	TaskID  string
	ID      string
	TurnID  string
	From    int64 // the cursor before
	To      int64 // the cursor after
	Outcome PushOutcome
	Delay   time.Duration // of PushFailed and PushReleased, until the next try
}

// PushOutcome is what came of a step.
type PushOutcome string

const (
	PushTaken    PushOutcome = "taken"    // it took an update, or the client is not told about it; the claim goes on
	PushReleased PushOutcome = "released" // the claim is given back
	PushFailed   PushOutcome = "failed"   // given back, to be tried again after Delay
	PushGone     PushOutcome = "gone"     // the receiver answered 410 Gone; the configuration is deleted
)

// PushState is what a step leaves a push configuration in.
type PushState string

const (
	PushMore    PushState = "more"     // the claim goes on
	PushIdle    PushState = "idle"     // the claim is over
	PushDone    PushState = "done"     // the end of the task was delivered, and the configuration is deleted
	PushGivenUp PushState = "given_up" // it failed for too long, or its receiver or key is gone, and it is deleted
)

// pushIDCharacters and schemeCharacters are those of ids of push configurations, which stand in paths of URLs, and
// those of the names of schemes of authentication (RFC 9110).
const (
	alphanumerics    = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	pushIDCharacters = alphanumerics + "-._~"
	schemeCharacters = alphanumerics + "!#$%&'*+-.^_`|~"
)

// CheckPushID refuses an id that no push configuration has.
func CheckPushID(id string) error {
	if id == "" || len(id) > MaxPushID || strings.Trim(id, pushIDCharacters) != "" || strings.Trim(id, ".") == "" {
		return Invalid("/id", "Use 1 to 128 letters, digits and -._~, such as a UUID.",
			"the id of a push configuration is not valid")
	}
	return nil
}

// Normalize refuses a configuration that is out of bounds, and fills in its id. Whether its address may be called is
// checked where calls are made. No error repeats a part of the configuration.
func (c *PushConfig) Normalize() error {
	if err := c.checkURL(); err != nil {
		return err
	}
	if c.ID == "" {
		sum := sha256.Sum256([]byte(c.URL))
		c.ID = "push-" + hex.EncodeToString(sum[:12])
	}
	switch {
	case !isHeaderText(c.Token.Reveal(), MaxPushToken):
		return Invalid("/token", "Send at most 1024 printable ASCII characters, without a blank at either end.",
			"the token cannot be sent in a header")
	case len(c.Scheme) > 64 || strings.Trim(c.Scheme, schemeCharacters) != "":
		return Invalid("/authentication/scheme", "Send the name of an HTTP authentication scheme, such as Bearer.",
			"the scheme is not the name of one")
	case c.Scheme == "" && c.Credentials != "":
		return Invalid("/authentication/scheme", "Send the name of an HTTP authentication scheme, such as Bearer.",
			"scheme is required with credentials")
	case !isHeaderText(c.Credentials.Reveal(), MaxPushCredentials):
		return Invalid("/authentication/credentials",
			"Send at most 4096 printable ASCII characters, without a blank at either end.",
			"the credentials cannot be sent in a header")
	}
	return CheckPushID(c.ID)
}

func (c *PushConfig) checkURL() error {
	u, err := url.Parse(c.URL.Reveal())
	switch {
	case c.URL == "":
		return Invalid("/url", "Send an absolute https URL.", "url is required")
	case len(c.URL) > 2048:
		return Invalid("/url", "Send a URL of at most 2048 bytes.", "the URL has %d bytes", len(c.URL))
	case err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Hostname() == "":
		return Invalid("/url", "Send an absolute https URL.", "url is not the URL of a web server")
	case u.User != nil:
		return Invalid("/url", "Send them as authentication.", "the URL holds a user name or a password")
	case u.Fragment != "":
		return Invalid("/url", "Leave out what follows #: it is not sent.", "the URL has a fragment")
	}
	return nil
}

// isHeaderText reports whether a text can be sent in a header as it is: printable ASCII without a blank at either end.
func isHeaderText(s string, most int) bool {
	unprintable := func(r rune) bool { return r < ' ' || r > '~' }
	return len(s) <= most && !strings.ContainsFunc(s, unprintable) && strings.Trim(s, " ") == s
}
