package toolproxy_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// The lists of a real upstream are not read back to back either.
func TestAnUpstreamThatChangesWithoutEnd(t *testing.T) {
	o := newFakeUpstream()
	lists := make(chan time.Time, 1000)
	o.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			if method == "tools/list" {
				lists <- time.Now()
			}
			return next(ctx, method, req)
		}
	})
	b := newGatewayEnv(t, newFakeEnvelope(cent), mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(25 * time.Millisecond): // the library reports nothing while changes follow within 10 ms
				o.server.AddTool(&mcp.Tool{Name: fmt.Sprint("t", i%2), Description: fmt.Sprint(i), InputSchema: plain},
					o.counted(o.echo))
			}
		}
	}()
	first := receive(t, lists, "the first reading")
	for range 2 {
		receive(t, lists, "another reading")
	}
	if took := receive(t, lists, "the last reading").Sub(first); took < 300*time.Millisecond {
		t.Errorf("four readings within %s", took)
	}
	close(stop)
	<-stopped
	s := connect(t, b.url, b.token(), protocolVersions[0], nil)
	if _, err := s.ListTools(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// What is left out is named once, and not without end.
func TestSkippedToolsAreLoggedOnce(t *testing.T) {
	o := newFakeUpstream()
	o.server.AddReceivingMiddleware(func(next mcp.MethodHandler) mcp.MethodHandler {
		return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
			res, err := next(ctx, method, req)
			if list, ok := res.(*mcp.ListToolsResult); ok {
				copied := *list
				for i := range 500 {
					copied.Tools = append(copied.Tools[:len(copied.Tools):len(copied.Tools)],
						&mcp.Tool{Name: fmt.Sprint("bad", i)})
				}
				res = &copied
			}
			return res, err
		}
	})
	b := newGatewayEnv(t, newFakeEnvelope(cent), mcppart.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	s := connect(t, b.url, b.token(), protocolVersions[0], nil)
	o.server.AddTool(&mcp.Tool{Name: "late", InputSchema: plain}, o.counted(o.echo))
	b.await(t, s, "up_late", true) // the list was read again
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if got := strings.Count(b.lines.String(), "left out"); got != 21 {
		t.Errorf("%d lines for 503 tools that are left out, twice", got)
	}
}
