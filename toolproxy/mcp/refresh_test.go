package mcp

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// An upstream that does not stop saying that its lists have changed is read
// ever more seldom; one that is quiet again is read at once.
func TestListRefreshesBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gone, ended := make(chan struct{}), make(chan struct{})
		var mu sync.Mutex
		var all []time.Time
		read := func() []time.Time {
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		u := newUpstreamClient(Upstream{Name: "up"}, slog.New(slog.DiscardHandler), nil, nil)
		loop := func() {
			u.refreshLoop(t.Context(), gone, func() {
				mu.Lock()
				all = append(all, time.Now())
				mu.Unlock()
				time.Sleep(100 * time.Millisecond) // what changes during a reading counts
			})
		}
		go func() {
			loop()
			close(ended)
		}()
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			u.markChanged()
			time.Sleep(10 * time.Millisecond)
		}
		reads := read()
		if n := len(reads); n < 15 || n > 35 {
			t.Errorf("%d readings in 10 minutes of changes without end", n)
		}
		for i := range reads[1:] {
			if pause := reads[i+1].Sub(reads[i]); pause < 200*time.Millisecond {
				t.Errorf("a pause of %s", pause)
			}
		}
		time.Sleep(4 * time.Minute) // it is quiet
		before := time.Now()
		u.markChanged()
		reads = read()
		if last := reads[len(reads)-1]; !last.Equal(before) {
			t.Errorf("after a quiet time it is read after %s", before.Sub(last))
		}
		n := len(reads)
		time.Sleep(50 * time.Millisecond)
		u.markChanged() // during that reading
		time.Sleep(200 * time.Millisecond)
		if got := len(read()); got != n+1 {
			t.Errorf("%d readings for a change during a reading", got-n)
		}
		time.Sleep(100 * time.Millisecond)
		u.markChanged() // in the pause after it
		synctest.Wait()
		close(gone)
		synctest.Wait()
		select {
		case <-ended:
		default:
			t.Error("a pause outlasts the connection")
		}
	})
}

// A client may call a tool as soon as it is listed.
func TestWhatIsListedCanBeCalled(t *testing.T) {
	server := mcp.NewServer(&mcp.Implementation{Name: "other", Version: "1"}, nil)
	mcp.AddTool(server, &mcp.Tool{Name: "echo"},
		func(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, any, error) {
			return nil, nil, nil
		})
	at := httptest.NewServer(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return server }, nil))
	t.Cleanup(at.Close)
	ctx, stop := context.WithCancel(t.Context())
	var listed []string
	u := newUpstreamClient(Upstream{Name: "up", URL: at.URL}, slog.New(slog.DiscardHandler),
		func(u *upstreamClient, offers upstreamCatalog) {
			for _, tool := range offers.tools {
				listed = append(listed, tool.Name)
			}
			u.mu.Lock()
			callable := u.sharedConn != nil
			u.mu.Unlock()
			if !callable {
				t.Errorf("the tools are listed while their upstream cannot be called: %v", u.unavailable())
			}
			stop()
		}, nil)
	u.run(ctx)
	if !slices.Equal(listed, []string{"echo"}) {
		t.Errorf("listed %v", listed)
	}
}
