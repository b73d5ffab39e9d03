package toolproxy

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// rebuilt is a result with what belongs to the client only: everything but the
// _meta, which is between the upstream and us.
func rebuilt(r *mcp.CallToolResult) *mcp.CallToolResult {
	out := &mcp.CallToolResult{
		StructuredContent: r.StructuredContent,
		IsError:           r.IsError,
		InputRequests:     bare(r.InputRequests),
		RequestState:      r.RequestState,
	}
	for _, c := range r.Content {
		out.Content = append(out.Content, bareContent(c))
	}
	if out.Content == nil && out.InputRequests == nil {
		out.Content = []mcp.Content{}
	}
	return out
}

func bareContent(c mcp.Content) mcp.Content {
	switch c := c.(type) {
	case *mcp.TextContent:
		return &mcp.TextContent{Text: c.Text, Annotations: c.Annotations}
	case *mcp.ImageContent:
		return &mcp.ImageContent{Data: c.Data, MIMEType: c.MIMEType, Annotations: c.Annotations}
	case *mcp.AudioContent:
		return &mcp.AudioContent{Data: c.Data, MIMEType: c.MIMEType, Annotations: c.Annotations}
	case *mcp.ResourceLink:
		link := *c
		link.Meta = nil
		return &link
	case *mcp.EmbeddedResource:
		return &mcp.EmbeddedResource{Resource: bareResource(c.Resource), Annotations: c.Annotations}
	}
	return c
}

func bareResource(r *mcp.ResourceContents) *mcp.ResourceContents {
	if r == nil {
		return nil
	}
	copied := *r
	copied.Meta = nil
	return &copied
}

func encodeResult(r *mcp.CallToolResult) ([]byte, error) { return stdjson.Marshal(r) }

// canonical is the same for the same arguments, however they are written.
func canonical(args jsontext.Value) []byte {
	c := slices.Clone(args)
	if len(c) == 0 {
		c = jsontext.Value("{}")
	}
	if c.Canonicalize() != nil {
		return args
	}
	return c
}

// round adds the answers that a call brings along to its arguments.
func (x *exchange) round(args []byte) []byte {
	if x == nil || x.inputs == nil && x.state == "" {
		return args
	}
	answers, _ := stdjson.Marshal(x.inputs)
	return slices.Concat(args, []byte{0}, answers, []byte{0}, []byte(x.state))
}

// answers are what a call brings along for an upstream that asked.
func (x *exchange) answers() []jsontext.Value {
	if x == nil {
		return nil
	}
	inputs, _ := stdjson.Marshal(x.inputs)
	return []jsontext.Value{inputs, jsontext.Value(x.state)}
}

// roundKey is the idempotency key of one round of a call. A client sends the
// same one with its answers; they are another call to the upstream.
func (x *exchange) roundKey(key string) string {
	if key == "" || x == nil || x.inputs == nil && x.state == "" {
		return key
	}
	sum := sha256.Sum256(x.round(nil))
	return key + "\x00" + hex.EncodeToString(sum[:])
}
