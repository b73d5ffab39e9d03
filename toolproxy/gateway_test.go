//lint:file-ignore SA1019 clients and upstreams of the older wire still ask for samples and roots, and log

package toolproxy_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// patience is not an assertion: it ends tests that hang.
const patience = 30 * time.Second

// gatewayEnv is a proxy with an upstream named up, whose calls cost a cent.
type gatewayEnv struct {
	*toolproxy.Proxy
	url     string
	sealer  *seal.Sealer
	changed chan struct{} // a client was told that the tools have changed
	log     *syncWriter
	lines   *strings.Builder
}

func newGatewayEnv(t testing.TB, door toolproxy.Backend, upstreams ...mcppart.Upstream) *gatewayEnv {
	t.Helper()
	return newGatewayEnvFor(t, door, "up_echo", map[string]budget.Price{"up_*": {Call: cent}}, upstreams...)
}

// newGatewayEnvFor waits until a tool of the upstream is listed.
func newGatewayEnvFor(t testing.TB, door toolproxy.Backend, tool string, prices map[string]budget.Price,
	upstreams ...mcppart.Upstream) *gatewayEnv {
	t.Helper()
	b := &gatewayEnv{sealer: rig.Sealer(), changed: make(chan struct{}, 100), lines: &strings.Builder{}}
	b.log = &syncWriter{w: b.lines}
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  b.sealer,
		Log:     slog.New(slog.NewTextHandler(b.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Backend: func(string) toolproxy.Backend { return door },
		Parts:   append(externalTools(), mcppart.New(upstreams)),
		Prices:  priceList(t, prices),
	})
	if err != nil {
		t.Fatal(err)
	}
	e := web.New(nil)
	p.Mount(e)
	s := httptest.NewServer(e)
	b.Proxy, b.url = p, s.URL+mcppart.Path
	t.Cleanup(func() {
		p.Close()
		s.Close()
	})
	watcher := connect(t, b.url, b.token(), protocolVersions[0],
		&mcp.ClientOptions{
			ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { b.changed <- struct{}{} },
		})
	p.Start()
	b.await(t, watcher, tool, true)
	return b
}

func (b *gatewayEnv) token() string { return b.sealer.LeaseToken("default", aTask, aRun).Reveal() }

// await waits until a tool is listed or not: each look follows a word of the
// server that something has changed.
func (b *gatewayEnv) await(t testing.TB, s *mcp.ClientSession, name string, there bool) {
	t.Helper()
	deadline := time.After(patience)
	for {
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if slices.ContainsFunc(list.Tools, func(tool *mcp.Tool) bool { return tool.Name == name }) == there {
			return
		}
		select {
		case <-b.changed:
		case <-deadline:
			t.Fatalf("%s: there %v was never so", name, there)
		}
	}
}

func call(t testing.TB, s *mcp.ClientSession, name string, args any) *mcp.CallToolResult {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return r
}

func resultText(t testing.TB, r *mcp.CallToolResult) string {
	t.Helper()
	if len(r.Content) == 0 {
		t.Fatalf("an empty result: %+v", r)
	}
	return r.Content[0].(*mcp.TextContent).Text
}

// forEachProtocolPair runs a test for each wire of a client and of an upstream.
func forEachProtocolPair(t *testing.T, test func(t *testing.T, client string, o *fakeUpstream, url string)) {
	for _, client := range protocolVersions {
		for _, behind := range protocolVersions {
			t.Run(client[:4]+" to "+behind[:4], func(t *testing.T) {
				o := newFakeUpstream()
				test(t, client, o, o.listen(t, behind))
			})
		}
	}
}

