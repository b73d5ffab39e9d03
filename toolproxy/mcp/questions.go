//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	"fmt"

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
