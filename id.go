package picket

import (
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// The letters of ids and names. Loops check them, and not regular expressions, because every call of a lease
// checks several ids.
const (
	lowerCase = "abcdefghijklmnopqrstuvwxyz"
	upperCase = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits    = "0123456789"
)

var (
	ulidLetters       = byteSetOf(digits + "ABCDEFGHJKMNPQRSTVWXYZ")
	alphanumeric      = byteSetOf(lowerCase + upperCase + digits)
	nameLetters       = byteSetOf(lowerCase + upperCase + digits + "_.-")
	capabilityLetters = byteSetOf(lowerCase + upperCase + digits + "_.+#/-")
	labelLetters      = byteSetOf(lowerCase + upperCase + digits + "_./-")
	lowerDigits       = byteSetOf(lowerCase + digits)
	namespaceLetters  = byteSetOf(lowerCase + digits + "-")
)

// A byteSet says of each byte whether it is in the set.
type byteSet [256]bool

func byteSetOf(members string) *byteSet {
	var set byteSet
	for i := range len(members) {
		set[members[i]] = true
	}
	return &set
}

// containsAll reports whether all bytes of s are in the set.
func (set *byteSet) containsAll(s string) bool {
	for i := range len(s) {
		if !set[s[i]] {
			return false
		}
	}
	return true
}

// isWord reports whether s has 1 to longest bytes, of which the first is in one set and all others are in another.
func isWord(s string, longest int, first, others *byteSet) bool {
	return s != "" && len(s) <= longest && first[s[0]] && others.containsAll(s[1:])
}

// isULID reports whether s is a ULID in upper case. The first letter of one is at most 7.
func isULID(s string) bool { return len(s) == 26 && s[0] <= '7' && ulidLetters.containsAll(s) }

func isName(s string) bool       { return isWord(s, 128, alphanumeric, nameLetters) }
func isCapability(s string) bool { return isWord(s, 64, alphanumeric, capabilityLetters) }
func isLabelName(s string) bool  { return isWord(s, 64, alphanumeric, labelLetters) }
func isNamespace(s string) bool  { return isWord(s, 32, lowerDigits, namespaceLetters) }

// CheckID refuses an id that is not kind_ULID. It guards every id that comes
// from outside: a brace in one would change the store's hash slot.
func CheckID(field, kind, id string) error {
	if ulid, ok := strings.CutPrefix(id, kind+"_"); ok && isULID(ulid) {
		return nil
	}
	return Invalid(field, "Copy the id from a listing.",
		"%s is not a %s id: it has the form %s_ and 26 letters and digits", field, kind, kind)
}

var dayEnvelopePattern = lazyregexp.New(`^house(:\d{4}-\d{2}-\d{2})?$`)

// sessionEnvelopePattern are the envelopes of a day that pay for agent sessions. The name - stands for sessions
// without an agent name.
var sessionEnvelopePattern = lazyregexp.New(
	`^(sessions|(wake|prompt):(-|[A-Za-z0-9][A-Za-z0-9_.-]{0,127})):\d{4}-\d{2}-\d{2}$`)

// CheckEnvelopeID refuses what names no envelope: a task's id, house:<UTC date>, or house for today's; the id of a
// prompt of an agent session, or wake:<agent name>:<UTC date>, prompt:<agent name>:<UTC date> or sessions:<UTC date>.
func CheckEnvelopeID(field, id string) error {
	if dayEnvelopePattern().MatchString(id) || isSessionEnvelope(id) || CheckID(field, "task", id) == nil {
		return nil
	}
	return Invalid(field, "Copy the id from a listing; house is the envelope of the day.",
		"%s is neither the id of a task or a prompt nor that of the envelope of a day", field)
}

// CheckTopUpID is CheckEnvelopeID for what can be topped up. The settings limit what agent sessions spend.
func CheckTopUpID(field, id string) error {
	if isSessionEnvelope(id) {
		return Invalid(field, "Raise agents.NAME.wake_budget, prompts_budget or prompt_budget, or wake.budget, in picket.yaml.",
			"an envelope of agent sessions cannot be topped up")
	}
	return CheckEnvelopeID(field, id)
}

func isSessionEnvelope(id string) bool {
	return sessionEnvelopePattern().MatchString(id) || CheckID("", "prompt", id) == nil
}

// CheckName refuses an agent or role id that is not 1 to 128 letters, digits,
// "_", "." or "-", starting with a letter or digit.
func CheckName(field, name string) error {
	if isName(name) {
		return nil
	}
	return Invalid(field, "Use 1 to 128 letters, digits, _ . or -, starting with a letter or digit.",
		"%s is not a valid name", field)
}

// CheckOptionalName is CheckName for a name that may be left out.
func CheckOptionalName(field, name string) error {
	if name == "" {
		return nil
	}
	return CheckName(field, name)
}

// CheckOptionalID is CheckID for an id that may be left out.
func CheckOptionalID(field, kind, id string) error {
	if id == "" {
		return nil
	}
	return CheckID(field, kind, id)
}

// CheckCapability refuses a capability that could not be part of a lane's name.
func CheckCapability(field, tag string) error {
	if isCapability(tag) {
		return nil
	}
	return Invalid(field, "Use 1 to 64 letters, digits or _ . + # / -, starting with a letter or digit.",
		"%s is not a valid capability", field)
}

// CheckNamespace refuses a namespace that could not be part of a key.
func CheckNamespace(field, ns string) error {
	if isNamespace(ns) {
		return nil
	}
	return Invalid(field, "Use 1 to 32 lower-case letters, digits or -.", "%s is not a valid namespace", field)
}

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

// OptionalIDs implements the check of empty ids. An empty one would drop the condition.
func (TopUp) OptionalIDs() []jsontext.Pointer { return []jsontext.Pointer{"/handoffId"} }

// OptionalIDs implements the check of empty ids. An empty one would drop the condition.
func (ExpireRequest) OptionalIDs() []jsontext.Pointer { return []jsontext.Pointer{"/runId"} }

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

// CheckUpstreamNames refuses names of upstreams that leave open whose a tool
// is: a_b_c would be the tool b_c of a, and the tool c of a_b. It returns the
// first name that cannot stay and why; nil when all can.
func CheckUpstreamNames(names []string) (bad string, err error) {
	for i, name := range names {
		if strings.HasPrefix(name+"_", llmNamePrefix) {
			return name,
				fmt.Errorf("the names of its tools would begin as those of calls of language models do, with %s",
					llmNamePrefix)
		}
		for _, other := range names[:i] {
			switch {
			case name == other:
				return name, fmt.Errorf("there are two upstreams %s", name)
			case strings.HasPrefix(name, other+"_"), strings.HasPrefix(other, name+"_"):
				return name,
					fmt.Errorf("the upstreams %s and %s could both have a tool of the same name: one name must not begin with the other and an underscore", other, name)
			}
		}
	}
	return "", nil
}

// llmNamePrefix begins the names under which calls of language models are paid for.
const llmNamePrefix = "llm_"
