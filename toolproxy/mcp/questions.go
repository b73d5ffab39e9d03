//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	"fmt"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// forwardRequests passes what an upstream asks on to the session that owns the link,
// rebuilt: the _meta of either side stays there.
func (l *upstreamConn) forwardRequests(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		switch r := req.(type) {
		case *mcp.CreateMessageWithToolsRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.CreateMessageWithToolsResult, error) {
					params := *r.Params
					params.Meta = nil
					return s.CreateMessageWithTools(ctx, &params)
				}, func(res *mcp.CreateMessageWithToolsResult) { res.Meta = nil })
		case *mcp.ElicitRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.ElicitResult, error) {
					params := *r.Params
					params.Meta = nil
					return s.Elicit(ctx, &params)
				}, func(res *mcp.ElicitResult) { res.Meta = nil })
		case *mcp.ListRootsRequest:
			return askClient(ctx, l, method,
				func(ctx context.Context, s *mcp.ServerSession) (*mcp.ListRootsResult, error) {
					return s.ListRoots(ctx, &mcp.ListRootsParams{})
				}, func(res *mcp.ListRootsResult) { res.Meta = nil })
		case *mcp.ElicitationCompleteNotificationRequest:
			if c := l.currentCall(); c != nil && c.request != nil && r.Params != nil {
				_ = c.request.session.NotifyElicitationComplete(c.request.ctx,
					&mcp.ElicitationCompleteParams{ElicitationID: r.Params.ElicitationID})
			}
			return nil, nil
		}
		return next(ctx, method, req)
	}
}

// askClient puts a question to the client, in the stream of the call it is about.
func askClient[R mcp.Result](ctx context.Context, l *upstreamConn, method string,
	put func(context.Context, *mcp.ServerSession) (R, error), strip func(R)) (mcp.Result, error) {
	c := l.currentCall()
	if c == nil || c.request == nil {
		return nil, &jsonrpc.Error{
			Code:    jsonrpc.CodeMethodNotFound,
			Message: fmt.Sprintf("%s: there is nobody to ask", method),
		}
	}
	// The values lead to the client's stream; the end of either side ends it.
	asking, cancel := context.WithCancel(c.request.ctx)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	res, err := put(asking, l.owner)
	if err == nil {
		err = c.request.checkNoLeaseToken(res)
	}
	if err != nil {
		return nil, err
	}
	strip(res)
	return res, nil
}

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
		res, err := s.Elicit(ctx, w)
		if res != nil {
			res.Meta = nil
		}
		return res, err
	case *mcp.CreateMessageWithToolsParams:
		res, err := s.CreateMessageWithTools(ctx, w)
		if res != nil {
			res.Meta = nil
		}
		return res, err
	case *mcp.CreateMessageParams:
		res, err := s.CreateMessage(ctx, w)
		if res != nil {
			res.Meta = nil
		}
		return res, err
	case *mcp.ListRootsParams:
		res, err := s.ListRoots(ctx, &mcp.ListRootsParams{})
		if res != nil {
			res.Meta = nil
		}
		return res, err
	}
	return nil, fmt.Errorf("an upstream asks for %T", want)
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
			c := *w
			c.Meta = nil
			want = &c
		case *mcp.CreateMessageWithToolsParams:
			c := *w
			c.Meta = nil
			want = &c
		case *mcp.CreateMessageParams:
			c := *w
			c.Meta = nil
			want = &c
		case *mcp.ListRootsParams:
			want = &mcp.ListRootsParams{}
		}
		out[id] = want
	}
	return out
}
