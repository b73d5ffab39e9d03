package main

import (
	"context"
	stdjson "encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/bridge"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// leasedMCP is a tool proxy before a store in memory, and a lease of one task.
func leasedMCP(t *testing.T) (url string, lease picket.Lease, e *orchestrator.Engine) {
	t.Helper()
	s, stop := rig.Memory()
	t.Cleanup(stop)
	sealer, quiet := rig.Sealer(), slog.New(slog.DiscardHandler)
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:   s.Redis,
			Memory:  s.Memory,
			Sealer:  sealer,
			Witness: t.TempDir(),
			Found:   true,
			Log:     quiet,
		})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	proxy, err := toolproxy.New(toolproxy.Config{
		Sealer: sealer, Log: quiet, Backend: toolProxyBackend(store),
		Parts: []toolproxy.Part{mcppart.New(nil)},
	})
	if err != nil {
		t.Fatal(err)
	}
	h := web.New(quiet)
	proxy.Mount(h)
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		proxy.Close()
		server.Close()
	})
	e = store.Engine("default")
	by := picket.Caller{Actor: "test"}
	if _, err := e.Submit(t.Context(), by, picket.TaskSpec{Title: "a task"}); err != nil {
		t.Fatal(err)
	}
	leases, err := e.Acquire(t.Context(), by, picket.AcquireRequest{AgentID: "agent-1"})
	if err != nil || len(leases) != 1 {
		t.Fatalf("%v, %d leases", err, len(leases))
	}
	return server.URL, leases[0], e
}

// runBridge runs `picket mcp` with the lease of the environment.
func runBridge(ctx context.Context, in io.Reader, out io.Writer) error {
	c := bridge.New()
	c.SetArgs([]string{})
	c.SetIn(in)
	c.SetOut(out)
	c.SetErr(io.Discard)
	return c.ExecuteContext(ctx)
}

// The bridge carries both wires: sessions, questions, refusals.
func TestMCPBridge(t *testing.T) {
	for _, wire := range []string{"2025-11-25", "2026-07-28"} {
		t.Run(wire, func(t *testing.T) {
			url, lease, e := leasedMCP(t)
			t.Setenv("PICKET_PROXY_URL", url)
			t.Setenv("PICKET_LEASE_TOKEN", lease.LeaseToken.Reveal())
			fromAgent, agentOut := io.Pipe()
			agentIn, toAgent := io.Pipe()
			ended := make(chan error, 1)
			go func() { ended <- runBridge(t.Context(), fromAgent, toAgent) }()
			client := mcp.NewClient(&mcp.Implementation{Name: "agent", Version: "1"}, nil)
			s, err := client.Connect(t.Context(), &mcp.IOTransport{Reader: agentIn, Writer: agentOut},
				&mcp.ClientSessionOptions{ProtocolVersion: wire})
			if err != nil {
				t.Fatal(err)
			}
			if got := s.InitializeResult().ProtocolVersion; got != wire {
				t.Errorf("the wire is %s", got)
			}
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) < 5 {
				t.Fatalf("%v, %d tools", err, len(list.Tools))
			}
			r, err := s.CallTool(t.Context(),
				&mcp.CallToolParams{
					Name:      "report_progress",
					Arguments: map[string]any{"summary": "a line\nand another"},
				})
			if err != nil || r.IsError {
				t.Fatalf("%v %+v", err, r)
			}
			if _, err := e.Cancel(t.Context(), picket.Caller{Actor: "test"}, lease.TaskID, "enough"); err != nil {
				t.Fatal(err)
			}
			r, err = s.CallTool(t.Context(),
				&mcp.CallToolParams{Name: "report_progress", Arguments: map[string]any{"summary": "more"}})
			if err != nil || !r.IsError || !strings.Contains(r.Content[0].(*mcp.TextContent).Text, "task_cancelled") {
				t.Errorf("after the end: %v %+v", err, r)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(30 * time.Second):
				t.Error("the bridge outlives its input")
			}
		})
	}
}

func TestMCPBridgeSaysWhatIsWrong(t *testing.T) {
	for _, name := range []string{"PICKET_PROXY_URL", "PICKET_MCP_URL", "PICKET_LEASE_TOKEN"} {
		t.Setenv(name, "")
	}
	if err := runBridge(t.Context(), strings.NewReader(""), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "no lease in the environment") {
		t.Errorf("without a lease: %v", err)
	}
	url, _, _ := leasedMCP(t)
	var out strings.Builder
	t.Setenv("PICKET_MCP_URL", url+"/mcp")
	t.Setenv("PICKET_LEASE_TOKEN", "pkl_forged")
	in := `{"jsonrpc":"2.0","id":7,"method":"tools/list"}` + "\nnot a message\n"
	if err := runBridge(context.Background(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"id":7`, "PICKET_LEASE_TOKEN", "not a JSON-RPC message"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is not in %s", want, out.String())
		}
	}
}

// A model can read why its tool call got no answer: the call has a result.
func TestMCPBridgeTellsTheModelThatTheServerIsAway(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		panic(http.ErrAbortHandler) // the connection ends without an answer
	}))
	defer server.Close()
	t.Setenv("PICKET_MCP_URL", server.URL+"/mcp")
	t.Setenv("PICKET_LEASE_TOKEN", "pkl_any")
	var out strings.Builder
	in := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get_task","arguments":{}}}` + "\n"
	if err := runBridge(context.Background(), strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	var answer struct {
		ID     int
		Error  any
		Result mcp.CallToolResult
	}
	if err := stdjson.Unmarshal([]byte(out.String()), &answer); err != nil {
		t.Fatalf("%v: %s", err, out.String())
	}
	if answer.ID != 1 || answer.Error != nil || !answer.Result.IsError || len(answer.Result.Content) != 1 ||
		!strings.Contains(answer.Result.Content[0].(*mcp.TextContent).Text, "before the answer") {
		t.Errorf("the model got %s", out.String())
	}
}
