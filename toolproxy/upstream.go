package toolproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"regexp"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
)

// Upstream is an MCP server whose tools are offered beside our own, under its
// name and an underscore. One of URL and Command is set.
type Upstream struct {
	// Name prefixes its tools: letters, digits and underscores. Required.
	Name string
	// URL is where it listens for streamable HTTP. Defaults to none.
	URL string
	// Headers are sent with every request to URL. Defaults to none.
	Headers map[string]picket.Secret
	// Command starts it; it speaks over its standard streams, and is started
	// again when it ends. Defaults to none.
	Command []string
	// Env names the variables of this process that the command gets, beside PATH,
	// LANG, LC_ALL, TZ and TMPDIR. Defaults to none.
	Env []string
	// Timeout bounds a call of one of its tools. Defaults to 60 s; at most
	// picket.MaxExternalCall seconds.
	Timeout time.Duration
	// TLS is for a URL whose certificate no public authority has signed. Defaults
	// to what the system trusts.
	TLS *tls.Config
}

var upstreamName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)

// check refuses what cannot work.
func (u Upstream) check() error {
	if !upstreamName.MatchString(u.Name) {
		return fmt.Errorf("toolproxy: %q is no name of an upstream: letters, digits and underscores, at most 32",
			u.Name)
	}
	if (u.URL == "") == (len(u.Command) == 0) {
		return fmt.Errorf("toolproxy: the upstream %s needs either a URL or a command", u.Name)
	}
	if at, err := url.Parse(u.URL); u.URL != "" &&
		(err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		return fmt.Errorf("toolproxy: the URL of the upstream %s is not http or https", u.Name)
	}
	return nil
}

// Pauses of an upstream that ends or cannot be reached.
const (
	firstPause   = 250 * time.Millisecond
	longestPause = 30 * time.Second
	steadyAfter  = time.Minute // of life: the pauses begin anew
	reachTimeout = 30 * time.Second
	relistEvery  = 5 * time.Minute // a notice may be lost
	relistPause  = firstPause / 2  // between two readings of its lists, at first
	maxOwned     = 8               // connections of single sessions
)

// What is taken of a list of an upstream.
const (
	maxListed      = 1000
	maxListedBytes = 8 << 20
)

// upstream keeps a connection to an MCP server.
type upstream struct {
	Upstream
	log     *slog.Logger
	publish func(*upstream, offer)  // tells what it offers now
	tell    func(*upstream, string) // tells of a changed resource, by its URI
	stale   chan struct{}           // its lists have changed

	closing sync.WaitGroup // connections that are being closed

	mu      sync.Mutex
	shared  *link // nil while there is none
	owned   map[*mcp.ServerSession]*link
	err     error           // why there is none
	next    time.Time       // when it is tried again
	watched map[string]bool // resources it tells of changes of
}

// offer is all that an upstream has.
type offer struct {
	tools     []*mcp.Tool
	prompts   []*mcp.Prompt
	resources []*mcp.Resource
	templates []*mcp.ResourceTemplate
	completes bool // it completes arguments
	watches   bool // it tells of changes of resources
}

func newUpstream(cfg Upstream, log *slog.Logger, publish func(*upstream, offer),
	tell func(*upstream, string)) *upstream {
	return &upstream{
		Upstream: cfg,
		log:      log.With("upstream", cfg.Name),
		publish:  publish,
		tell:     tell,
		stale:    make(chan struct{}, 1),
		owned:    map[*mcp.ServerSession]*link{},
		watched:  map[string]bool{},
		err:      errors.New("it has not been reached yet"),
	}
}

// run connects again and again until ctx ends.
func (u *upstream) run(ctx context.Context) {
	defer u.closing.Wait()
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		began := time.Now()
		err := u.follow(ctx)
		if ctx.Err() != nil {
			return
		}
		err = briefly{err}
		if time.Since(began) > steadyAfter {
			pause = firstPause
		}
		u.mu.Lock()
		u.err, u.next = err, time.Now().Add(pause)
		u.mu.Unlock()
		u.log.Warn("upstream is gone", "err", err, "again", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// follow keeps one connection and publishes what it offers until it ends.
func (u *upstream) follow(ctx context.Context) error {
	l, err := u.connect(ctx, nil)
	if err != nil {
		return err
	}
	defer u.drop(l)
	if err := u.refresh(ctx, l); err != nil {
		return err
	}
	u.mu.Lock()
	u.shared, u.err = l, nil
	u.mu.Unlock()
	u.log.Info("upstream connected", "wire", l.session.InitializeResult().ProtocolVersion)
	u.keepUp(ctx, l.gone, func() {
		if err := u.refresh(ctx, l); err != nil {
			u.log.Warn("an upstream's lists cannot be read", "err", briefly{err})
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.err
}

// drop closes a connection and all that depend on it.
func (u *upstream) drop(l *link) {
	u.mu.Lock()
	owned := u.owned
	u.shared, u.owned, u.watched = nil, map[*mcp.ServerSession]*link{}, map[string]bool{}
	u.mu.Unlock()
	for _, o := range owned {
		if o != nil {
			o.close()
		}
	}
	l.close()
}

// away is the refusal of a call while there is no connection. Nothing has been
// sent.
func (u *upstream) away() error {
	u.mu.Lock()
	err, next := u.err, u.next
	u.mu.Unlock()
	refusal := picket.Refuse(picket.CodeUpstream, "Wait a moment and call it again, or do without it.",
		"the MCP server %s is not there", u.Name)
	if wait := time.Until(next); wait > 0 {
		refusal.RetryAfter = wait
	}
	return NeverLeft(refusal.With("upstream", u.Name).Because(err))
}
