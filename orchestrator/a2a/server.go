package a2a

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

// Config is what the endpoints need.
type Config struct {
	// PublicURL is the address under which clients reach this server, without a slash at its end. Cards name it.
	// Required.
	PublicURL string
	// Version is the build, which cards show. Defaults to "dev".
	Version string
	// Pools are the pools that have endpoints. A role stands in it once.
	Pools []Pool
	// PublicCards makes cards of pools and of the orchestrator readable without a key. They show less then.
	PublicCards bool
	// Admit authenticates a request, and finds the engine of the namespace that its key is of. Required.
	Admit func(echo.Context) (*orchestrator.Engine, picket.Principal, error)
	// Engine finds the engine of a namespace, nil when this process does not serve it. Required.
	Engine func(namespace string) *orchestrator.Engine
	// Leases opens the lease tokens of agents that call endpoints from inside a run. Required.
	Leases LeaseOpener
	// CheckPush refuses the URL of a push configuration that would not be called. Defaults to no push notifications.
	CheckPush func(ctx context.Context, url picket.Secret) error
	// Rates bounds the requests of each of them. Defaults to no bound.
	Rates *web.Rates
	// AllowedHosts are the names accepted in the Host header of a request for a public card, as in the control plane.
	AllowedHosts []string
	// KeepAlive is how often an idle stream gets a comment. Defaults to 15 seconds.
	KeepAlive time.Duration
	// WriteTimeout is how long a reader of a stream may take to accept a write before it is dropped. Defaults to 15
	// seconds.
	WriteTimeout time.Duration
	// StreamsPerKey is how many streams and waiting sends one key may have open in this process. Defaults to 1,024.
	StreamsPerKey int
	// PriceVersion names the price list in force. Required if a pool has a Vendor.
	PriceVersion func() string
	// Log. Defaults to discarding.
	Log *slog.Logger
}

// LeaseOpener opens a lease token that it has made, and refuses any other one. Whether the lease holds, the engine
// says.
type LeaseOpener interface {
	OpenLeaseToken(token string) (picket.LeaseCredential, error)
}

// Pool is a pool of agents that has an endpoint.
type Pool struct {
	// Role is the role of its agents and tasks, and the name in its address.
	Role string
	// Task is what each task of a client begins as: its envelope, limits, retry policy and review.
	Task picket.TaskSpec
	// MaxQueue is how many tasks may wait for the pool. More are refused with picket.CodeQuota.
	MaxQueue int
	// ReusedMessageIDs is set if clients give the id of a message to others. Then each message that continues no task
	// is a new task. Otherwise, the same message again is the same task.
	ReusedMessageIDs bool
	// Card is what people have written for its card.
	Card CardText
	// Skills describe what its agents can do, by capability. An empty description has defaults. A pool without any
	// has one skill, its role.
	Skills map[string]Skill
	// Provider is the coding agent or the program that its agents run. Defaults to "picket".
	Provider string
	// Vendor is the vendor of models whose calls go through the tool proxy, where they are priced. It is empty if the
	// agents report what they spend.
	Vendor string
}

// CardText is what people have written for a card. Empty members have defaults, or are left out.
type CardText struct {
	Name             string
	Description      string
	DocumentationURL string
	IconURL          string
	Organization     string
	OrganizationURL  string
}

// Skill describes one capability.
type Skill struct {
	Name        string
	Description string
	Examples    []string
	InputModes  []string // media types; empty: those of the card
	OutputModes []string
}

// Server serves the endpoints.
type Server struct {
	cfg   Config
	log   *slog.Logger
	pools map[string]*Pool

	mu        sync.Mutex
	followers map[*orchestrator.Engine]*follower
	streams   *streamLimiter
}

