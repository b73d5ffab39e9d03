package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"runtime/debug"
	"slices"
	"time"

	"github.com/labstack/echo/v4"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/cmd/picket/doctor"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/tracing"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/orchestrator/console"
	"github.com/picket-dev/picket/orchestrator/mirror"
	"github.com/picket-dev/picket/orchestrator/store"
	"github.com/picket-dev/picket/reaper"
	"github.com/picket-dev/picket/reaper/webhooks"
	"github.com/picket-dev/picket/toolproxy"
	"github.com/picket-dev/picket/toolproxy/llm"
	"github.com/picket-dev/picket/toolproxy/mcp"
	"github.com/picket-dev/picket/toolproxy/tools"
)

// This file is the only place that connects the server packages: it opens the
// state of record and gives every other package the few methods that it needs.

// roles says which servers a process runs.
type roles struct {
	orchestrator bool
	toolproxy    bool
	reaper       bool
}

// serverProcess is a server process before it serves.
type serverProcess struct {
	roles
	cfg      settings.Settings
	redis    redis.UniversalOptions
	memory   bool
	sealer   *seal.Sealer
	proxyURL string // URL of the tool proxy, put into leases
	prices   *livePrices
	log      *slog.Logger
	guard    *web.Guard // of the connections
	// witnessDir is the directory of this machine's witness files; empty for roles that may not
	// adopt a store. found: a namespace that nobody knows is made here.
	witnessDir    string
	createMissing bool
	// ticketDir is a directory in memory, of a process that owns its store. storeAddress names that
	// store in the names of witness files.
	ticketDir    string
	storeAddress string
	policyDir    string // of the files of wake policies; empty: none
	onAdopted    func(ctx context.Context, e *orchestrator.Engine)
}

// quotas are those of the settings. The setting 0 means no bundle; in Quotas, 0 means the default.
func (h serverProcess) quotas() orchestrator.Quotas {
	q := orchestrator.Quotas(h.cfg.Quota)
	if q.BundleBytes == 0 {
		q.BundleBytes = -1
	}
	return q
}

// openStore connects to the state of record.
func (h serverProcess) openStore(ctx context.Context) (*orchestrator.Store, error) {
	redis.SetLogger(driverLog{h.log})
	if err := h.checkPolicyDir(); err != nil {
		return nil, err
	}
	if err := h.checkStore(ctx); err != nil {
		return nil, err
	}
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis:         h.redis,
		Namespaces:    h.cfg.Namespaces(),
		Sealer:        h.sealer,
		ProxyURL:      h.proxyURL,
		Memory:        h.memory,
		Unmetered:     unmeteredAgents(h.cfg),
		SessionLimits: sessionLimits(h.cfg),
		Log:           h.log,
		Quotas:        h.quotas(),
		Wake:          wakeSettings(h.cfg),
		Witness:       h.witnessDir,
		Tickets:       h.ticketDir,
		Address:       h.storeAddress,
		Workspaces:    picket.WorkspaceRetention(h.cfg.Retention.Workspaces),
		Found:         h.createMissing,
		OnAdopt:       h.onAdopted,
		DailyLimit:    h.cfg.DailyLimit(),
		TaskEnvelope:  h.cfg.DefaultTaskEnvelope(),
	})
	if err != nil {
		return nil, openStoreError(err)
	}
	if h.prices != nil && h.orchestrator {
		h.prices.applyBudgets = store.SetBudgets
	}
	return store, nil
}

// markPatience bounds how long a stop is marked.
const markPatience = 5 * time.Second

// closeStore closes a store after its last user. If this process owns the store, the stop
// is marked, so that the next start need not adopt it.
func (h serverProcess) closeStore(store *orchestrator.Store) error {
	if h.ticketDir == "" {
		return store.Close()
	}
	ctx, cancel := context.WithTimeout(context.Background(), markPatience)
	defer cancel()
	return store.CloseMarked(ctx)
}

func openStoreError(err error) error {
	var refusal *picket.Error
	if errors.As(err, &refusal) && !errors.Is(err, picket.ErrUnknown) {
		return err
	}
	return picket.Refuse(picket.CodeUnavailable, "Check that Redis runs and that its URL is right.",
		"the store cannot be opened: %v", err).WithCause(err)
}

