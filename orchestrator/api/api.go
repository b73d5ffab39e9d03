// Package api is the control plane: /api/v1 over one or more engines, and the
// unauthenticated health, metrics and description routes. Every route stands
// in one list (routes.go), from which registration and the tests are made.
package api

import (
	"cmp"
	"errors"
	"log/slog"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/store"
)

// maxBody is the cap of every request body, in bytes. Payloads inside it have
// their own, lower one.
const maxBody = 1 << 20

// Config is what the control plane needs.
type Config struct {
	// Engine finds the engine of a namespace, nil when this process does not
	// serve it. Required.
	Engine func(namespace string) *orchestrator.Engine
	// Engines lists the engines of this process, for readiness and metrics.
	// Required.
	Engines func() []*orchestrator.Engine
	// ScriptStats counts the scripts of the store, for metrics. Defaults to none.
	ScriptStats func() []store.ScriptStats
	// Connections counts those of the process, for metrics. Defaults to none.
	Connections func() web.ConnectionCounts
	// Rates bounds the requests of each key. Defaults to no bound.
	Rates *web.Rates
	// Log. Defaults to discarding.
	Log *slog.Logger
	// AllowedHosts are the names accepted in the Host header beside localhost
	// and literal IP addresses, so that a page of a foreign name cannot be
	// pointed at this server; "*" accepts all. Defaults to none.
	AllowedHosts []string
	// KeepAlive is how often an idle event stream gets a comment. Defaults to
	// 15 seconds.
	KeepAlive time.Duration
	// PoolAdvice is what the workflow file says of pools, by role; it is shown with
	// them. Defaults to none.
	PoolAdvice map[string]picket.PoolAdvice
	// AgentEndpoint is the URL of the endpoint of an agent in a namespace, or "". It is shown where an agent gave no
	// endpoint of its own. Defaults to none.
	AgentEndpoint func(namespace string, a picket.Agent) string
	// Prices is the price list in force, asked for with every request. Defaults
	// to an empty list.
	Prices func() *budget.PriceList
	// Webhooks checks and tests the targets of webhooks. Defaults to refusing them.
	Webhooks WebhookTester
	// StreamWriteTimeout is how long a reader of an event stream may take to accept a
	// write before it is dropped. Defaults to 15 seconds.
	StreamWriteTimeout time.Duration
	// StreamsPerKey is how many event streams one key may read from this process at
	// once. Defaults to 64.
	StreamsPerKey int
}

// API is the control plane, ready to be mounted.
type API struct {
	cfg          Config
	log          *slog.Logger
	metrics      *metrics
	streamLimit  *streamLimiter
	commandPolls web.NewestWaits[commandPoller]
	batchTime    time.Duration
}

// New prepares the control plane over the given engines. It fails when a
// required field is missing.
func New(cfg Config) (*API, error) {
	if cfg.Engine == nil || cfg.Engines == nil {
		return nil, errors.New("api: Engine and Engines are required")
	}
	if cfg.Prices == nil {
		cfg.Prices = func() *budget.PriceList { return noPrices }
	}
	if cfg.Connections == nil {
		cfg.Connections = new(web.Guard).Counts
	}
	if cfg.Webhooks == nil {
		cfg.Webhooks = noWebhooks{}
	}
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 15*time.Second)
	cfg.StreamWriteTimeout = cmp.Or(cfg.StreamWriteTimeout, 15*time.Second)
	cfg.StreamsPerKey = cmp.Or(cfg.StreamsPerKey, 64)
	log := cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	return &API{
		cfg:         cfg,
		log:         log,
		metrics:     newMetrics(cfg),
		streamLimit: newStreamLimiter(cfg.StreamsPerKey),
		batchTime:   batchTime,
	}, nil
}

// Mount adds every route of the control plane to e, which web.New has made. A
// tool proxy may be mounted on the same e; its requests are counted in
// /metrics too.
func (a *API) Mount(e *echo.Echo) { a.mount(e, a.routes()) }

// MountLeases adds only the routes for the leases of a key, and /healthz, /readyz and /metrics: for a process
// that runs a tool proxy without the control plane.
func (a *API) MountLeases(e *echo.Echo) { a.mount(e, append(a.leaseRoutes(), a.opsRoutes()...)) }

// MountOps adds only /healthz, /readyz and /metrics: for a process that runs
// another role alone.
func (a *API) MountOps(e *echo.Echo) { a.mount(e, a.opsRoutes()) }

func (a *API) mount(e *echo.Echo, routes []route) {
	e.Use(a.metrics.observe)
	for _, r := range routes {
		e.Add(r.method, r.path, a.handler(r))
	}
}

// Admit authenticates a request to another front door than the API's: it checks the host name and the key, and counts
// the request against the rate of the key. What the key may do is for the caller to check.
func (a *API) Admit(c echo.Context) (*orchestrator.Engine, picket.Principal, error) {
	return a.admit(c, false)
}

// admit authenticates a request. Requests that are exempt do not count against the rate of the key.
func (a *API) admit(c echo.Context, exempt bool) (engine *orchestrator.Engine, who picket.Principal, err error) {
	if err := a.checkHost(c); err != nil {
		return nil, who, err
	}
	if engine, who, err = a.authenticate(c.Request()); err != nil {
		return nil, who, err
	}
	if err := web.MarkAuthenticated(c, web.KindKey, who.KeyID); err != nil {
		return nil, who, err
	}
	if !exempt {
		err = a.cfg.Rates.TakeKey(who)
	}
	return engine, who, err
}

// checkHost refuses foreign names of the host. Tool proxies also serve renewalsPath, under names that the control
// plane does not know. So that route takes every name, as the tool proxy does.
func (a *API) checkHost(c echo.Context) error {
	if c.Path() == renewalsPath {
		return nil
	}
	return web.CheckHost(c.Request(), a.cfg.AllowedHosts)
}

// handler puts the checks that every route shares in front of it.
func (a *API) handler(r route) echo.HandlerFunc {
	return func(c echo.Context) error {
		// Nothing here is a page: a browser must not guess one out of a log.
		c.Response().Header().Set(echo.HeaderXContentTypeOptions, "nosniff")
		req := request{Context: c, agentEndpoint: a.cfg.AgentEndpoint}
		if r.isPublic() {
			if err := a.checkHost(c); err != nil {
				return err
			}
		} else {
			var err error
			if req.engine, req.who, err = a.admit(c, rateExempt[r.method+" "+r.path]); err != nil {
				return err
			}
			if err := r.permit(req.who); err != nil {
				return err
			}
			if err := req.checkRunKey(r); err != nil {
				return err
			}
		}
		return r.handle(req)
	}
}
