package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

const mcpcallText = "what a metered call costs: a tool of a local MCP server (streamable HTTP), called through Picket's proxy, which checks the lease, reserves the price, passes the call on and settles it, " +
	"against the same calls made directly. The same client library on both sides; 4 workers with a session each make a quarter as many calls as the plan has tasks. Two Redis calls for each metered one."

// mcpcall measures calls of a tool through the proxy against direct ones.
func mcpcall(ctx context.Context, b *bench) error {
	server, err := startRedis(ctx, "off")
	if err != nil {
		return err
	}
	defer server.stop()
	p := b.plan
	p.Workers, p.Tasks = min(p.Workers, 4), max(p.Tasks/4, 1)
	store, sealer, err := openStore(ctx, server, true)
	if err != nil {
		return err
	}
	defer store.Close()
	echo := mcp.NewServer(&mcp.Implementation{Name: "echo", Version: "1"}, nil)
	echo.AddTool(&mcp.Tool{Name: "echo", InputSchema: map[string]any{"type": "object"}},
		func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "echo"}}}, nil
		})
	direct, stopDirect, err := serveMCP(ctx,
		mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return echo }, nil))
	if err != nil {
		return err
	}
	defer stopDirect()

	log := slog.New(slog.DiscardHandler)
	engine := store.Engine("default")
	prices := &budget.PriceList{Version: "bench", Tools: map[string]budget.Price{"up_*": {Call: 1}}}
	proxy, err := toolproxy.New(toolproxy.Config{
		Sealer:  sealer,
		Log:     log,
		Backend: func(string) toolproxy.Backend { return engine },
		Prices:  func() *budget.PriceList { return prices },
		Parts:   []toolproxy.Part{mcppart.New([]mcppart.Upstream{{Name: "up", URL: direct}})},
	})
	if err != nil {
		return err
	}
	defer proxy.Close()
	proxy.Start()
	e := web.New(log)
	proxy.Mount(e)
	through, stopProxy, err := serveMCP(ctx, e)
	if err != nil {
		return err
	}
	defer stopProxy()

	bearers, err := bearersOf(ctx, p, engine)
	if err != nil {
		return err
	}
	metered, closeMetered, err := callers(ctx, through+"/mcp", bearers)
	if err != nil {
		return err
	}
	defer closeMetered()
	plain, closePlain, err := callers(ctx, direct, make([]string, len(bearers)))
	if err != nil {
		return err
	}
	defer closePlain()
	sides, err := b.inTurn(ctx, "mcpcall", "calls/s",
		contender{"through the proxy",
			func(ctx context.Context) (sample, error) { return calls(ctx, p, metered, "up_echo") }},
		contender{"direct", func(ctx context.Context) (sample, error) { return calls(ctx, p, plain, "echo") }})
	if err != nil {
		return err
	}
	b.add(line{Scenario: "mcpcall", Case: "local server", Layer: "http", Unit: "calls/s", Fsync: "off", Sides: sides,
		Must: atLeast(1.0 / 12), Moonshot: atLeast(1.0 / 6)}, rate, server.version)
	return nil
}

// serveMCP serves a handler on a loopback port.
func serveMCP(ctx context.Context, h http.Handler) (url string, stop func(), err error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	s := &http.Server{Handler: h}
	go func() { _ = s.Serve(l) }()
	return "http://" + l.Addr().String(), func() { _ = s.Close() }, nil
}

// bearersOf leases a task for each worker, with money enough for every call.
func bearersOf(ctx context.Context, p plan, e *orchestrator.Engine) ([]string, error) {
	for range p.Workers {
		if _, err := e.Submit(ctx, asBench,
			picket.TaskSpec{Title: "bench", BudgetEnvelope: &budget.Envelope{USD: 1_000_000_000_000}}); err != nil {
			return nil, fmt.Errorf("submit: %w", err)
		}
	}
	all := p.Workers
	leases, err := e.Acquire(ctx, asBench, picket.AcquireRequest{Max: &all})
	if err != nil {
		return nil, fmt.Errorf("acquire: %w", err)
	}
	if len(leases) != all {
		return nil, fmt.Errorf("%d leases granted", len(leases))
	}
	bearers := make([]string, all)
	for i, l := range leases {
		bearers[i] = l.LeaseToken.Reveal()
	}
	return bearers, nil
}

// bearing adds a bearer to every request; none when it is empty.
type bearing struct{ bearer string }

func (b bearing) RoundTrip(r *http.Request) (*http.Response, error) {
	if b.bearer != "" {
		r = r.Clone(r.Context())
		r.Header.Set("Authorization", "Bearer "+b.bearer)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// callers opens a session for each bearer.
func callers(ctx context.Context, url string, bearers []string) (all []*mcp.ClientSession, closeAll func(), err error) {
	closeAll = func() {
		for _, s := range all {
			_ = s.Close()
		}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
	for _, bearer := range bearers {
		s, err := client.Connect(ctx,
			&mcp.StreamableClientTransport{
				Endpoint:   url,
				HTTPClient: &http.Client{Transport: bearing{bearer}},
				MaxRetries: -1,
			}, nil)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("connect to %s: %w", url, err)
		}
		all = append(all, s)
	}
	return all, closeAll, nil
}

// calls makes a round of calls.
func calls(ctx context.Context, p plan, sessions []*mcp.ClientSession, tool string) (sample, error) {
	return throughput(p, func(worker, _ int) error {
		got, err := sessions[worker].CallTool(ctx, &mcp.CallToolParams{Name: tool, Arguments: map[string]any{}})
		if err == nil && got.IsError {
			err = fmt.Errorf("the call was refused: %+v", got.StructuredContent)
		}
		return err
	})
}
