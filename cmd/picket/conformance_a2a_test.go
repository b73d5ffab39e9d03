package main

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/agenttoagent"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/reaper/push"
	"github.com/picket-dev/picket/reaper/webhooks"
	"github.com/picket-dev/picket/toolproxy"
)

// a2aServer is a server with the pool builder as an endpoint, and the keys that a run needs.
type a2aServer struct {
	url       string // of the server
	public    string // what cards say
	http      *http.Client
	client    string
	other     string
	worker    picket.Secret
	push      bool // it pushes notifications
	closeOnce func()
}

// plainPoster posts push notifications to any address.
type plainPoster struct{ http *http.Client }

func (p plainPoster) Post(ctx context.Context, m webhooks.Message) webhooks.Delivery {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.URL.Reveal(), bytes.NewReader(m.Body))
	if err == nil {
		req.Header = m.Header
		req.Header.Set("Content-Type", m.ContentType)
		var res *http.Response
		if res, err = p.http.Do(req); err == nil {
			_ = res.Body.Close()
			return webhooks.Delivery{Outcome: picket.WebhookTaken, Status: res.StatusCode}
		}
	}
	return webhooks.Delivery{Outcome: picket.WebhookFailed, Error: err.Error()}
}

// withPush has the server push notifications until the test ends. It calls any address that a client may name, and
// those of this host.
func withPush(t *testing.T, change ...func(*push.Config)) func(*a2a.Config) {
	return func(cfg *a2a.Config) {
		sender, err := webhooks.NewSender(webhooks.SenderConfig{})
		noError(t, err)
		cfg.CheckPush = func(ctx context.Context, url picket.Secret) error {
			if strings.HasPrefix(url.Reveal(), "http://127.0.0.1:") {
				return nil
			}
			return sender.CheckHTTPS(ctx, url)
		}
		delivery := push.Config{Queues: map[string]push.Queue{"default": cfg.Engine("default")},
			Sender: plainPoster{&http.Client{Transport: &http.Transport{DisableKeepAlives: true},
				Timeout: time.Second}},
			Render: a2a.PushBody, ContentType: a2a.PushContentType, Log: slog.New(slog.DiscardHandler)}
		for _, c := range change {
			c(&delivery)
		}
		d, err := push.New(delivery)
		noError(t, err)
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- d.Run(ctx) }()
		t.Cleanup(func() { stop(); noError(t, <-ended) })
	}
}

// startA2A serves until the test ends. behind is set if the server is reached through a proxy below a path.
func startA2A(t *testing.T, s rig.Store, behind bool, change ...func(*a2a.Config)) *a2aServer {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	f := &a2aServer{url: "http://" + l.Addr().String(), http: &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 100}}}
	f.public = f.url
	if behind {
		f.public = behindProxy(t, f.url)
	}
	store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: s.Redis, Memory: s.Memory,
		Namespaces: []string{"default"}, Sealer: rig.Sealer(), ProxyURL: f.url, Witness: t.TempDir(), Found: true})
	noError(t, err)
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines})
	noError(t, err)
	tools, err := toolproxy.New(toolproxy.Config{Sealer: rig.Sealer(), Log: log,
		Backend: func(namespace string) toolproxy.Backend { return store.Engine(namespace) }})
	noError(t, err)
	tools.Start()
	cfg := a2a.Config{PublicURL: f.public, Pools: []a2a.Pool{{Role: "builder", Task: picket.TaskSpec{
		Review: picket.ReviewByNone}, MaxQueue: 1000, Card: a2a.CardText{Name: "Builders",
		Description: "Build things."}}},
		Admit: control.Admit, Engine: store.Engine, Leases: rig.Sealer()}
	for _, c := range change {
		c(&cfg)
	}
	f.push = cfg.CheckPush != nil
	endpoints, err := a2a.New(cfg)
	noError(t, err)
	e := web.New(log)
	control.Mount(e)
	tools.Mount(e)
	endpoints.Mount(e)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, log) }()
	f.closeOnce = sync.OnceFunc(func() {
		f.http.CloseIdleConnections()
		stop()
		noError(t, <-served)
		tools.Close()
		noError(t, store.Close())
	})
	t.Cleanup(f.closeOnce)
	key := func(req picket.KeyRequest) picket.Secret {
		made, err := store.Engine("default").CreateKey(t.Context(), bootstrapCaller, req)
		noError(t, err)
		return made.Key
	}
	limits := &picket.ClientLimits{Roles: []string{"builder"}, MaxOpen: 1000, RatePerMinute: picket.MaxClientRate}
	clientKey := picket.KeyRequest{Name: "client", Scopes: []picket.Scope{picket.ScopeClient}, Client: limits}
	f.client, f.other = key(clientKey).Reveal(), key(clientKey).Reveal()
	f.worker = key(picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	return f
}

