//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"slices"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/toolproxy"
)

// Versions of the protocol.
const (
	statelessProtocol = "2026-07-28" // the first one without sessions
	statefulProtocol  = "2025-11-25" // the last one with them
)

type clientRequestKey struct{}

// clientRequest is one message of an MCP client while it is answered. A call that
// came over plain HTTP has none.
type clientRequest struct {
	session         *mcp.ServerSession
	held            picket.LeaseCredential // whose message it is
	caps            *mcp.ClientCapabilities
	protocolVersion string
	meta            mcp.Meta
	inputResponses  mcp.InputResponseMap
	requestState    string
	ctx             context.Context // of the handler: what is sent with it goes to the client's own stream
	fromUpstream    bool            // an upstream's tool answered
	rpcError        *jsonrpc.Error  // to be answered instead of a result
}

// newClientRequest is the message r. A call of a tool and the like may bring answers
// along, which the caller adds.
func newClientRequest[P mcp.Params](ctx context.Context, r *mcp.ServerRequest[P]) *clientRequest {
	return &clientRequest{
		session:         r.Session,
		caps:            r.ClientCapabilities(),
		protocolVersion: r.ProtocolVersion(),
		meta:            r.Params.GetMeta(),
		ctx:             ctx,
	}
}

func clientRequestOf(ctx context.Context) *clientRequest {
	x, _ := ctx.Value(clientRequestKey{}).(*clientRequest)
	return x
}

// isStateless reports whether the client answers questions that stand in a result.
func (x *clientRequest) isStateless() bool { return x != nil && x.protocolVersion >= statelessProtocol }

// canBeAsked reports whether the client answers questions while a call is under
// way: only a client with a session does.
func (x *clientRequest) canBeAsked() bool {
	return x != nil && !x.isStateless() && x.session.ID() != "" && x.caps != nil &&
		(x.caps.Sampling != nil || x.caps.Elicitation != nil || x.caps.RootsV2 != nil)
}

// checkNoLeaseToken is [toolproxy.CheckNoLeaseToken] for what a client answers to an upstream's
// question.
func (x *clientRequest) checkNoLeaseToken(answer any) error {
	raw, err := stdjson.Marshal(answer)
	if err != nil {
		return err
	}
	return toolproxy.CheckNoLeaseToken(x.held, raw)
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
