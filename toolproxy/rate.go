package toolproxy

import (
	"net/http"
	"sync"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// unlimitedRoutes are the routes without a rate limit, because they keep or end the
// lease.
var unlimitedRoutes = map[string]bool{
	"/v1/lease/renew": true, "/v1/lease/reclaim": true, "/v1/lease/release": true, "/v1/run/exit": true,
}

// runEndingTools are the tools that can end a run. A lease has a small bucket for them, so
// that it can end after it has used up its rate.
var runEndingTools = map[string]bool{"mark_complete": true, "mark_failed": true, "request_human_help": true}

// takeRequest counts a request against the rate of its lease. Messages over MCP
// are counted one by one, see [mcpEndpoint.route]. What becomes no message is counted
// by handleMCP.
func (p *Proxy) takeRequest(c echo.Context, r route, held picket.LeaseCredential) error {
	switch {
	case unlimitedRoutes[r.path] || r.path == MCPPath && r.method == http.MethodPost:
		return nil
	case runEndingTools[c.Param("name")]:
		return p.rates.TakeEnding(bucketOf(held, r.side))
	}
	return p.take(held, r.side)
}

// take counts the adapter and the agent of a run separately, so that an agent
// cannot use up the rate of its adapter.
func (p *Proxy) take(held picket.LeaseCredential, side picket.LeaseSide) error {
	return p.rates.Take(web.KindLease, bucketOf(held, side))
}

func bucketOf(held picket.LeaseCredential, side picket.LeaseSide) string {
	return held.RunID + "/" + string(side)
}

// countedBody is a POST to the MCP route, which was counted before its body was read.
type countedBody struct{ giveBack func() }

// takeBody counts a POST to the MCP route until it has become a message.
func (p *Proxy) takeBody(held picket.LeaseCredential) (*countedBody, error) {
	who := bucketOf(held, forAgent)
	if err := p.rates.TakeBody(who); err != nil {
		return nil, err
	}
	return &countedBody{sync.OnceFunc(func() { p.rates.GiveBodyBack(who) })}, nil
}
