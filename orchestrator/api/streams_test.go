package api_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// One key reads so many streams and no more, by whichever door; other keys, and
// what is not a stream, go on, and room is there again when one has ended.
func TestStreamsOfAKeyAreBounded(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	var p *fixture
	var who picket.Principal
	p = newFixtureWith(t, store, api.Config{StreamsPerKey: 2}, func(a *api.API, e *echo.Echo) {
		a.Mount(e)
		e.GET("/door/events", func(c echo.Context) error {
			return a.Stream(c, p.Engine, who, func() error { return nil })
		})
	})
	var err error
	who, err = p.Authenticate(t.Context(), picket.Secret(p.keys["reviewer"]))
	must(t, err)

	one := p.openStream(t, "/api/v1/events", "reviewer")
	p.openStream(t, "/door/events", "")
	refused := p.wantCode(picket.CodeRateLimited, "GET", "/api/v1/events", "reviewer", "", "Accept",
		"text/event-stream")
	if after := refused.header.Get("Retry-After"); after != "5" ||
		!strings.Contains(refused.text("remedy"), "picket key create") {
		t.Errorf("refused with Retry-After %q: %s", after, refused.raw)
	}
	p.wantStatus(t, http.StatusTooManyRequests, "/door/events")
	p.want(200, "GET", "/api/v1/events", "reviewer", "")
	p.want(200, "GET", "/metrics", "reviewer", "")
	p.openStream(t, "/api/v1/events", "operator")

	one.close()
	for end := time.Now().Add(time.Minute); ; { // that a reader has gone is noticed a little later
		resp, err := http.Get(p.url + "/door/events")
		must(t, err)
		resp.Body.Close()
		if resp.StatusCode == 200 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("no room after one has gone: %d", resp.StatusCode)
		}
	}
}

// Many at once get the room there is, and none more.
func TestStreamsAtOnceAreBounded(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{StreamsPerKey: 3})
	var group sync.WaitGroup
	var mu sync.Mutex
	got := map[int]int{}
	for range 20 {
		group.Go(func() {
			r, err := http.NewRequestWithContext(t.Context(), "GET", p.url+"/api/v1/events", nil)
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Accept", "text/event-stream")
			r.Header.Set("X-API-Key", p.keys["reviewer"])
			resp, err := p.client.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
			t.Cleanup(func() { resp.Body.Close() })
		})
	}
	group.Wait()
	if got[200] != 3 || got[429] != 17 {
		t.Errorf("answers by status: %v", got)
	}
}
