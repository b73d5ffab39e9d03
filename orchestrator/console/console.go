// Package console is the web console: the pages on which people decide hand-offs and reviews and
// see what runs. Every page is made here and works without JavaScript; a small script of our own
// keeps it up to date. A page is one Go file and one template. The Go file, such as reviews.go, has
// what it asks of the engine, and its handlers. The template is templates/<name>.html.
// The list of all routes is in routes.go.
package console

import (
	"cmp"
	"context"
	"errors"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"slices"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/console/assets"
	"github.com/picket-dev/picket/orchestrator/console/attempts"
)

// Config is what the console needs.
type Config struct {
	// Backend finds the engine of a namespace, nil when this process does not serve
	// it. Required.
	Backend func(namespace string) *Backend
	// Stream answers with the events of the namespace of the reader, as the API
	// does. It calls admit repeatedly to check whether the reader may go on. Required.
	Stream func(c echo.Context, who picket.Principal, admit func() error) error
	// Endpoints are the A2A endpoints of a namespace, nil if it has none. Defaults to no endpoints.
	Endpoints func(ctx context.Context, namespace string) (*Endpoints, error)
	// Log. Defaults to discarding.
	Log *slog.Logger
	// AllowedHosts are the names accepted in the Host header beside localhost
	// and literal IP addresses; "*" accepts all. Defaults to none.
	AllowedHosts []string
	// PublicURL is where people reach the server from elsewhere. Its host name is
	// accepted, too; if it is an https URL, the cookie there is a __Host- cookie.
	// Defaults to none.
	PublicURL string
	// OneHost gives the cookie to the host name at which a person signs in,
	// instead of to a new host name for each login, and allows plain HTTP. Every
	// port of that host then gets the cookie. It is for browsers that do not
	// resolve names below localhost. Defaults to false.
	OneHost bool
}

// Console is the web console, ready to be mounted.
type Console struct {
	cfg        Config
	hosts      []string // accepted in the Host header
	publicHost string   // of an https PublicURL
	log        *slog.Logger
	templates  map[string]*template.Template
	assets     *assets.Assets
	origin     *http.CrossOriginProtection
	// wrongKeys counts them by the network of the client. What a proxy says of its
	// clients is not believed.
	wrongKeys *attempts.Limiter[string]
	logins    *attempts.Limiter[loginKey]
	routes    map[string]route
}

// New prepares the console: it reads the templates and assets that are built
// into the program.
func New(cfg Config) (*Console, error) {
	if cfg.Backend == nil || cfg.Stream == nil {
		return nil, errors.New("console: Backend and Stream are required")
	}
	c := &Console{
		cfg:       cfg,
		log:       web.WithLogIDs(cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))),
		origin:    http.NewCrossOriginProtection(),
		wrongKeys: attempts.New[string](wrongKeysPerMinute),
		logins:    attempts.New[loginKey](loginsPerMinute),
		routes:    map[string]route{},
	}
	for _, r := range routes() {
		if _, twice := c.routes[r.name]; twice {
			return nil, errors.New("console: two routes are named " + r.name)
		}
		c.routes[r.name] = r
	}
	c.hosts, c.publicHost = cfg.AllowedHosts, httpsHost(cfg.PublicURL)
	if u, err := url.Parse(cfg.PublicURL); err == nil && u.Hostname() != "" {
		c.hosts = append(slices.Clone(c.hosts), u.Hostname())
	}
	var err error
	if c.assets, err = assets.Load(); err != nil {
		return nil, err
	}
	c.templates, err = c.parseTemplates()
	return c, err
}

// Mount adds the pages to e, and sends a browser that asks for the root to
// them.
func (c *Console) Mount(e *echo.Echo) {
	e.GET("/", c.root)
	e.GET("/console", c.root)
	e.GET(assets.Route, c.secured(func(v *request) error { return c.assets.Serve(v) }))
	for _, r := range routes() {
		e.Add(r.method, r.path, c.secured(c.handler(r)))
	}
	// Any other path answers with a page that shows where to go on.
	for _, method := range []string{http.MethodGet, http.MethodPost} {
		e.Add(method, "/console/*", c.secured(c.handler(route{handle: notFound})))
	}
}

// root is for people who type the address of the server; programs go on
// getting the 404 they know.
func (c *Console) root(ec echo.Context) error {
	if _, err := c.siteOf(ec.Request()); err != nil {
		return err
	}
	if !web.Accepts(ec.Request(), "text/html") && ec.Path() == "/" {
		return echo.ErrNotFound
	}
	return ec.Redirect(http.StatusSeeOther, homePath)
}
