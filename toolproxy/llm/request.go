package llm

import (
	"bytes"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
)

// request holds the members of a request's body that decide its price, and their
// positions in the body.
type request struct {
	body           []byte
	model          string
	stream         bool
	wantsUsage     bool         // a stream's usage was asked for
	choices        int64        // answers asked for
	maxOutput      int64        // most tokens of each answer; 0: not said
	limits         []bodyMember // the members that set it
	nullLimits     []bodyMember // those that are there and say nothing
	thinkingBudget int64        // tokens that thinking may take: the limit has to be above
	insertAt       int          // behind the opening brace: where a member can be put in
	streamOptions  bodyMember   // stream_options
	usesExternal   bool         // it uses content that is not in it
	// the vendor may shorten the conversation before it answers
	compacts      bool
	members       []bodyMember // all of them, in their order
	hosted        []hostedTool // tools that the vendor runs
	maxToolCalls  int64        // most uses of them together; 0: not said
	nullToolCalls []bodyMember // the members that would set it and are null
	// a limit of their uses together has to be put in
	insertToolCalls bool
}

// bodyMember is a member of the body's object and where its value stands.
type bodyMember struct {
	name  string
	value jsontext.Value
	start int
	end   int
}

// discardBody lets go of the body, which has been sent by then.
func (q *request) discardBody() {
	q.body, q.members, q.limits, q.nullLimits, q.nullToolCalls, q.streamOptions = nil, nil, nil, nil, nil, bodyMember{}
}

func invalidBody(err error) error {
	return picket.Invalid("", "Send one JSON object.", "the body is not a JSON object").WithCause(err)
}

func wholeNumber(v jsontext.Value) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err == nil && n > picket.MaxNumber {
		err = strconv.ErrRange
	}
	return n, err
}

// itemsOf are the messages of a prompt; a text alone is one.
func itemsOf(v jsontext.Value) (items []jsontext.Value) {
	dec := jsontext.NewDecoder(bytes.NewReader(v))
	if t, err := dec.ReadToken(); err != nil || t.Kind() != '[' {
		return []jsontext.Value{v}
	}
	for dec.PeekKind() != ']' {
		item, err := dec.ReadValue()
		if err != nil {
			break
		}
		items = append(items, item.Clone())
	}
	return items
}

// isEmptyValue reports whether a member with this value has no effect.
func isEmptyValue(v jsontext.Value) bool {
	switch v.Kind() {
	case 'n', jsontext.KindInvalid:
		return true
	case '[':
		return len(itemsOf(v)) == 0
	}
	return false
}

// hostedTool is a tool that the vendor runs on its own while it answers, for a fee
// beside the tokens.
type hostedTool struct {
	name        string // that of its price, without llm_
	uses        int64  // most uses that its definition allows; 0: it does not say
	limitAt     int    // in the body, behind the opening brace of its definition; 0: not to be changed
	insertLimit bool   // a limit of its uses has to be put in there
}

// hasHostedTool reports whether a prompt offers this hosted tool.
func (q *request) hasHostedTool(name string) bool {
	return slices.ContainsFunc(q.hosted, func(h hostedTool) bool { return h.name == name })
}
