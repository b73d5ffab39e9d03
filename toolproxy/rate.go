package toolproxy

import (
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
var runEndingTools = map[string]bool{"mark_complete": true, "reply": true, "mark_failed": true,
	"request_human_help": true}

// takeRequest counts a request against the rate of its lease.
func (p *Proxy) takeRequest(c echo.Context, side picket.LeaseSide, held picket.LeaseCredential) error {
	switch {
	case unlimitedRoutes[c.Path()]:
		return nil
	case runEndingTools[c.Param("name")]:
		return p.rates.TakeEnding(bucketOf(held, side))
	}
	return p.take(held, side)
}

// take counts the adapter and the agent of a run separately, so that an agent
// cannot use up the rate of its adapter.
func (p *Proxy) take(held picket.LeaseCredential, side picket.LeaseSide) error {
	return p.rates.Take(web.KindLease, bucketOf(held, side))
}

func bucketOf(held picket.LeaseCredential, side picket.LeaseSide) string {
	return held.HolderID() + "/" + string(side)
}

// TakeMessage counts a message of an agent on a route that counts itself. tool is the
// tool that the message calls, "" for none.
func (p *Proxy) TakeMessage(held picket.LeaseCredential, tool string) error {
	if runEndingTools[tool] {
		return p.rates.TakeEnding(bucketOf(held, forAgent))
	}
	return p.take(held, forAgent)
}

// TakeBody counts a request on a route that counts itself before its body is read. Call
// giveBack once the body has become a message. A request that becomes none stays
// counted. giveBack may be called several times.
func (p *Proxy) TakeBody(held picket.LeaseCredential) (giveBack func(), err error) {
	who := bucketOf(held, forAgent)
	if err := p.rates.TakeBody(who); err != nil {
		return nil, err
	}
	return sync.OnceFunc(func() { p.rates.GiveBodyBack(who) }), nil
}
