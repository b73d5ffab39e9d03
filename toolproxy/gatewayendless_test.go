package toolproxy_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// An upstream whose list of tools has no end, or huge ones, is served as far as
// it is looked at.
func TestAnEndlessListOfAnUpstream(t *testing.T) {
	rig.SkipShort(t)
	for name, c := range map[string]struct{ description string }{"many": {"x"}, "large": {strings.Repeat("x", 1<<20)}} {
		t.Run(name, func(t *testing.T) {
			o := newFakeUpstream()
			page := 0
			o.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
				return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
					if method != "tools/list" {
						return next(ctx, method, req)
					}
					page++
					list := &mcp.ListToolsResult{
						NextCursor: fmt.Sprint(page),
						Tools:      []*mcp.Tool{{Name: "echo", InputSchema: plain}},
					}
					for i := range 4 {
						list.Tools = append(list.Tools,
							&mcp.Tool{
								Name:        fmt.Sprintf("t%d_%d", page, i),
								Description: c.description,
								InputSchema: plain,
							})
					}
					return list, nil
				}
			})
			b := newGatewayEnv(t, newFakeEnvelope(100*cent),
				mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
			s := connect(t, b.url, b.token(), protocolVersions[0], nil)
			list, err := s.ListTools(t.Context(), nil)
			if err != nil || len(list.Tools) > 1100 {
				t.Fatalf("%d tools: %v", len(list.Tools), err)
			}
			t.Logf("%d tools of %d pages", len(list.Tools), page)
		})
	}
}

// An answer that would fill the memory is not an answer.
func TestAHugeAnswerOfAnUpstream(t *testing.T) {
	const huge = `{"jsonrpc":"2.0","id":1,"result":"`
	served := newFakeModel(t, nil)
	sent := make(chan int64, 100)
	served.play = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, huge)
		piece, n := bytes.Repeat([]byte("x"), 1<<20), int64(0)
		for range 256 {
			if _, err := w.Write(piece); err != nil {
				break
			}
			n += int64(len(piece))
		}
		sent <- n
	}
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  newSealer(t),
		Backend: func(string) toolproxy.Backend { return nil },
		Log:     slog.New(slog.DiscardHandler),
		Parts:   []toolproxy.Part{mcppart.New([]mcppart.Upstream{{Name: "up", URL: served.URL}})},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	p.Start()
	if n := <-sent; n > 64<<20 {
		t.Errorf("%d bytes of an answer were read", n)
	}
}
