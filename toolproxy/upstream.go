package toolproxy

import (
	"context"
	stdjson "encoding/json"
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
}

var upstreamName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)

// check refuses what cannot work.
func (u Upstream) check() error {
	if !upstreamName.MatchString(u.Name) {
		return fmt.Errorf("toolproxy: %q is no name of an upstream: letters, digits and underscores, at most 32", u.Name)
	}
	if (u.URL == "") == (len(u.Command) == 0) {
		return fmt.Errorf("toolproxy: the upstream %s needs either a URL or a command", u.Name)
	}
	if at, err := url.Parse(u.URL); u.URL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
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
	publish func(*upstream, offer) // tells what it offers now
	tell    func(uri string)       // tells of a changed resource
	stale   chan struct{}          // its lists have changed

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

func newUpstream(cfg Upstream, log *slog.Logger, publish func(*upstream, offer), tell func(string)) *upstream {
	return &upstream{Upstream: cfg, log: log.With("upstream", cfg.Name), publish: publish, tell: tell, stale: make(chan struct{}, 1),
		owned: map[*mcp.ServerSession]*link{}, watched: map[string]bool{}, err: errors.New("it has not been reached yet")}
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
	again := time.NewTicker(relistEvery)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-l.gone:
			return l.err
		case <-u.stale:
		case <-again.C:
		}
		if err := u.refresh(ctx, l); err != nil {
			u.log.Warn("an upstream's lists cannot be read", "err", err)
		}
	}
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

// changed asks for the lists to be read anew.
func (u *upstream) changed() {
	select {
	case u.stale <- struct{}{}:
	default: // they will be read already
	}
}

// refresh reads what the upstream offers.
func (u *upstream) refresh(ctx context.Context, l *link) error {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	caps := l.session.InitializeResult().Capabilities
	if caps == nil {
		caps = &mcp.ServerCapabilities{}
	}
	o := offer{completes: caps.Completions != nil, watches: caps.Resources != nil && caps.Resources.Subscribe}
	var err error
	if caps.Tools != nil {
		if o.tools, err = collect(u, l.session.Tools(ctx, nil)); err != nil {
			return fmt.Errorf("list tools: %w", err)
		}
	}
	if caps.Prompts != nil {
		if o.prompts, err = collect(u, l.session.Prompts(ctx, nil)); err != nil {
			return fmt.Errorf("list prompts: %w", err)
		}
	}
	if caps.Resources != nil {
		if o.resources, err = collect(u, l.session.Resources(ctx, nil)); err != nil {
			return fmt.Errorf("list resources: %w", err)
		}
		if o.templates, err = collect(u, l.session.ResourceTemplates(ctx, nil)); err != nil {
			u.log.Debug("an upstream has no resource templates", "err", err)
		}
	}
	u.publish(u, o)
	return nil
}

// collect reads a list, as far as it is looked at: an upstream may have no end
// of pages.
func collect[T any](u *upstream, items func(func(*T, error) bool)) (list []*T, err error) {
	size := 0
	for item, err := range items {
		if err != nil {
			return nil, err
		}
		if item == nil { // it said null
			continue
		}
		raw, err := stdjson.Marshal(item)
		if err != nil {
			return nil, err
		}
		if size += len(raw); len(list) == maxListed || size > maxListedBytes {
			u.log.Warn("an upstream's list is too long: the rest is left out", "kept", len(list))
			break
		}
		list = append(list, item)
	}
	return list, nil
}

// away is the refusal of a call while there is no connection. Nothing has been
// sent.
func (u *upstream) away() error {
	u.mu.Lock()
	err, next := u.err, u.next
	u.mu.Unlock()
	refusal := picket.Refuse(picket.CodeUpstream, "Wait a moment and call it again, or do without it.", "the MCP server %s is not there", u.Name)
	if wait := time.Until(next); wait > 0 {
		refusal.RetryAfter = wait
	}
	return NeverLeft(refusal.With("upstream", u.Name).Because(err))
}
