package toolproxy

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// body reads a request whole, at most maxLLMBody. A compressed one is passed on
// uncompressed: nobody can bound the price of what he cannot read.
func (l *llm) body(c echo.Context) ([]byte, error) {
	r := c.Request()
	encoding := strings.ToLower(r.Header.Get(echo.HeaderContentEncoding))
	r.Header.Del(echo.HeaderContentEncoding)
	raw, err := web.ReadBody(c, maxLLMBody, echo.MIMEApplicationJSON)
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "", "identity":
		return raw, nil
	case "gzip":
		return gunzip(raw)
	}
	return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send the body uncompressed or with gzip.", "Content-Encoding %q is not accepted", clip(encoding))
}

func gunzip(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip").Because(err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxLLMBody+1))
	switch {
	case err != nil:
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip to its end").Because(err)
	case len(plain) > maxLLMBody:
		return nil, picket.Refuse(picket.CodeTooLarge, "Send less.", "the body has more than %d bytes uncompressed", maxLLMBody).With("limit", maxLLMBody)
	}
	return plain, nil
}

// prompt is what of a request's body concerns its price, and where it stands.
type prompt struct {
	body    []byte
	model   string
	stream  bool
	usage   bool     // a stream's usage was asked for
	copies  int64    // answers asked for
	output  int64    // most tokens of each answer; 0: not said
	limits  []member // the members that say so
	unset   []member // those that are there and say nothing
	think   int64    // tokens that thinking may take: the limit has to be above
	at      int      // behind the opening brace: where a member can be put in
	opts    member   // stream_options
	refers  bool     // it uses content that is not in it
	members []member // all of them, in their order
}

// member is a member of the body's object and where its value stands.
type member struct {
	name       string
	value      jsontext.Value
	start, end int
}

// parsePrompt finds what matters in a body.
func parsePrompt(body []byte, d *dialect) (*prompt, error) {
	q := &prompt{body: body, copies: 1}
	dec := jsontext.NewDecoder(bytes.NewReader(body))
	open, err := dec.ReadToken()
	if err != nil || open.Kind() != '{' {
		return nil, picket.Invalid("", "Send the request as a JSON object.", "the body is no JSON object")
	}
	q.at = int(dec.InputOffset())
	for dec.PeekKind() == '"' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, badPrompt(err)
		}
		word := name.String()
		value, err := dec.ReadValue()
		if err != nil {
			return nil, badPrompt(err)
		}
		end := int(dec.InputOffset())
		m := member{word, jsontext.Value(body[end-len(value) : end]), end - len(value), end}
		q.members = append(q.members, m)
		if err := q.take(m, d); err != nil {
			return nil, err
		}
	}
	if _, err := dec.ReadToken(); err != nil {
		return nil, badPrompt(err)
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, badPrompt(errors.New("there is more behind the object"))
	}
	if q.model == "" {
		return nil, picket.Invalid("/model", "Name the model.", "model is required")
	}
	return q, nil
}

func badPrompt(err error) error {
	return picket.Invalid("", "Send one JSON object.", "the body is no JSON object").Because(err)
}

// weighty are members that make a call dearer, or say what it is. An upstream
// that does not tell capitals would read one here that nobody has looked at.
var weighty = []string{"model", "stream", "stream_options", "n", "max_tokens", "max_completion_tokens", "max_output_tokens", "service_tier", "speed",
	"messages", "input", "previous_response_id", "conversation", "prompt", "container", "mcp_servers"}

// dearer are values for which vendors charge more than their prices by token.
var dearer = map[string]string{"service_tier": "priority", "speed": "fast"}

// weigh refuses what would cost more than anybody can tell here.
func weigh(m member) error {
	if slices.ContainsFunc(weighty, func(name string) bool { return name != m.name && strings.EqualFold(name, m.name) }) {
		return picket.Invalid("/"+clip(m.name), "Write it in lower case.", "%s is no member of the API", clip(m.name))
	}
	var value string
	if dear := dearer[m.name]; dear != "" && json.Unmarshal(m.value, &value) == nil && strings.EqualFold(value, dear) {
		return picket.Refuse(picket.CodeUnpricedTool, "Leave "+m.name+" out.", "nobody has said what %s %q costs", m.name, dear)
	}
	return nil
}

// take notes a member that matters.
func (q *prompt) take(m member, d *dialect) (err error) {
	if err := weigh(m); err != nil {
		return err
	}
	switch name := m.name; {
	case name == "model":
		err = json.Unmarshal(m.value, &q.model)
	case name == "stream":
		err = json.Unmarshal(m.value, &q.stream)
	case name == "n" && d == openAIChat && m.value.Kind() != 'n':
		if q.copies, err = wholeNumber(m.value); err == nil && q.copies < 1 {
			err = errors.New("out of range")
		}
	case name == "stream_options" && d == openAIChat:
		q.opts = m
		var opts struct {
			IncludeUsage bool `json:"include_usage"`
		}
		err = json.Unmarshal(m.value, &opts)
		q.usage = opts.IncludeUsage
	case name == "thinking" && m.value.Kind() == '{':
		var thinking struct {
			Budget int64 `json:"budget_tokens"`
		}
		err = json.Unmarshal(m.value, &thinking)
		q.think = thinking.Budget
	case slices.Contains(d.limits, name) && m.value.Kind() == 'n':
		q.unset = append(q.unset, m)
	case slices.Contains(d.limits, name):
		var n int64
		if n, err = wholeNumber(m.value); err == nil && n < 1 {
			err = errors.New("out of range")
		}
		q.output, q.limits = max(q.output, n), append(q.limits, m)
	case (name == "previous_response_id" || name == "conversation" || name == "prompt") && d == openAIResponses && m.value.Kind() != 'n':
		q.refers = true
	case name == "container" && m.value.Kind() != 'n', name == "mcp_servers" && m.value.Kind() != 'n':
		q.refers = true
	}
	if err != nil {
		return picket.Invalid("/"+clip(m.name), "Send it as the API asks for it.", "%s cannot be read", clip(m.name)).Because(err)
	}
	return nil
}

func wholeNumber(v jsontext.Value) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err == nil && n > picket.MaxNumber {
		err = strconv.ErrRange
	}
	return n, err
}

// rewritten is the body with the output limited to most tokens, and the usage
// of a stream asked for. What need not change keeps its bytes.
func (q *prompt) rewritten(d *dialect, most int64) []byte {
	type edit struct {
		start, end int
		text       string
	}
	var edits []edit
	insert := ""
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
