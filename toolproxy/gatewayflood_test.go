package toolproxy_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket/toolproxy"
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
		loop, said := toolproxy.RefreshLoop(t.Context(), gone, func() {
			mu.Lock()
			all = append(all, time.Now())
			mu.Unlock()
			time.Sleep(100 * time.Millisecond) // what is said during a reading counts
		})
		go func() {
			loop()
			close(ended)
		}()
		began := time.Now()
		for time.Since(began) < 10*time.Minute {
			said()
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
		said()
		reads = read()
		if last := reads[len(reads)-1]; !last.Equal(before) {
			t.Errorf("after a quiet time it is read after %s", before.Sub(last))
		}
		n := len(reads)
		time.Sleep(50 * time.Millisecond)
		said() // during that reading
		time.Sleep(200 * time.Millisecond)
		if got := len(read()); got != n+1 {
			t.Errorf("%d readings for a change during a reading", got-n)
		}
		time.Sleep(100 * time.Millisecond)
		said() // in the pause after it
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
	b := newGatewayEnv(t, newFakeEnvelope(cent), toolproxy.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			case <-time.After(25 * time.Millisecond): // the library tells of nothing while changes follow within 10 ms
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
	b := newGatewayEnv(t, newFakeEnvelope(cent), toolproxy.Upstream{Name: "up", URL: o.listen(t, protocolVersions[0])})
	s := connect(t, b.url, b.token(), protocolVersions[0], nil)
	o.server.AddTool(&mcp.Tool{Name: "late", InputSchema: plain}, o.counted(o.echo))
	b.await(t, s, "up_late", true) // the list was read again
	b.log.mu.Lock()
	defer b.log.mu.Unlock()
	if got := strings.Count(b.lines.String(), "left out"); got != 21 {
		t.Errorf("%d lines for 503 tools that are left out, twice", got)
	}
}
