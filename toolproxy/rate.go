package toolproxy

import (
	"net/http"

	"github.com/labstack/echo/v4"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// neverLimited are the routes without a rate limit, because they keep or end the
// lease.
var neverLimited = map[string]bool{
	"/v1/lease/renew": true, "/v1/lease/reclaim": true, "/v1/lease/release": true, "/v1/run/exit": true,
}

// closing are the tools that end a run. They have no rate limit either.
var closing = map[string]bool{"mark_complete": true, "mark_failed": true, "request_human_help": true}

// takeRequest counts a request against the rate of its lease. Messages over MCP
// are counted one by one, see [mcpFace.route].
func (p *Proxy) takeRequest(c echo.Context, r route, held picket.Held) error {
	if neverLimited[r.path] || closing[c.Param("name")] || r.path == MCPPath && r.method == http.MethodPost {
		return nil
	}
	return p.take(held, r.side)
}

// take counts the adapter and the agent of a run separately, so that an agent
// cannot use up the rate of its adapter.
func (p *Proxy) take(held picket.Held, side picket.Bearer) error {
	return p.rates.Take(web.KindLease, held.RunID+"/"+string(side))
}

// takeMessage counts a message over MCP.
func (f *mcpFace) takeMessage(req mcp.Request) error {
	if call, ok := req.(*mcp.CallToolRequest); ok && closing[call.Params.Name] {
		return nil
	}
	held, ok := heldOf(req.GetExtra())
	if !ok {
		return nil // it is refused elsewhere
	}
	return f.p.take(held, forAgent)
}
