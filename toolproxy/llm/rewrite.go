package llm

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/toolproxy"
)

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
