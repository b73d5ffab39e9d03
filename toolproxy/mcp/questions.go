//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// maxRounds bounds how often an upstream may ask within one call.
const maxRounds = 10

// answerAll asks a client of the older wire what an upstream of the newer one
// wants to know.
func answerAll(ctx context.Context, x *clientRequest, wanted mcp.InputRequestMap) (mcp.InputResponseMap, error) {
	answers := mcp.InputResponseMap{}
	for id, want := range wanted {
		answer, err := answerOne(ctx, x.session, want)
		if err != nil {
			return nil, err
		}
		answers[id] = answer
	}
	return answers, nil
}

func answerOne(ctx context.Context, s *mcp.ServerSession, want mcp.InputRequest) (mcp.InputResponse, error) {
	switch w := want.(type) {
	case *mcp.ElicitParams:
		return answerWithoutMeta(s.Elicit(ctx, w))
	case *mcp.CreateMessageWithToolsParams:
		return answerWithoutMeta(s.CreateMessageWithTools(ctx, w))
	case *mcp.CreateMessageParams:
		return answerWithoutMeta(s.CreateMessage(ctx, w))
	case *mcp.ListRootsParams:
		return answerWithoutMeta(s.ListRoots(ctx, &mcp.ListRootsParams{}))
	}
	return nil, fmt.Errorf("an upstream asks for %T", want)
}

func answerWithoutMeta[R interface {
	mcp.InputResponse
	mcp.Result
}](answer R, err error) (mcp.InputResponse, error) {
	if err != nil {
		return nil, err
	}
	answer.SetMeta(nil)
	return answer, nil
}

// questionsWithoutMeta are an upstream's questions without their _meta.
func questionsWithoutMeta(wanted mcp.InputRequestMap) mcp.InputRequestMap {
	if wanted == nil {
		return nil
	}
	out := mcp.InputRequestMap{}
	for id, want := range wanted {
		switch w := want.(type) {
		case *mcp.ElicitParams:
			out[id] = copyWithoutMeta(w)
		case *mcp.CreateMessageWithToolsParams:
			out[id] = copyWithoutMeta(w)
		case *mcp.CreateMessageParams:
			out[id] = copyWithoutMeta(w)
		case *mcp.ListRootsParams:
			out[id] = &mcp.ListRootsParams{}
		default:
			out[id] = want
		}
	}
	return out
}

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