// New prepares the endpoints. It fails when a required field is missing, or a role stands twice in Pools.
func New(cfg Config) (*Server, error) {
	if cfg.PublicURL == "" || cfg.Admit == nil || cfg.Engine == nil || cfg.Leases == nil {
		return nil, errors.New("a2a: PublicURL, Admit, Engine and Leases are required")
	}
	cfg.PublicURL = strings.TrimRight(cfg.PublicURL, "/")
	cfg.Version = cmp.Or(cfg.Version, "dev")
	cfg.KeepAlive = cmp.Or(cfg.KeepAlive, 15*time.Second)
	cfg.WriteTimeout = cmp.Or(cfg.WriteTimeout, 15*time.Second)
	s := &Server{
		cfg:       cfg,
		log:       cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		pools:     map[string]*Pool{},
		followers: map[*orchestrator.Engine]*follower{},
		streams:   &streamLimiter{most: cmp.Or(cfg.StreamsPerKey, 1024), open: map[streamKey]int{}},
	}
	for i := range cfg.Pools {
		p := &cfg.Pools[i]
		if s.pools[p.Role] != nil {
			return nil, errors.New("a2a: two pools have the role " + p.Role)
		}
		s.pools[p.Role] = p
	}
	return s, nil
}

// Mount adds the routes to e, which web.New has made.
func (s *Server) Mount(e *echo.Echo) {
	for _, r := range s.routes() {
		e.Add(r.method, r.path, func(c echo.Context) error {
			c.Response().Header().Set(echo.HeaderXContentTypeOptions, "nosniff")
			c.Response().Header().Set(echo.HeaderCacheControl, "no-store") // a card may be kept
			x := &exchange{Context: c, server: s}
			if err := x.open(r); errors.Is(err, picket.CodeRateLimited) && x.isRPC() {
				return x.refuseRate(err)
			} else if err != nil {
				return err
			}
			return r.handle(x)
		})
	}
}

// Routes lists the routes as "METHOD path", for tests that look at all of them. What is below /a2a/ is listed one by
// one.
func (s *Server) Routes() (list []string) {
	for _, r := range s.routes() {
		base, wild := strings.CutSuffix(r.path, "/*")
		if !wild {
			list = append(list, r.method+" "+r.path)
			continue
		}
		for _, below := range belowBase {
			if method, path, _ := strings.Cut(below, " "); method == r.method {
				list = append(list, method+" "+base+"/"+path)
			}
		}
	}
	return list
}

// defaultNamespace is the namespace of addresses that name none.
const defaultNamespace = "default"

// route is one route below an endpoint.
type route struct {
	method string
	path   string // echo's form
	card   bool   // it may be public
	handle func(*exchange) error
}

// ofInstance reports whether a route is below one agent of a pool. Which agents there are is not public.
func (r route) ofInstance() bool { return strings.Contains(r.path, "/instances/:agent") }

// bases are the addresses of the endpoints: of the orchestrator, of pools and of their instances, in the namespace
// default and in others.
var bases = []string{"", "/agents/:role", "/agents/:role/instances/:agent",
	"/n/:namespace", "/n/:namespace/agents/:role", "/n/:namespace/agents/:role/instances/:agent"}

// routes are those of all endpoints. echo reads a colon in a path as a parameter, so what is below /a2a/ is one route
// for each method.
func (s *Server) routes() (list []route) {
	for _, base := range bases {
		list = append(list,
			route{method: http.MethodGet, path: base + "/.well-known/agent-card.json", card: true, handle: serveCard},
			route{method: http.MethodPost, path: base + "/a2a", handle: serveRPC},
		)
		for _, method := range []string{http.MethodGet, http.MethodPost, http.MethodDelete} {
			list = append(list, route{method: method, path: base + "/a2a/*", handle: serveREST})
		}
	}
	return list
}

// exchange is one request at an endpoint.
type exchange struct {
	echo.Context
	server    *Server
	engine    *orchestrator.Engine
	who       picket.Principal
	namespace string
	held      picket.LeaseCredential // of a peer
	// pool is nil at the endpoint of the orchestrator.
	pool     *Pool
	instance *picket.Agent // nil at other endpoints
	// conversationBytes is how much of conversations the request has read.
	conversationBytes int
	// anonymous is set for a request without a key, which may only read a public card.
	anonymous bool
	// lost is why a peer gets nothing, whatever it asks for: its lease does not hold any more. Each binding tells it in
	// its own form.
	lost error
}

