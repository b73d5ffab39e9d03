package toolproxy

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// handlerFunc answers one request of a caller whose capability was made here.
type handlerFunc func(c echo.Context, b Backend, held picket.LeaseCredential) error

// handed makes a handler of a function that is handed the part of the backend that it
// needs. What the function returns is answered as JSON; nil is 204.
func handed[B any](part func(Backend) B, serve func(echo.Context, B, picket.LeaseCredential) (any, error)) handlerFunc {
	return func(c echo.Context, b Backend, held picket.LeaseCredential) error {
		answer, err := serve(c, part(b), held)
		switch {
		case err != nil:
			return err
		case answer == nil:
			return c.NoContent(http.StatusNoContent)
		}
		return web.JSON(c, http.StatusOK, answer)
	}
}

// withBody is [handed] for a function that also takes the JSON body of its request, of at
// most limit bytes.
func withBody[B, T any](limit int64, part func(Backend) B,
	serve func(echo.Context, B, picket.LeaseCredential, T) (any, error)) handlerFunc {
	return handed(part, func(c echo.Context, b B, held picket.LeaseCredential) (any, error) {
		body, _, err := web.Decode[T](c, limit)
		if err != nil {
			return nil, err
		}
		return serve(c, b, held, body)
	})
}

// route is one line of the proxy's surface.
type route struct {
	method      string
	path        string
	side        picket.LeaseSide // the side that may call the route if the lease has two credentials
	refusalVerb string           // the verb under which a refusal is recorded; empty for what changes nothing
	handle      handlerFunc
	parameters  []string // of the query; any other is refused
}

// coreRoutes are the routes of a proxy without parts. The adapter keeps the lease and
// reports about the run; the agent calls tools.
func (p *Proxy) coreRoutes() []route {
	whole := func(b Backend) Backend { return b } // sources of tools may need any of it
	return []route{
		{http.MethodPost, "/v1/lease/renew", forAdapter, "", withBody(smallBody, leases, handleRenew), nil},
		{http.MethodPost, "/v1/lease/reclaim", forAdapter, "", withBody(smallBody, leases, handleReclaim), nil},
		{http.MethodPost, "/v1/lease/release", forAdapter, "release", withBody(smallBody, leases, handleRelease), nil},
		{http.MethodGet, "/v1/lease/watch", forAdapter, "", handed(leases, p.leaseWatches.watch),
			[]string{"waitSeconds", "exec"}},
		{http.MethodPost, "/v1/run/exit", forAdapter, "exit", withBody(smallBody, runs, handleExit), nil},
		{http.MethodPost, "/v1/run/logs", forAdapter, "logs", handed(runs, handleLogs),
			[]string{"stream", "offset", "end"}},
		{http.MethodPost, "/v1/run/events", forAdapter, "events", withBody(picket.MaxPayload, runs, handleEvents), nil},
		{http.MethodPost, "/v1/run/evidence", forAdapter, "evidence",
			withBody(picket.MaxPayload, runs, handleEvidence), nil},
		{http.MethodPost, "/v1/run/bundle", forAdapter, "bundle",
			withBody(smallBody, bundles, handleBundle), nil},
		{http.MethodPost, "/v1/run/bundle/:digest/:piece", forAdapter, "bundle_piece",
			handed(bundles, handleBundlePiece), []string{"size"}},
		{http.MethodGet, "/v1/run/messages", forAdapter, "", handed(messages, handleDeliverMessages), nil},
		{http.MethodPost, "/v1/run/usage", forAdapter, "usage", withBody(smallBody, envelopes, handleUsage), nil},
		{http.MethodPost, "/v1/run/exec/:callId", forAdapter, "exec",
			withBody(maxExecResult, execs, handleExecResult), nil},
		{http.MethodGet, contextPath, forAgent, "", handed(contexts, handleContext), nil},
		{http.MethodGet, "/v1/tools", forAgent, "", handed(whole, p.handleListTools), nil},
		// Each tool records its own refusals.
		{http.MethodPost, "/v1/tools/:name", forAgent, "", handed(whole, p.handleCallTool), nil},
	}
}

// Mount adds the proxy's routes to e, which web.New has made.
func (p *Proxy) Mount(e *echo.Echo) {
	for _, mount := range p.mounts {
		mount(e)
	}
	for _, r := range p.coreRoutes() {
		p.mountRoute(e, r, false, sessionRoutes[r.path])
	}
	for _, r := range p.routes {
		serve := func(c echo.Context, _ Backend, held picket.LeaseCredential) error { return r.Serve(c, held) }
		p.mountRoute(e, route{r.Method, r.Path, forAgent, "", serve, nil}, r.CountsItself, r.ForSessions)
	}
}

func (p *Proxy) mountRoute(e *echo.Echo, r route, countsItself, forSessions bool) {
	e.Add(r.method, r.path, func(c echo.Context) error {
		held, err := p.authenticate(c.Request())
		if err != nil {
			return err
		}
		if err := web.MarkAuthenticated(c, web.KindLease, held.HolderID()); err != nil {
			return err
		}
		if held.OfSession() && !forSessions {
			return picket.LeaseRequired()
		}
		if err := checkSide(held, r.side); err != nil {
			return err
		}
		if !countsItself {
			if err := p.takeRequest(c, r.side, held); err != nil {
				return err
			}
		}
		if err := checkQuery(c, r.parameters); err != nil {
			return err
		}
		b, err := p.BackendOf(held)
		if err != nil {
			return err
		}
		err = r.handle(c, b, held)
		if r.refusalVerb != "" {
			p.RecordRefusal(c.Request().Context(), b, held, r.refusalVerb, err)
		}
		return err
	})
}
