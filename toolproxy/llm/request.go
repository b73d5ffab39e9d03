package llm

import (
	"bytes"
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

// body reads a request whole, at most maxBody. A compressed one is passed on
// uncompressed: nobody can bound the price of what he cannot read.
func (l *forwarder) body(c echo.Context) ([]byte, error) {
	r := c.Request()
	encoding := strings.ToLower(r.Header.Get(echo.HeaderContentEncoding))
	r.Header.Del(echo.HeaderContentEncoding)
	raw, err := web.ReadBody(c, maxBody, echo.MIMEApplicationJSON)
	if err != nil {
		return nil, err
	}
	switch encoding {
	case "", "identity":
		return raw, nil
	case "gzip":
		return gunzip(raw)
	}
	return nil, picket.Refuse(picket.CodeUnsupportedMedia, "Send the body uncompressed or with gzip.",
		"Content-Encoding %q is not accepted", web.Shortened(encoding))
}

func gunzip(raw []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip").WithCause(err)
	}
	plain, err := io.ReadAll(io.LimitReader(z, maxBody+1))
	switch {
	case err != nil:
		return nil, picket.Invalid("", "Send a whole gzip stream.", "the body is not gzip to its end").WithCause(err)
	case len(plain) > maxBody:
		return nil, picket.Refuse(picket.CodeTooLarge, "Send less.", "the body has more than %d bytes uncompressed",
			maxBody).With("limit", maxBody)
	}
	return plain, nil
}

// request holds the members of a request's body that decide its price, and their
// positions in the body.
type request struct {
	body           []byte
	model          string
	stream         bool
	wantsUsage     bool         // a stream's usage was asked for
	choices        int64        // answers asked for
	maxOutput      int64        // most tokens of each answer; 0: not said
	limits         []bodyMember // the members that say so
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
	nullToolCalls []bodyMember // what would say so and says nothing
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

// discardBody lets go of the body, which has been sent by then.
func (q *request) discardBody() {
	q.body, q.members, q.limits, q.nullLimits, q.nullToolCalls, q.streamOptions = nil, nil, nil, nil, nil, bodyMember{}
}

func invalidBody(err error) error {
	return picket.Invalid("", "Send one JSON object.", "the body is not a JSON object").WithCause(err)
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
	var refusal *picket.Error
	if errors.As(err, &refusal) {
		return err
	}
	if err != nil {
		return picket.Invalid("/"+web.Shortened(m.name), "Send it as the API asks for it.", "%s cannot be read",
			web.Shortened(m.name)).
			WithCause(err)
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
