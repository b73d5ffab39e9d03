package a2a

import (
	"bytes"
	stdjson "encoding/json"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
)

// The library decodes JSON that it does not know into floats, which lose digits of large numbers and refuse numbers
// beyond their range. The types here decode it into values whose numbers keep their digits.

// exactObject is a JSON object of free content.
type exactObject map[string]any

// UnmarshalJSON implements json.Unmarshaler.
func (o *exactObject) UnmarshalJSON(b []byte) error {
	decoder := stdjson.NewDecoder(bytes.NewReader(b))
	decoder.UseNumber()
	return decoder.Decode((*map[string]any)(o))
}

// exactParts are the parts of a message.
type exactParts protocol.ContentParts

// UnmarshalJSON implements json.Unmarshaler.
func (list *exactParts) UnmarshalJSON(b []byte) error {
	var raw []stdjson.RawMessage
	if err := stdjson.Unmarshal(b, &raw); err != nil {
		return err
	}
	*list = make(exactParts, len(raw))
	for i, part := range raw {
		if string(part) == "null" {
			continue
		}
		p, err := exactPart(part)
		if err != nil {
			return err
		}
		(*list)[i] = p
	}
	return nil
}

// exactPart decodes a part as the library does, except for its data and metadata.
func exactPart(b []byte) (*protocol.Part, error) {
	var members map[string]stdjson.RawMessage
	if err := stdjson.Unmarshal(b, &members); err != nil {
		return nil, err
	}
	data, isData := members["data"]
	if isData = isData && string(data) != "null"; isData {
		members["data"] = stdjson.RawMessage("0")
	}
	var metadata exactObject
	if raw, ok := members["metadata"]; ok {
		if err := stdjson.Unmarshal(raw, &metadata); err != nil {
			return nil, err
		}
		delete(members, "metadata")
	}
	rest, err := stdjson.Marshal(members)
	if err != nil {
		return nil, err
	}
	p := &protocol.Part{}
	if err := stdjson.Unmarshal(rest, p); err != nil {
		return nil, err
	}
	if isData {
		p.Content = protocol.Data{Value: exactValue(data)}
	}
	p.Metadata = metadata
	return p, nil
}

// sendParams are the params of an operation that sends a message.
type sendParams struct {
	protocol.SendMessageRequest
	Message  *exactMessage `json:"message"`
	Metadata exactObject   `json:"metadata"`
}

type exactMessage struct {
	protocol.Message
	Parts    exactParts  `json:"parts"`
	Metadata exactObject `json:"metadata"`
}

// request is the request of the library.
func (p *sendParams) request() *protocol.SendMessageRequest {
	req := p.SendMessageRequest
	req.Metadata = p.Metadata
	if p.Message != nil {
		m := p.Message.Message
		m.Parts, m.Metadata = protocol.ContentParts(p.Message.Parts), p.Message.Metadata
		req.Message = &m
	}
	return &req
}