// behindProxy is a reverse proxy that serves a server below the path /picket.
func behindProxy(t *testing.T, server string) string {
	t.Helper()
	target, err := url.Parse(server)
	noError(t, err)
	proxy := &httputil.ReverseProxy{FlushInterval: -1, Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/picket")
		r.Out.URL.RawPath = strings.TrimPrefix(r.In.URL.RawPath, "/picket")
	}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	noError(t, err)
	srv := &http.Server{Handler: proxy}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })
	return "http://" + l.Addr().String() + "/picket"
}

func noError(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// config is a run against the pool.
func (f *a2aServer) config(t *testing.T) agenttoagent.Config {
	t.Helper()
	var receiver net.Listener
	if f.push {
		var err error
		receiver, err = net.Listen("tcp", "127.0.0.1:0")
		noError(t, err)
		t.Cleanup(func() { _ = receiver.Close() })
	}
	return agenttoagent.Config{URL: f.public + "/agents/builder", Key: f.client, OtherKey: f.other, WorkerKey: f.worker,
		WorkerURL: f.url, HTTP: f.http, PushListener: receiver}
}

// expectA2A expects each rule that can be run to have passed.
func expectA2A(t *testing.T, report conformance.Report, notRun ...string) {
	t.Helper()
	t.Log(report.Summary())
	for _, r := range report.Results {
		name := r.Section + "/" + r.ID
		want := conformance.Passed
		if slices.Contains(notRun, name) {
			want = conformance.NotRun
		}
		if r.Outcome != want {
			t.Errorf("%s is %s %s, want %s: %s\n  expected: %s\n  got:      %s\n  repeat:   %s", name, r.Outcome, r.Why,
				want, r.Text, r.Expected, r.Got, r.Repeat)
		}
	}
	if len(report.Left) > 0 {
		t.Errorf("left behind: %s", strings.Join(report.Left, ", "))
	}
}

// TestA2A holds the endpoint of a pool against every rule, at the server itself and behind a reverse proxy.
func TestA2A(t *testing.T) {
	store := rig.Real(t)
	for name, behind := range map[string]bool{"Direct": false, "BehindProxy": true} {
		t.Run(name, func(t *testing.T) {
			f := startA2A(t, store, behind)
			report, err := agenttoagent.Run(t.Context(), f.config(t))
			noError(t, err)
			expectA2A(t, report, slices.Concat(a2aNotRun, a2aPushNotRun)...)
		})
	}
}

// a2aNotRun are the rules that this server cannot be held against, and a2aPushNotRun those about push notifications
// where it has them off.
var (
	a2aNotRun = []string{"3.1.11/card", "3.3.4/streaming", "3.3.4/extension", "3.6.2/empty",
		"13.3/extended-card-key"}
	a2aPushNotRun = []string{"3.1.7/creates", "3.1.7/assigns-id", "3.1.7/unknown-task", "3.1.8/gets", "3.1.8/unknown",
		"3.1.9/lists", "3.1.10/deletes", "3.1.10/again", "3.1.10/silent", "3.2.2/push-configuration", "4.3.3/delivers",
		"4.3.3/payload", "4.3.3/credentials", "4.3.3/media-type", "13.1/push", "13.2/private"}
	a2aNoPushNotRun = []string{"3.3.4/push-create", "3.3.4/push-get", "3.3.4/push-list", "3.3.4/push-delete",
		"3.3.4/push-in-message", "5.4/push-not-supported"}
)

// TestA2APush holds an endpoint that pushes notifications against every rule, behind a reverse proxy.
func TestA2APush(t *testing.T) {
	f := startA2A(t, rig.Real(t), true, withPush(t))
	report, err := agenttoagent.Run(t.Context(), f.config(t))
	noError(t, err)
	expectA2A(t, report, slices.Concat(a2aNotRun, a2aNoPushNotRun)...)
}

// TestA2AOfTheServer holds the endpoint of the server itself against the rules about the work of an agent.
func TestA2AOfTheServer(t *testing.T) {
	f := startA2A(t, rig.Real(t), false)
	cfg := f.config(t)
	cfg.URL, cfg.WorkerRole = f.public, "builder"
	cfg.Only = func(r agenttoagent.Rule) bool {
		return r.Section == "3.2.2" || r.Section == "3.1.4" || r.Section == "13.1"
	}
	report, err := agenttoagent.Run(t.Context(), cfg)
	noError(t, err)
	expectA2A(t, report, a2aPushNotRun...)
	cfg.WorkerRole = ""
	cfg.Only = func(r agenttoagent.Rule) bool { return r.Name() == "3.2.2/waits" }
	report, err = agenttoagent.Run(t.Context(), cfg)
	noError(t, err)
	expectA2A(t, report, "3.2.2/waits")
}