// checkStore asks how the Redis servers keep what they are told, before
// anything is written to them.
func (h serverProcess) checkStore(ctx context.Context) error {
	if h.memory {
		return nil
	}
	found, err := storeFindings(ctx, h.redis)
	if err != nil {
		return openStoreError(err)
	}
	return requireSafeStore(found, h.cfg, h.log)
}

// storeFindings is what puts the data of a Redis at risk.
func storeFindings(ctx context.Context, where redis.UniversalOptions) ([]doctor.Finding, error) {
	found, err := store.CheckDurability(ctx, where)
	var out []doctor.Finding
	for _, f := range found {
		as := doctor.Finding{Subject: "redis", Grade: "warn", Detail: f.Detail, Remedy: f.Remedy}
		if f.Refused {
			as.Grade = "fail"
		}
		if f.Node != "" {
			as.Subject += " " + f.Node
		}
		out = append(out, as)
	}
	return out, err
}

// serve runs the servers on their endpoints until ctx ends, or until one of them
// fails. It does not close the store.
func (h serverProcess) serve(ctx context.Context, all endpoints, store *orchestrator.Store) error {
	// Most of a server's memory is buffers of connections: the collector comes
	// twice as early, so that thousands of idle ones cost half.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
	if h.prices == nil {
		h.prices = &livePrices{}
		h.prices.list.Store(noPrices)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if h.prices.reloadOnHangup(ctx) {
			h.log.Info("the terminal was closed")
			stop()
		}
		return nil
	})
	sender, err := h.newSender()
	if err != nil {
		return err
	}
	defer sender.Close()
	tracer := tracing.FromEnv(ctx, h.traceService(), h.log)
	defer tracer.Close()
	var parts siteParts
	rates := web.NewRates(h.cfg.Rate.PerKey, h.cfg.Rate.PerLease)
	parts.control, err = api.New(api.Config{
		Engine:        store.Engine,
		Engines:       store.Engines,
		ScriptStats:   store.ScriptStats,
		Log:           h.log,
		AllowedHosts:  h.hosts(),
		PoolAdvice:    h.cfg.Advice(),
		AgentEndpoint: h.agentEndpoint(all.proxyURL()),
		Prices:        h.prices.current,
		Webhooks:      sender,
		Connections:   h.guard.Counts,
		Rates:         rates,
	})
	if err != nil {
		return err
	}
	if parts.endpoints, err = h.newEndpoints(store, parts.control, rates, sender, all.proxyURL()); err != nil {
		return err
	}
	if h.orchestrator {
		if err := h.mirrorPolicies(ctx, group, store); err != nil {
			return err
		}
		h.warnAboutConsole()
		parts.console, err = console.New(console.Config{
			Backend:      consoleBackend(store),
			Stream:       consoleStream(parts.control, store),
			Endpoints:    shownEndpoints(parts.endpoints, h.cfg.A2A.PublicCards),
			Log:          h.log,
			AllowedHosts: h.hosts(),
			PublicURL:    h.cfg.PublicURL,
			OneHost:      !h.cfg.Console.HostPerLogin,
		})
		if err != nil {
			return err
		}
	}
	if h.toolproxy {
		env, calls := processEnv(h.log), tracer.NewCalls(taskLookup(store))
		defer calls.Close()
		proxy, err := toolproxy.New(toolproxy.Config{
			Sealer:  h.sealer,
			Backend: toolProxyBackend(store),
			Prices:  h.prices.current,
			Log:     h.log,
			Parts: []toolproxy.Part{tools.Exec(), tools.HTTP(httpToolOf(h.cfg)),
				tools.SQL(h.sealer, databasesOf(h.cfg, env)), llm.New(llmOf(h.cfg, env)),
				mcp.New(upstreamsOf(h.cfg, env))},
			Rates:  rates,
			OnCall: onCall(calls),
		})
		if err != nil {
			return err
		}
		defer proxy.Close()
		proxy.Start()
		parts.proxy = proxy
	}
	if h.reaper {
		reminders, err := h.cfg.ReminderRules()
		if err != nil {
			return err
		}
		r, err := reaper.New(reaper.Config{
			Namespaces: reaperSweeps(store), Retention: retentionOf(h.cfg), Reminders: reminders, Log: h.log,
		})
		if err != nil {
			return err
		}
		group.Go(func() error { return r.Run(ctx) })
		d, err := webhooks.New(webhooks.Config{Queues: webhookQueues(store), Sender: sender, Log: h.log})
		if err != nil {
			return err
		}
		group.Go(func() error { return d.Run(ctx) })
		if err := h.deliverPush(ctx, group, store, sender); err != nil {
			return err
		}
	}
	h.exportEvents(ctx, group, tracer, store)
	if h.orchestrator {
		group.Go(func() error { return store.Monitor(ctx) })
		group.Go(func() error { return store.RunWakes(ctx) })
	}
	for _, at := range all {
		routes := parts.mount(web.New(h.log), at, h.orchestrator)
		group.Go(func() error { return web.Serve(ctx, at, routes, h.log) })
	}
	return group.Wait()
}