func TestToolsOfAnUpstream(t *testing.T) {
	forEachProtocolPair(t, func(t *testing.T, wire string, o *fakeUpstream, url string) {
		p := newFakeEnvelope(100 * cent)
		b := newGatewayEnv(t, p, mcppart.Upstream{
			Name:    "up",
			URL:     url,
			Headers: map[string]picket.Secret{"Authorization": "Bearer theirs"},
		})
		s := connect(t, b.url, b.token(), wire, nil)
		list, err := s.ListTools(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		for _, want := range []string{"up_echo", "up_dotted_name_x", "get_task"} {
			if !slices.Contains(names, want) {
				t.Errorf("%s is not listed: %v", want, names)
			}
		}
		for _, bad := range []string{"up_no_schema", "up_empty_schema", "up_text_schema"} {
			if slices.Contains(names, bad) {
				t.Errorf("%s is listed", bad)
			}
		}
		b.log.mu.Lock()
		logged := b.lines.String()
		b.log.mu.Unlock()
		if got := strings.Count(logged, "left out"); got < 3 {
			t.Errorf("%d tools were logged as left out", got)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		params := &mcp.CallToolParams{
			Name:      "up_echo",
			Arguments: map[string]any{"n": 12},
			Meta:      mcp.Meta{mcppart.MetaKey: "once", "mine/secret": true},
		}
		for range 2 { // the second is answered from what was kept
			r, err := s.CallTool(ctx, params)
			if err != nil || r.IsError {
				t.Fatalf("%v %+v", err, r)
			}
			if resultText(t, r) != `{"n":12}` || object(t, r)["n"] != 12.0 {
				t.Errorf("the answer is %q %v", resultText(t, r), r.StructuredContent)
			}
			cost, _ := r.Meta["picket/cost"].(map[string]any)
			available, _ := r.Meta["picket/available"].(map[string]any)
			if cost["usd"] != 0.01 || available["usd"] != 0.99 {
				t.Errorf("the price tag is %v, %v", cost, available)
			}
			if r.Meta["other/secret"] != nil || r.Content[0].(*mcp.TextContent).Meta != nil {
				t.Errorf("what is the upstream's came through: %v %v", r.Meta, r.Content[0])
			}
		}
		if o.count() != 1 {
			t.Errorf("%d calls reached the upstream", o.count())
		}
		o.mu.Lock()
		for key := range o.meta[0] {
			if !strings.HasPrefix(key, "io.modelcontextprotocol/") {
				t.Errorf("%s of the client reached the upstream", key)
			}
		}
		o.mu.Unlock()
		if r := call(t, s, "up_no", nil); !r.IsError ||
			!strings.Contains(resultText(t, r), "the other server says no") {
			t.Errorf("a failure: %+v", r)
		}
		p.expectSettled(t, 2*cent)
	})
}

func TestUpstreamNotificationsArrive(t *testing.T) {
	forEachProtocolPair(t, func(t *testing.T, wire string, o *fakeUpstream, url string) {
		b := newGatewayEnv(t, newFakeEnvelope(1000*cent), mcppart.Upstream{Name: "up", URL: url})
		var mu sync.Mutex
		var heard []string
		s := connect(t, b.url, b.token(), wire, &mcp.ClientOptions{
			ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, fmt.Sprintf("%v %v/%v", r.Params.ProgressToken, r.Params.Progress,
					r.Params.Total))
			},
			LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, fmt.Sprint(r.Params.Data))
			},
		})
		if wire == protocolVersions[0] {
			if err := s.SetLoggingLevel(t.Context(), &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
				t.Fatal(err)
			}
		}
		params := &mcp.CallToolParams{Name: "up_work", Meta: mcp.Meta{mcp.MetaKeyLogLevel: "info"}}
		params.SetProgressToken("mine")
		r, err := s.CallTool(t.Context(), params)
		if err != nil || resultText(t, r) != "worked" {
			t.Fatalf("%v %+v", err, r)
		}
		// The client's own library hands the answer out before the last words.
		all := func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(heard) == 6
		}
		for until := time.Now().Add(patience); !all() && time.Now().Before(until); {
			if err := pingOrList(t, s); err != nil {
				t.Fatal(err)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range 3 {
			if !slices.Contains(heard, fmt.Sprintf("mine %d/3", i+1)) ||
				!slices.Contains(heard, fmt.Sprintf("line %d", i+1)) {
				t.Errorf("step %d was not heard: %v", i+1, heard)
			}
		}
	})
}

// pingOrList makes a round trip.
func pingOrList(t *testing.T, s *mcp.ClientSession) error {
	_, err := s.ListTools(t.Context(), nil)
	return err
}

func TestACancelledCallIsCancelledUpstream(t *testing.T) {
	forEachProtocolPair(t, func(t *testing.T, wire string, o *fakeUpstream, url string) {
		p := newFakeEnvelope(100 * cent)
		b := newGatewayEnv(t, p, mcppart.Upstream{Name: "up", URL: url})
		s := connect(t, b.url, b.token(), wire, nil)
		ctx, cancel := context.WithCancel(t.Context())
		answered := make(chan error, 1)
		go func() {
			r, err := s.CallTool(ctx, &mcp.CallToolParams{Name: "up_hang"})
			if err == nil {
				err = fmt.Errorf("the answer %v", r)
			}
			answered <- err
		}()
		select {
		case <-o.began:
		case err := <-answered:
			t.Fatalf("the call was answered before it began: %v", err)
		case <-time.After(patience):
			t.Fatal("the call to begin did not happen")
		}
		cancel()
		if err := receive(t, answered, "the client's own end"); !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
		receive(t, o.ended, "the upstream to get it")
		// What was sent is charged: nobody knows what it did.
		for until := time.Now().Add(patience); len(p.outcomes()) == 0 && time.Now().Before(until); {
			if err := pingOrList(t, s); err != nil {
				t.Fatal(err)
			}
		}
		if got := p.outcomes(); !slices.Equal(got, []picket.CallOutcome{picket.CallUncertain}) {
			t.Errorf("the call ended %v", got)
		}
		p.expectSettled(t, cent)
	})
}

func receive[T any](t testing.TB, from <-chan T, what string) (v T) {
	t.Helper()
	select {
	case v = <-from:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
	return v
}
