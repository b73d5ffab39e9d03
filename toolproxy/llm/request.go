package llm

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
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

// parseRequest finds what matters in a body.
func parseRequest(body []byte, d *dialect) (*request, error) {
	q := &request{body: body, choices: 1}
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	open, err := dec.ReadToken()
	if err != nil || open.Kind() != '{' {
		return nil, picket.Invalid("", "Send the request as a JSON object.", "the body is not a JSON object")
	}
	q.insertAt = int(dec.InputOffset())
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, invalidBody(err)
		}
		word := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, invalidBody(err)
		}
		end := int(dec.InputOffset())
		m := bodyMember{word, jsontext.Value(body[end-len(value) : end]), end - len(value), end}
		q.members = append(q.members, m)
		if err := q.take(m, d); err != nil {
			return nil, err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, invalidBody(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, invalidBody(errors.New("there is more behind the object"))
	}
	return q, nil
}

// take notes a member that matters.
func (q *request) take(m bodyMember, d *dialect) (err error) {
	if err := checkPriceable(m, d); err != nil {
		return err
	}
	switch name := m.name; {
	case name == "model":
		if err = json.Unmarshal(m.value, &q.model); err == nil {
			err = q.takeTools(m, d)
		}
	case name == "stream":
		err = json.Unmarshal(m.value, &q.stream)
	case name == "n" && d == openAIChat && m.value.Kind() != 'n':
		if q.choices, err = wholeNumber(m.value); err == nil && q.choices < 1 {
			err = errors.New("out of range")
		}
	case name == "stream_options" && d == openAIChat:
		q.streamOptions = m
		var opts struct {
			IncludeUsage bool `json:"include_usage"`
		}
		err = json.Unmarshal(m.value, &opts)
		q.wantsUsage = opts.IncludeUsage
	case name == "thinking" && m.value.Kind() == '{':
		var thinking struct {
			Budget int64 `json:"budget_tokens"`
		}
		err = json.Unmarshal(m.value, &thinking)
		q.thinkingBudget = thinking.Budget
	case slices.Contains(d.limitMembers, name) && m.value.Kind() == 'n':
		q.nullLimits = append(q.nullLimits, m)
	case slices.Contains(d.limitMembers, name):
		var n int64
		if n, err = wholeNumber(m.value); err == nil && n < 1 {
			err = errors.New("out of range")
		}
		q.maxOutput, q.limits = max(q.maxOutput, n), append(q.limits, m)
	case (name == "previous_response_id" || name == "conversation") && d == openAIResponses && m.value.Kind() != 'n':
		q.usesExternal = true
	case name == "thread" && d == anthropicMessages && m.value.Kind() != 'n',
		name == "container" && m.value.Kind() != 'n':
		q.usesExternal = true
	default:
		err = q.takeTools(m, d)
	}
	if _, ok := errors.AsType[*picket.Error](err); ok {
		return err
	}
	if err != nil {
		return picket.Invalid("/"+web.Shortened(m.name), "Send it as the API asks for it.", "%s cannot be read",
			web.Shortened(m.name)).
			WithCause(err)
	}
	return nil
}

// bodyEdit is a change of a body.
type bodyEdit struct {
	start int
	end   int
	text  string
}

// rewrite is the body with the output limited to most tokens, vendors' tools
// to what was reserved for them, and the usage of a stream asked for. What need
// not change keeps its bytes.
func (q *request) rewrite(d *dialect, most int64) []byte {
	edits, insert := q.useLimitEdits()
	if len(q.limits) == 0 && len(q.nullLimits) > 0 {
		edits = append(edits, bodyEdit{q.nullLimits[0].start, q.nullLimits[0].end, strconv.FormatInt(most, 10)})
	} else if len(q.limits) == 0 {
		insert += `"` + d.limitMembers[0] + `":` + strconv.FormatInt(most, 10) + ","
	}
	for _, m := range q.limits {
		if n, _ := wholeNumber(m.value); n > most {
			edits = append(edits, bodyEdit{m.start, m.end, strconv.FormatInt(most, 10)})
		}
	}
	if d == openAIChat && q.stream && !q.wantsUsage {
		if q.streamOptions.value.Kind() == '{' {
			edits = append(edits, bodyEdit{q.streamOptions.start, q.streamOptions.end,
				withUsage(q.streamOptions.value)})
		} else if q.streamOptions.value != nil {
			edits = append(edits, bodyEdit{q.streamOptions.start, q.streamOptions.end, `{"include_usage":true}`})
		} else {
			insert += `"stream_options":{"include_usage":true},`
		}
	}
	if insert != "" {
		edits = append(edits, bodyEdit{q.insertAt, q.insertAt, insert})
	}
	if len(edits) == 0 {
		return q.body
	}
	slices.SortFunc(edits, func(a, b bodyEdit) int { return cmp.Compare(a.start, b.start) })
	out, from := make([]byte, 0, len(q.body)+len(insert)+64), 0
	for _, e := range edits {
		out = append(append(out, q.body[from:e.start]...), e.text...)
		from = e.end
	}
	return append(out, q.body[from:]...)
}

// withUsage sets include_usage among the options of a stream.
func withUsage(options jsontext.Value) string {
	members := map[string]jsontext.Value{}
	if json.Unmarshal(options, &members) != nil {
		return `{"include_usage":true}`
	}
	members["include_usage"] = jsontext.Value("true")
	raw, err := toolproxy.EncodeJSON(members)
	if err != nil {
		return `{"include_usage":true}`
	}
	return string(raw)
}

// useLimitEdits puts in how often vendors' tools may be used where the request does
// not say.
func (q *request) useLimitEdits() (edits []bodyEdit, insert string) {
	uses := strconv.Itoa(defaultMaxUses)
	for _, h := range q.hosted {
		if h.insertLimit {
			edits = append(edits, bodyEdit{h.limitAt, h.limitAt, `"max_uses":` + uses + ","})
		}
	}
	switch {
	case !q.insertToolCalls:
	case len(q.nullToolCalls) > 0:
		edits = append(edits, bodyEdit{q.nullToolCalls[0].start, q.nullToolCalls[0].end, uses})
	default:
		insert = `"max_tool_calls":` + uses + ","
	}
	return edits, insert
}