// siteParts are what answers the requests to a server process. Nil parts are not served.
type siteParts struct {
	control   *api.API
	console   *console.Console
	proxy     *toolproxy.Proxy
	endpoints *a2a.Server
}

// mount adds the routes of an endpoint to e.
func (p siteParts) mount(e *echo.Echo, at endpoint, orchestrator bool) *echo.Echo {
	if orchestrator && !at.only {
		p.control.Mount(e)
		if p.endpoints != nil {
			p.endpoints.Mount(e)
		}
	} else if p.proxy != nil {
		p.control.MountLeases(e)
	} else {
		p.control.MountOps(e)
	}
	if p.console != nil && at.console {
		p.console.Mount(e)
	}
	if p.proxy != nil {
		p.proxy.Mount(e)
	}
	return e
}

// checkPolicyDir refuses a directory of wake policies that cannot be used, before the store is opened.
func (h serverProcess) checkPolicyDir() error {
	if h.policyDir == "" || !h.orchestrator {
		return nil
	}
	if n := len(h.cfg.Namespaces()); n != 1 {
		return exit.Usagef("wake.dir has the policies of one namespace, and this server works for %d", n)
	}
	_, err := mirror.New(mirror.Config{Dir: h.policyDir})
	return err
}

// mirrorPolicies keeps the wake policies in the files of a directory, until ctx ends.
func (h serverProcess) mirrorPolicies(ctx context.Context, group *errgroup.Group, store *orchestrator.Store) error {
	if h.policyDir == "" {
		return nil
	}
	e := store.Engines()[0] // checkPolicyDir refuses several
	holder := rand.Text()
	files, err := mirror.New(mirror.Config{Dir: h.policyDir, Namespace: e.Namespace(), Holder: holder,
		Store: e.PolicyStore(), Settings: wakeSettings(h.cfg), Log: h.log,
		Workspace: func() (map[string]mirror.WorkspaceAgent, error) { return workspaceAgents(h.cfg) }})
	if err != nil {
		return err
	}
	e.RefreshPolicies(holder, files.Refresh)
	// The first agents get the instructions that are there now. What fails here is tried again, and reported.
	_ = files.Pass(ctx)
	group.Go(func() error { return files.Run(ctx) })
	return nil
}

// retentionOf is what the reaper deletes.
func retentionOf(cfg settings.Settings) picket.Retention {
	r := cfg.Retention
	return picket.Retention{
		Tasks:       r.Tasks,
		Events:      r.Events,
		MaxEvents:   r.MaxEvents,
		AuditAge:    r.AuditAge,
		AuditEvents: r.AuditEvents,
	}
}

// warnAboutConsole says what the settings give up, and where nobody can sign in.
func (h serverProcess) warnAboutConsole() {
	public, err := url.Parse(h.cfg.PublicURL)
	switch {
	case !h.cfg.Console.HostPerLogin:
		h.log.Warn("console.host_per_login is false: browsers send the console's cookie to every port of the host, so a program that listens on any port can act as the person")
	case err == nil && public.Scheme == "http" && !isLoopback(public.Hostname()):
		h.log.Warn("public_url is plain http: nobody can sign in to the console there, because the cookie would be sent without encryption; use https")
	}
}

