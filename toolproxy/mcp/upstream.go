package mcp

import (
	"context"
	"crypto/tls"
	stdjson "encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/toolproxy"
)

// Pauses of an upstream that ends or cannot be reached.
const (
	initialBackoff    = 250 * time.Millisecond
	maxBackoff        = 30 * time.Second
	backoffResetAfter = time.Minute        // of life: the pauses start again
	refreshInterval   = 5 * time.Minute    // a notice may be lost
	minRefreshPause   = initialBackoff / 2 // between two readings of its lists, at first
	maxOwnedConns     = 8                  // connections of single sessions
)

// What is taken of a list of an upstream.
const (
	maxListed      = 1000
	maxListedBytes = 8 << 20
)

// upstreamClient keeps a connection to an MCP server.
type upstreamClient struct {
	Upstream
	log         *slog.Logger
	conns       connOptions
	publish     func(*upstreamClient, upstreamCatalog) // tells what it offers now
	readPending chan struct{}                          // its lists have changed

	closing sync.WaitGroup // connections that are being closed

	mu         sync.Mutex
	sharedConn *upstreamConn // nil while there is no connection
	ownedConns map[*mcp.ServerSession]*upstreamConn
	err        error           // why there is no connection
	retryAt    time.Time       // when it is tried again
	subscribed map[string]bool // resources whose changes it reports
}

// upstreamCatalog is all that an upstream has.
type upstreamCatalog struct {
	tools        []*mcp.Tool
	prompts      []*mcp.Prompt
	resources    []*mcp.Resource
	templates    []*mcp.ResourceTemplate
	canComplete  bool // it completes arguments
	canSubscribe bool // it reports changes of resources
}

func newUpstreamClient(cfg Upstream, log *slog.Logger, publish func(*upstreamClient, upstreamCatalog),
	resourceUpdated func(*upstreamClient, string)) *upstreamClient {
	u := &upstreamClient{
		Upstream:    cfg,
		log:         log.With("upstream", cfg.Name),
		publish:     publish,
		readPending: make(chan struct{}, 1),
		ownedConns:  map[*mcp.ServerSession]*upstreamConn{},
		subscribed:  map[string]bool{},
		err:         errors.New("it has not been reached yet"),
	}
	u.conns = connOptions{cfg, u.log, u.markChanged, func(uri string) { resourceUpdated(u, uri) }}
	return u
}

