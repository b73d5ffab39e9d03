package toolproxy

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// edit is a change of a body.
type edit struct {
	start int
	end   int
	text  string
}

// rewritten is the body with the output limited to most tokens, vendors' tools
// to what was reserved for them, and the usage of a stream asked for. What need
// not change keeps its bytes.
func (q *prompt) rewritten(d *dialect, most int64) []byte {
	edits, insert := q.limitUses()
	if len(q.limits) == 0 && len(q.unset) > 0 {
		edits = append(edits, edit{q.unset[0].start, q.unset[0].end, strconv.FormatInt(most, 10)})
	} else if len(q.limits) == 0 {
		insert += `"` + d.limits[0] + `":` + strconv.FormatInt(most, 10) + ","
	}
	for _, m := range q.limits {
		if n, _ := wholeNumber(m.value); n > most {
			edits = append(edits, edit{m.start, m.end, strconv.FormatInt(most, 10)})
		}
	}
	if d == openAIChat && q.stream && !q.usage {
		if q.opts.value.Kind() == '{' {
			edits = append(edits, edit{q.opts.start, q.opts.end, withUsage(q.opts.value)})
		} else if q.opts.value != nil {
			edits = append(edits, edit{q.opts.start, q.opts.end, `{"include_usage":true}`})
		} else {
			insert += `"stream_options":{"include_usage":true},`
		}
	}
	if insert != "" {
		edits = append(edits, edit{q.at, q.at, insert})
	}
	if len(edits) == 0 {
		return q.body
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.start, b.start) })
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
	raw, err := encode(members)
	if err != nil {
		return `{"include_usage":true}`
	}
	return string(raw)
}

// limitUses puts in how often vendors' tools may be used where the request does
// not say.
func (q *prompt) limitUses() (edits []edit, insert string) {
	uses := strconv.Itoa(openUses)
	for _, h := range q.hosted {
		if h.put {
			edits = append(edits, edit{h.at, h.at, `"max_uses":` + uses + ","})
		}
	}
	switch {
	case !q.putCalls:
	case len(q.uncalls) > 0:
		edits = append(edits, edit{q.uncalls[0].start, q.uncalls[0].end, uses})
	default:
		insert = `"max_tool_calls":` + uses + ","
	}
	return edits, insert
}
