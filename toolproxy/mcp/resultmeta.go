package mcp

import (
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// withoutMeta is a result with what belongs to the client only: everything but the
// _meta, which is between the upstream and us.
func withoutMeta(r *mcp.CallToolResult) *mcp.CallToolResult {
	out := &mcp.CallToolResult{
		StructuredContent: r.StructuredContent,
		IsError:           r.IsError,
		InputRequests:     questionsWithoutMeta(r.InputRequests),
		RequestState:      r.RequestState,
	}
	for _, c := range r.Content {
		out.Content = append(out.Content, contentWithoutMeta(c))
	}
	if out.Content == nil && out.InputRequests == nil {
		out.Content = []mcp.Content{}
	}
	return out
}

func contentWithoutMeta(c mcp.Content) mcp.Content {
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
		return &mcp.EmbeddedResource{Resource: resourceWithoutMeta(c.Resource), Annotations: c.Annotations}
	}
	return c
}

func resourceWithoutMeta(r *mcp.ResourceContents) *mcp.ResourceContents {
	if r == nil {
		return nil
	}
	copied := *r
	copied.Meta = nil
	return &copied
}

func encodeResult(r *mcp.CallToolResult) ([]byte, error) { return stdjson.Marshal(r) }

// canonicalArgs is the same for the same arguments, however they are written.
func canonicalArgs(args jsontext.Value) []byte {
	c := slices.Clone(args)
	if len(c) == 0 {
		c = jsontext.Value("{}")
	}
	if c.Canonicalize() != nil {
		return args
	}
	return c
}

// argsWithAnswers adds the answers that a call brings along to its arguments.
func (x *clientRequest) argsWithAnswers(args []byte) []byte {
	if x == nil || x.inputResponses == nil && x.requestState == "" {
		return args
	}
	answers, _ := stdjson.Marshal(x.inputResponses)
	return slices.Concat(args, []byte{0}, answers, []byte{0}, []byte(x.requestState))
}

// inputAnswers are what a call brings along for an upstream that asked.
func (x *clientRequest) inputAnswers() []jsontext.Value {
	if x == nil {
		return nil
	}
	inputs, _ := stdjson.Marshal(x.inputResponses)
	return []jsontext.Value{inputs, jsontext.Value(x.requestState)}
}

// roundKey is the idempotency key of one round of a call. A client sends the
// same one with its answers; they are another call to the upstream.
func (x *clientRequest) roundKey(key string) string {
	if key == "" || x == nil || x.inputResponses == nil && x.requestState == "" {
		return key
	}
	sum := sha256.Sum256(x.argsWithAnswers(nil))
	return key + "\x00" + hex.EncodeToString(sum[:])
}
