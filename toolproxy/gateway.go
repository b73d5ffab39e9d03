package toolproxy

import (
	"context"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// gateway brings the tools of other MCP servers.
type gateway struct {
	tools map[string]*mcp.Tool
}

func (g *gateway) has(name string) bool { return g.tools[name] != nil }

func (g *gateway) tool(name string) *mcp.Tool { return g.tools[name] }

type exchangeKey struct{}

// exchange is one message of an MCP client while it is answered.
type exchange struct {
	session  *mcp.ServerSession
	request  *mcp.CallToolRequest
	ctx      context.Context // of the handler: what is sent with it goes to the client's own stream
	upstream bool            // an upstream's tool answered
	protocol *jsonrpc.Error  // to be answered instead of a result
}