// isRPC reports whether the request is one of the JSON-RPC binding, which may have a slash.
func (x *exchange) isRPC() bool {
	return x.Request().Method == http.MethodPost && (strings.HasSuffix(x.Path(), "/a2a") || x.Param("*") == "" &&
		strings.HasSuffix(x.Path(), "/a2a/*"))
}

// open finds the endpoint and authenticates the client. An endpoint that does not exist, that the key may not use or
// that is of another namespace is not found.
func (x *exchange) open(r route) error {
	x.namespace = cmp.Or(x.Param("namespace"), defaultNamespace)
	if err := x.authenticate(r); err != nil {
		return err
	}
	if x.isPeer() && x.engine != nil {
		// Before anything that depends on the address or the body, so that it learns this and nothing else.
		if x.lost = x.checkLease(x.Request().Context()); x.lost != nil {
			return nil
		}
	}
	role, ofPool := x.Param("role"), strings.Contains(r.path, "/agents/:role")
	if ofPool {
		x.pool = x.server.pools[role]
	}
	elsewhere := x.engine == nil || !x.anonymous && x.who.Namespace != x.namespace
	if elsewhere || ofPool && (x.pool == nil || !x.mayUse(role)) {
		return noEndpoint()
	}
	if !x.anonymous && !x.isPeer() && !x.who.May(picket.ScopeClient, picket.ScopeOperator) {
		return picket.Refuse(picket.CodeForbidden,
			"Use a key with scope client: picket key create NAME --scope client --role ROLE",
			"this key may not use endpoints of agents").With("has", x.who.Scopes)
	}
	if r.ofInstance() {
		return x.openInstance(x.Request().Context(), x.Param("agent"))
	}
	return nil
}

// authenticate finds out who calls: a client with an API key, a peer with a lease token, or anybody for a public card.
func (x *exchange) authenticate(r route) (err error) {
	token := bearer(x)
	switch {
	case r.card && !r.ofInstance() && x.server.cfg.PublicCards && !hasKey(x.Request()):
		x.anonymous, x.engine = true, x.server.cfg.Engine(x.namespace)
		return web.CheckHost(x.Request(), x.server.cfg.AllowedHosts)
	case strings.HasPrefix(token, picket.LeaseTokenPrefix):
		return x.openLease(token)
	case strings.HasPrefix(token, picket.SessionCapabilityPrefix):
		return refuseSession()
	}
	x.engine, x.who, err = x.server.cfg.Admit(x.Context)
	return err
}

func noEndpoint() error {
	return picket.Refuse(picket.CodeNotFound, "Check the URL and the roles of the key. The operator turns endpoints on with "+
		"agents.NAME.a2a.enabled in picket.yaml.",
		"there is no such endpoint, or the key may not use it")
}

// mayUse reports whether the caller may use the pool of a role.
func (x *exchange) mayUse(role string) bool {
	return x.anonymous || x.who.Client == nil || x.who.Client.Allows(role)
}

// isOperator reports whether the caller sees the tasks of all clients.
func (x *exchange) isOperator() bool { return !x.isPeer() && x.who.May(picket.ScopeOperator) }

// caller names the client to the engine.
func (x *exchange) caller() picket.Caller {
	return picket.Caller{Actor: x.who.KeyID, Key: x.who.KeyID, Operator: x.isOperator()}
}

// base is the public address of the endpoint.
func (x *exchange) base() string {
	if x.instance != nil {
		return InstanceURL(x.server.cfg.PublicURL, x.namespace, x.pool.Role, x.instance.AgentID)
	}
	return x.poolBase()
}

// poolBase is the public address of the pool, or of the orchestrator.
func (x *exchange) poolBase() string {
	role := ""
	if x.pool != nil {
		role = x.pool.Role
	}
	return poolURL(x.server.cfg.PublicURL, x.namespace, role)
}

// hasKey reports whether a request presents a credential.
func hasKey(r *http.Request) bool {
	return r.Header.Get("X-API-Key") != "" || r.Header.Get(echo.HeaderAuthorization) != ""
}