// run connects again and again until ctx ends.
func (u *upstreamClient) run(ctx context.Context) {
	defer u.closing.Wait()
	for pause := initialBackoff; ; pause = min(2*pause, maxBackoff) {
		began := time.Now()
		err := u.serveConn(ctx)
		if ctx.Err() != nil {
			return
		}
		err = untrustedError{err}
		if time.Since(began) > backoffResetAfter {
			pause = initialBackoff
		}
		u.mu.Lock()
		u.err, u.retryAt = err, time.Now().Add(pause)
		u.mu.Unlock()
		u.log.Warn("upstream is gone", "err", err, "again", pause)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

// serveConn keeps one connection and publishes what it offers until it ends.
func (u *upstreamClient) serveConn(ctx context.Context) error {
	l, err := u.conns.connect(ctx, nil)
	if err != nil {
		return err
	}
	defer u.closeConn(l)
	u.mu.Lock()
	u.sharedConn, u.err = l, nil // before its tools are listed: a client may call one at once
	u.mu.Unlock()
	if err := u.refresh(ctx, l); err != nil {
		return err
	}
	u.log.Info("upstream connected", "wire", l.session.InitializeResult().ProtocolVersion)
	u.refreshLoop(ctx, l.closed, func() {
		if err := u.refresh(ctx, l); err != nil {
			u.log.Warn("an upstream's lists cannot be read", "err", untrustedError{err})
		}
	})
	if err := ctx.Err(); err != nil {
		return err
	}
	return l.err
}

// closeConn closes a connection and all that depend on it.
func (u *upstreamClient) closeConn(l *upstreamConn) {
	u.mu.Lock()
	owned := u.ownedConns
	u.sharedConn, u.ownedConns, u.subscribed = nil, map[*mcp.ServerSession]*upstreamConn{}, map[string]bool{}
	u.mu.Unlock()
	for _, o := range owned {
		if o != nil {
			o.close()
		}
	}
	l.close()
}

// unavailable is the refusal of a call while there is no connection. Nothing has been
// sent.
func (u *upstreamClient) unavailable() error {
	u.mu.Lock()
	err, next := u.err, u.retryAt
	u.mu.Unlock()
	refusal := picket.Refuse(picket.CodeUpstream, "Wait a moment and call it again, or do without it.",
		"the MCP server %s is not there", u.Name)
	if wait := time.Until(next); wait > 0 {
		refusal.RetryAfter = wait
	}
	return toolproxy.NotSent(refusal.With("upstream", u.Name).WithCause(err))
}

// refreshLoop reads the lists again whenever the upstream says that they have changed, and now and
// then on its own, until the connection is gone. Between two readings is a pause, which doubles
// while the upstream keeps reporting changes. Changes that it reports during a pause lead to one
// reading after it.
func (u *upstreamClient) refreshLoop(ctx context.Context, gone <-chan struct{}, read func()) {
	again := time.NewTicker(refreshInterval)
	defer again.Stop()
	last := time.Now()
	for pause := minRefreshPause; ; last = time.Now() {
		select {
		case <-ctx.Done():
			return
		case <-gone:
			return
		case <-u.readPending:
		case <-again.C:
		}
		if quiet := time.Since(last); quiet >= min(10*pause, backoffResetAfter) {
			pause = minRefreshPause
		} else if sleepUnlessGone(ctx, gone, pause-quiet) {
			pause = min(2*pause, maxBackoff)
		} else {
			return
		}
		select {
		case <-u.readPending: // said during the pause
		default:
		}
		read()
	}
}

// sleepUnlessGone waits, if the connection lasts as long.
func sleepUnlessGone(ctx context.Context, gone <-chan struct{}, pause time.Duration) bool {
	over := time.NewTimer(pause)
	defer over.Stop()
	select {
	case <-ctx.Done():
	case <-gone:
	case <-over.C:
		return true
	}
	return false
}

// markChanged asks for the lists to be read again.
func (u *upstreamClient) markChanged() {
	select {
	case u.readPending <- struct{}{}:
	default: // they will be read already
	}
}

// refresh reads what the upstream offers.
func (u *upstreamClient) refresh(ctx context.Context, l *upstreamConn) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	caps := l.session.InitializeResult().Capabilities
	if caps == nil {
		caps = &mcp.ServerCapabilities{}
	}
	o := upstreamCatalog{
		canComplete:  caps.Completions != nil,
		canSubscribe: caps.Resources != nil && caps.Resources.Subscribe,
	}
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
			u.log.Debug("an upstream has no resource templates", "err", untrustedError{err})
		}
	}
	u.publish(u, o)
	return nil
}

// collect reads a list, as far as it is looked at: an upstream may have no end
// of pages.
func collect[T any](u *upstreamClient, items func(func(*T, error) bool)) (list []*T, err error) {
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

// localName is how a tool or prompt of an upstream is called here.
func (u *upstreamClient) localName(theirs string) string {
	return u.Name + "_" + invalidNameChars().ReplaceAllString(theirs, "_")
}

// byLocalName maps each name here to one of the things that an upstream lists. The one that really
// has this name comes first, then the first in the alphabet, so the order of the list never changes
// where a call goes.
func byLocalName[T any](u *upstreamClient, list []T, nameOf func(T) string) map[string]T {
	found := map[string]T{}
	for _, item := range list {
		name := u.localName(nameOf(item))
		had, taken := found[name]
		if !taken || u.closer(name, nameOf(item), nameOf(had)) {
			found[name] = item
		}
	}
	return found
}

func (u *upstreamClient) closer(name, one, other string) bool {
	if exact := name == u.Name+"_"+one; exact != (name == u.Name+"_"+other) {
		return exact
	}
	return one < other
}

func toolName(t *mcp.Tool) string     { return t.Name }
func promptName(p *mcp.Prompt) string { return p.Name }

var invalidNameChars = lazyregexp.New(`[^A-Za-z0-9_]`)

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

var upstreamNamePattern = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_]{0,31}$`)

// check refuses what cannot work.
func (u Upstream) check() error {
	if !upstreamNamePattern().MatchString(u.Name) {
		return fmt.Errorf("toolproxy: %q is not a name of an upstream: letters, digits and underscores, at most 32",
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
