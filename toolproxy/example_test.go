package toolproxy_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/toolproxy"
)

// skySource has one tool, which tells the weather for a cent.
type skySource struct{ proxy *toolproxy.Proxy }

// withSky is the part that plugs the source into a proxy.
func withSky(p *toolproxy.Proxy) error {
	p.AddSource(skySource{p})
	return nil
}

// Tools lists the tool if it has a price.
func (s skySource) Tools(context.Context, toolproxy.ExecQueue, picket.LeaseCredential) ([]toolproxy.Tool, error) {
	tool, ok := s.proxy.WithPrice(toolproxy.Tool{
		Name:        "sky",
		Description: "Tells what the sky looks like.",
		InputSchema: jsontext.Value(`{"type":"object"}`),
	})
	if !ok {
		return nil, nil
	}
	return []toolproxy.Tool{tool}, nil
}

// Call checks the arguments before it reserves the price.
func (s skySource) Call(ctx context.Context, c toolproxy.Call) (answer jsontext.Value, mine bool, err error) {
	if c.Name != "sky" {
		return nil, false, nil
	}
	if _, err := toolproxy.DecodeArgs[struct{}](c.Args); err != nil {
		return nil, true, err
	}
	answer, err = s.proxy.MeteredAnswer(ctx, c, toolproxy.MeteredCall{
		Dispatch: func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
			return toolproxy.DispatchResult{Result: picket.RawJSON(`{"sky":"clear"}`)}, nil
		},
	})
	return answer, true, err
}

// A source brings tools of its own. The proxy checks the lease and the envelope before
// the source is asked, and puts the price beside the answer.
func ExampleSource() {
	agent, stop := newExampleAgent(withSky)
	defer stop()
	fmt.Println(agent.call("sky", `{}`))
	fmt.Println(agent.call("sky", `{"where":"here"}`))
	// Output:
	// {"available":{"tokens":1000000,"usd":0.99},"cost":{"tokens":0,"usd":0.01},"sky":"clear"}
	// validation_failed: /where is not a known field
}

// A proxy in front of an engine in the same process. The agent reports and ends its run
// with tools.
func ExampleNew() {
	agent, stop := newExampleAgent()
	defer stop()
	fmt.Println(agent.call("report_progress", `{"summary":"half of it is done"}`))
	fmt.Println(agent.call("mark_complete", `{"output":"all of it"}`))
	fmt.Println(agent.call("report_progress", `{"summary":"one more thing"}`))
	// Output:
	// {"seq":1,"pinned":true}
	// {"state":"review"}
	// lease_released: the lease has ended (success); the task is in state review
}

// exampleAgent is a running agent that calls tools.
type exampleAgent struct {
	url   string
	token picket.Secret
}

// newExampleAgent serves a proxy with these parts in front of an engine that keeps its
// state in memory, and leases a task.
func newExampleAgent(parts ...toolproxy.Part) (a exampleAgent, stop func()) {
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	memory, stopMemory := rig.Memory()
	witness, err := os.MkdirTemp("", "example")
	check(err)
	ctx, sealer, log := context.Background(), rig.Sealer(), slog.New(slog.DiscardHandler)
	store, err := orchestrator.Open(ctx, orchestrator.Config{
		Redis: memory.Redis, Memory: true, Sealer: sealer, Witness: witness, Found: true, Log: log,
	})
	check(err)
	prices, err := budget.NewPriceList(map[string]budget.Price{"sky": {Call: 10_000_000}}, nil)
	check(err)

	proxy, err := toolproxy.New(toolproxy.Config{
		Sealer: sealer,
		Backend: func(namespace string) toolproxy.Backend {
			if engine := store.Engine(namespace); engine != nil {
				return engine
			}
			return nil // not a nil engine within an interface
		},
		Prices: func() *budget.PriceList { return prices },
		Parts:  parts,
		Log:    log,
	})
	check(err)
	proxy.Start()
	routes := web.New(log)
	proxy.Mount(routes)
	server := httptest.NewServer(routes)

	engine, by := store.Engine("default"), picket.Caller{Actor: "example"}
	_, err = engine.Submit(ctx, by, picket.TaskSpec{Title: "an example"})
	check(err)
	leases, err := engine.Acquire(ctx, by, picket.AcquireRequest{AgentID: "agent-1"})
	check(err)
	held, err := sealer.OpenLeaseToken(leases[0].LeaseToken.Reveal())
	check(err)
	_, err = engine.Renew(ctx, held) // as its adapter does
	check(err)
	return exampleAgent{server.URL, leases[0].AgentCredential()}, func() {
		server.Close()
		proxy.Close()
		check(store.Close())
		stopMemory()
		check(os.RemoveAll(witness))
	}
}

// call calls a tool over HTTP and returns its answer, or the code and the message of a
// refusal.
func (a exampleAgent) call(tool, args string) string {
	req, err := http.NewRequest(http.MethodPost, a.url+"/v1/tools/"+tool, strings.NewReader(args))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+a.token.Reveal())
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	var refusal struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	if resp.StatusCode != http.StatusOK && json.Unmarshal(body, &refusal) == nil {
		return refusal.Code + ": " + refusal.Message
	}
	return string(body)
}