func (h serverProcess) hosts() []string { return h.cfg.ServedHosts() }

// toolProxyBackend avoids the nil pointer inside a non-nil interface.
func toolProxyBackend(store *orchestrator.Store) func(string) toolproxy.Backend {
	return func(namespace string) toolproxy.Backend {
		if e := store.Engine(namespace); e != nil {
			return e
		}
		return nil
	}
}

// consoleBackend hands each group of pages the engine as the few methods that it calls.
func consoleBackend(store *orchestrator.Store) func(string) *console.Backend {
	return func(namespace string) *console.Backend {
		e := store.Engine(namespace)
		if e == nil {
			return nil
		}
		return &console.Backend{
			Logins: e, Stats: e, Handoffs: e, Reviews: e, Tasks: e, Changes: e,
			Agents: e, Leases: e, Budgets: e, Events: e, Pause: e, Messages: e,
			Sessions: e, Policies: e, Endpoints: e,
		}
	}
}

// consoleStream is the API's stream of events behind the console's own door.
func consoleStream(control *api.API,
	store *orchestrator.Store) func(echo.Context, picket.Principal, func() error) error {
	return func(c echo.Context, who picket.Principal, admit func() error) error {
		return control.Stream(c, store.Engine(who.Namespace), who, admit)
	}
}

func reaperSweeps(store *orchestrator.Store) map[string]reaper.Sweeper {
	sweeps := map[string]reaper.Sweeper{}
	for _, e := range store.Engines() {
		sweeps[e.Namespace()] = e
	}
	return sweeps
}

// awaitReady waits until every namespace can be worked with.
func awaitReady(ctx context.Context, store *orchestrator.Store) error {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	for _, e := range store.Engines() {
		for err := e.Ready(ctx); err != nil; err = e.Ready(ctx) {
			if cli.Sleep(ctx, 20*time.Millisecond) != nil {
				return err
			}
		}
	}
	return nil
}

// bootstrapCaller is who makes the first key of a namespace.
var bootstrapCaller = picket.Caller{Actor: "bootstrap"}

// registerAdminKey registers the key of a file as the administrator of a namespace; again
// is fine. A key that was revoked, or that is known with other scopes, is refused: a server
// that starts with it could not be used by anybody who has no other key.
func registerAdminKey(ctx context.Context, e *orchestrator.Engine, keyFile string, key picket.Secret) error {
	known, err := e.AdoptKey(ctx, bootstrapCaller, "admin", key, []picket.Scope{picket.ScopeAdmin})
	remedy := "Delete " + keyFile + " and start again: a new admin key is made."
	switch {
	case err != nil:
		return err
	case !known.RevokedAt.IsZero():
		return picket.Refuse(picket.CodeStateConflict, remedy,
			"the key in %s (%s) was revoked", keyFile, known.KeyID)
	case !slices.Contains(known.Scopes, picket.ScopeAdmin):
		return picket.Refuse(picket.CodeStateConflict, remedy,
			"the key in %s (%s) has no scope admin", keyFile, known.KeyID)
	}
	return nil
}

// reregisterAdminKey registers the key in a store that was adopted: one that was
// emptied has lost it.
func reregisterAdminKey(keyFile string, key picket.Secret,
	log *slog.Logger) func(context.Context, *orchestrator.Engine) {
	return func(ctx context.Context, e *orchestrator.Engine) {
		if err := registerAdminKey(ctx, e, keyFile, key); err != nil {
			log.Error("register the admin key in the adopted store", "err", err)
		}
	}
}

// witnessedFloor is what this machine knows of a namespace's store.
func witnessedFloor(cfg settings.Settings, namespace, storeID string) (floor int64, known bool, err error) {
	return store.WitnessedFloor(settings.WitnessDir(cfg.Data), namespace, storeID)
}

// driverLog takes what the Redis driver says to itself. Every caller gets its
// own error, so it is detail for anyone who asks for it.
type driverLog struct{ log *slog.Logger }

func (d driverLog) Printf(ctx context.Context, format string, args ...any) {
	d.log.DebugContext(ctx, fmt.Sprintf(format, args...))
}
