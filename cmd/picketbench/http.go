package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
	"github.com/picket-dev/picket/toolproxy"
)

// site is control plane and tool proxy on a loopback port of this process, as
// one server process has them, and a client with an operator's key.
type site struct {
	client *client.Client
	http   *http.Client
	close  func() error
}

// openSite serves a store; the client keeps a connection for each worker and
// each submitter.
func openSite(ctx context.Context, store *orchestrator.Store, sealer *seal.Sealer, workers int) (*site, error) {
	log := slog.New(slog.DiscardHandler)
	engine := store.Engine("default")
	made, err := engine.CreateKey(ctx, asBench,
		picket.KeyRequest{Name: "bench", Scopes: []picket.Scope{picket.ScopeOperator, picket.ScopeAgent}})
	if err != nil {
		return nil, fmt.Errorf("make key: %w", err)
	}
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines, Log: log})
	if err != nil {
		return nil, err
	}
	proxy, err := toolproxy.New(toolproxy.Config{
		Sealer:  sealer,
		Log:     log,
		Backend: func(string) toolproxy.Backend { return engine },
	})
	if err != nil {
		return nil, err
	}
	e := web.New(log)
	control.Mount(e)
	proxy.Mount(e)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- web.Serve(serving, l, e, log) }()
	transport := &http.Transport{MaxIdleConnsPerHost: 2 * workers}
	h := &http.Client{Transport: transport}
	c := client.New("http://"+l.Addr().String(), made.Key, client.Options{HTTP: h, Attempts: 1})
	return &site{client: c, http: h, close: func() error {
		transport.CloseIdleConnections()
		stop()
		return <-ended
	}}, nil
}

func clientEntry(s *site) entry {
	return entry{
		submit: func(ctx context.Context, spec picket.TaskSpec) error {
			_, err := s.client.Tasks.Create(ctx, spec)
			return err
		},
		acquire: func(ctx context.Context, req picket.AcquireRequest) ([]picket.Lease, error) {
			return s.client.Leases.Acquire(ctx, req)
		},
		hold: func(lease picket.Lease) (holder, error) {
			p := adapter.NewProxy(lease, s.client.URL(), s.http)
			return holder{
				renew:    func(ctx context.Context) error { _, err := p.Renew(ctx); return err },
				report:   func(ctx context.Context) error { _, err := p.Report(ctx, halfway); return err },
				complete: func(ctx context.Context) error { _, err := p.Complete(ctx, output, ""); return err },
			}, nil
		},
	}
}
