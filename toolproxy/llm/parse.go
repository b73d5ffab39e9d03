package llm

import (
	"bytes"
	"errors"
	"io"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

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
