package mcp

import (
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

// copyWithoutMeta is a copy of a message or a part of one, without its _meta.
func copyWithoutMeta[T any, P interface {
	*T
	SetMeta(map[string]any)
}](p P) P {
	c := *p
	P(&c).SetMeta(nil)
	return &c
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
