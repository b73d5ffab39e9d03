// Package toolproxy is the data plane: the only door for a running agent and
// for the adapter that watches over it. Every request carries a lease
// capability; the proxy checks its form and its MAC, and the state of record
// decides in the same atomic step as the effect whether the lease still holds.
//
// A proxy keeps no state but its open watches: run as many as you like.
package toolproxy

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
)

// Config configures a [Proxy].
type Config struct {
	// Sealer opens lease capabilities. Required.
	Sealer *seal.Sealer
	// Backend finds the state of record of a namespace; nil (a nil interface,
	// not a nil pointer inside one) when this process does not serve it.
	// Required.
	Backend func(namespace string) Backend
	// Prices is the list in force, asked for with every call. Defaults to no
	// prices, so that every tool that is not free is refused.
	Prices func() *budget.PriceList
	// Parts are plugged into the proxy, in this order. Defaults to none.
	Parts []Part
	// Rates bounds the requests of each lease. Defaults to no bound.
	Rates *web.Rates
	// OnCall gets every call of a tool or a language model when it has ended. It must not block.
	// Defaults to nothing.
	OnCall func(CallRecord)
	// Log takes refused writes at level debug. Defaults to slog.Default().
	Log *slog.Logger
}

// Part plugs something into a proxy that is being made: routes, tools, or both.
// Each package below this one offers one. An error ends [New].
type Part func(p *Proxy) error

// Proxy answers the routes under /v1 and those of its parts.
type Proxy struct {
	sealer       *seal.Sealer
	backend      func(namespace string) Backend
	prices       func() *budget.PriceList
	rates        *web.Rates
	onCall       func(CallRecord)
	log          *slog.Logger
	leaseWatches leaseWatches
	leaseEnds    leaseEndWatcher
	sources      []Source
	closers      []func()
	starters     []func(ctx context.Context)
	routes       []Route
	mounts       []func(e *echo.Echo)
	lifetime     context.Context // ends when the proxy closes
	stop         context.CancelFunc
}

// New checks the configuration and fills in its defaults.
func New(cfg Config) (*Proxy, error) {
	if cfg.Sealer == nil || cfg.Backend == nil {
		return nil, errors.New("toolproxy: Sealer and Backend are required")
	}
	prices := cfg.Prices
	if prices == nil {
		prices = func() *budget.PriceList { return nil }
	}
	p := &Proxy{
		sealer:  cfg.Sealer,
		backend: cfg.Backend,
		prices:  prices,
		rates:   cfg.Rates,
		onCall:  cfg.OnCall,
		log:     web.WithLogIDs(cmp.Or(cfg.Log, slog.Default())),
	}
	p.lifetime, p.stop = context.WithCancel(context.Background())
	p.OnClose(p.leaseEnds.close)
	for _, plugIn := range cfg.Parts {
		if err := plugIn(p); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// Start starts what the parts do in the background, until [Proxy.Close].
func (p *Proxy) Start() {
	for _, f := range p.starters {
		f(p.lifetime)
	}
}

// Close ends what the parts do in the background and cuts off what clients still wait
// for. Call it when nothing is served any more.
func (p *Proxy) Close() {
	p.stop()
	for _, f := range slices.Backward(p.closers) {
		f()
	}
}

// AddSource adds tools; call it before the proxy serves.
func (p *Proxy) AddSource(s Source) { p.sources = append(p.sources, s) }

// OnStart has f run by [Proxy.Start]. ctx ends when the proxy is closed. f must not
// block.
func (p *Proxy) OnStart(f func(ctx context.Context)) { p.starters = append(p.starters, f) }

// Route is a route of a part that only agents may call.
type Route struct {
	Method string
	Path   string
	// CountsItself leaves the rate of the lease to Serve, which calls
	// [Proxy.TakeBody] and [Proxy.TakeMessage].
	CountsItself bool
	// ForSessions admits session capabilities. Serve refuses what they do not open.
	ForSessions bool
	// Serve answers a request with a valid credential.
	Serve func(c echo.Context, held picket.LeaseCredential) error
}

// Handle adds a route of a part.
func (p *Proxy) Handle(r Route) { p.routes = append(p.routes, r) }

// OnMount has f add routes of a part's own whenever the proxy is mounted. They take
// and check the credential themselves.
func (p *Proxy) OnMount(f func(e *echo.Echo)) { p.mounts = append(p.mounts, f) }

// OnClose has f run when the proxy is closed, before what was added before it.
func (p *Proxy) OnClose(f func()) { p.closers = append(p.closers, f) }

const (
	forAdapter = picket.SideAdapter
	forAgent   = picket.SideAgent
)

// Prices is the price list in force now; nil when there is none.
func (p *Proxy) Prices() *budget.PriceList { return p.prices() }

// Log is the proxy's log, for its parts.
func (p *Proxy) Log() *slog.Logger { return p.log }

// UntilClosed returns a copy of ctx that also ends when the proxy is closed. Call
// the function to release it.
func (p *Proxy) UntilClosed(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(p.lifetime, cancel)
	return ctx, func() { forget(); cancel() }
}

// BackendOf returns the backend of the namespace of a lease. It is CodeUnavailable if
// this proxy does not serve the namespace.
func (p *Proxy) BackendOf(held picket.LeaseCredential) (Backend, error) {
	if b := p.backend(held.Namespace); b != nil {
		return b, nil
	}
	return nil, namespaceNotServed(held.Namespace)
}

// namespaceNotServed is not a 401, because the lease token is valid, and an agent gives up
// its tools permanently at a 401.
func namespaceNotServed(namespace string) error {
	return picket.Refuse(picket.CodeUnavailable,
		"Call the proxyUrl of the lease record; if this is it, its proxy must be started with this namespace.",
		"this tool proxy does not serve the namespace %q of the lease", namespace)
}

// RecordRefusal tells the state of record about a write that the fence kept out. Other
// errors are ignored, and so is a release after the agent has ended the run, because
// these two often cross.
func (p *Proxy) RecordRefusal(ctx context.Context, w refusalLog, held picket.LeaseCredential, verb string, err error) {
	var refusal *picket.Error
	if !errors.As(err, &refusal) || !refusal.Code.Fenced() ||
		(verb == "release" && refusal.Code == picket.CodeLeaseReleased) {
		return
	}
	p.log.DebugContext(ctx, "write refused", "task", held.TaskID, "run", held.RunID, "fence", held.Fence, "verb", verb,
		"code", string(refusal.Code))
	w.RecordRefusedWrite(ctx, held, verb, refusal)
}
