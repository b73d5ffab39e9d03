package foreign

import (
	"bytes"
	stdjson "encoding/json"
	"errors"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket/cmd/picket/a2a/agentclient"
)

// exactPart is a part of a message or an artifact whose data is kept as it was written. The library reads numbers as
// floating point, which changes large ones.
type exactPart struct {
	Text      *string            `json:"text,omitempty"`
	Raw       []byte             `json:"raw,omitempty"`
	URL       string             `json:"url,omitempty"`
	Data      stdjson.RawMessage `json:"data,omitempty"`
	MediaType string             `json:"mediaType,omitempty"`
	Filename  string             `json:"filename,omitempty"`
}

// part is the part in the form of the library. It is nil if it holds nothing, or more than one thing.
func (p exactPart) part() *protocol.Part {
	var contents []protocol.PartContent
	if p.Text != nil {
		contents = append(contents, protocol.Text(*p.Text))
	}
	if p.Raw != nil {
		contents = append(contents, protocol.Raw(p.Raw))
	}
	if p.URL != "" {
		contents = append(contents, protocol.URL(p.URL))
	}
	if len(p.Data) > 0 && string(p.Data) != "null" {
		contents = append(contents, protocol.Data{Value: p.Data})
	}
	if len(contents) != 1 {
		return nil
	}
	return &protocol.Part{Content: contents[0], MediaType: p.MediaType, Filename: p.Filename}
}

// partsOf are parts in the form of the library. ok is false if one of them is empty or ambiguous.
func partsOf(list []exactPart) (parts protocol.ContentParts, ok bool) {
	for _, p := range list {
		part := p.part()
		if part == nil {
			return nil, false
		}
		parts = append(parts, part)
	}
	return parts, true
}

// exactResult are the parts of the result in an answer: those of the artifacts of a task, or else of the message of
// its status, or those of a message.
func exactResult(raw []byte) (protocol.ContentParts, error) {
	type message struct {
		Parts []exactPart `json:"parts"`
	}
	type result struct {
		Message   *message  `json:"message"` // of SendMessage
		Artifacts []message `json:"artifacts"`
		Status    struct {
			Message *message `json:"message"`
		} `json:"status"`
	}
	var answer struct {
		Result *result `json:"result"` // of JSON-RPC
		result
	}
	if err := stdjson.NewDecoder(bytes.NewReader(raw)).Decode(&answer); err != nil { // as the library reads it
		return nil, agentclient.NotA2A("its result is not valid JSON: %s", agentclient.Excerpt(err.Error()))
	}
	r := &answer.result
	if answer.Result != nil {
		r = answer.Result
	}
	var list []exactPart
	for _, a := range r.Artifacts {
		list = append(list, a.Parts...)
	}
	if m := r.Status.Message; len(list) == 0 && m != nil {
		list = m.Parts
	}
	if m := r.Message; m != nil {
		list = m.Parts
	}
	parts, ok := partsOf(list)
	if !ok {
		return nil, errors.New("its result has a part that is empty or ambiguous")
	}
	return parts, nil
}
