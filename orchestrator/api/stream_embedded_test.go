package api_test

import (
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/api"
)

// Another front door has its own way of letting people in; what it shows is
// the API's stream, cursors and filters and all.
func TestStreamForAnotherServer(t *testing.T) {
	var admitted atomic.Bool
	admitted.Store(true)
	store, stop := rig.Memory()
	t.Cleanup(stop)
	var p *fixture
	p = newFixtureWith(t, store, api.Config{KeepAlive: 10 * time.Millisecond}, func(a *api.API, e *echo.Echo) {
		a.Mount(e)
		e.GET("/door/events", func(c echo.Context) error {
			return a.Stream(c, p.Engine, picket.Principal{}, func() error {
				if !admitted.Load() {
					return picket.Refuse(picket.CodeUnauthenticated, "Log in again.", "the login has ended")
				}
				return nil
			})
		})
	})
	id := p.submit(`{"title":"x"}`)
	other := p.submit(`{"title":"y"}`)
	p.want(200, "POST", "/api/v1/tasks/"+id+"/cancel", "operator", `{}`)

	s := p.openStream(t, "/door/events?after=0&task="+id, "")
	first := s.want(picket.EventTaskSubmitted)
	s.want(picket.EventTaskCancelled)
	again := p.openStream(t, "/door/events?after=0&type=task.submitted", "", "Last-Event-ID", first.ID)
	if got := again.want(picket.EventTaskSubmitted); got.TaskID != other {
		t.Errorf("resumed at %+v, want the task after it", got)
	}
	p.wantStatus(t, http.StatusBadRequest, "/door/events?after=soon")
	p.wantStatus(t, http.StatusBadRequest, "/door/events?nonsense=1")

	admitted.Store(false)
	for ok := true; ok; {
		_, ok = s.next() // ends, or the test times out
	}
}

func (p *fixture) wantStatus(t *testing.T, status int, path string) {
	t.Helper()
	resp, err := http.Get(p.url + path)
	must(t, err)
	resp.Body.Close()
	if resp.StatusCode != status {
		t.Errorf("%s: %d, want %d", path, resp.StatusCode, status)
	}
}

// A reader of rare events is told where the stream stands, so that it does not
// fall out of what is retained while it sees nothing.
func TestAnIdleStreamSaysWhereItStands(t *testing.T) {
	store, stop := rig.Memory()
	t.Cleanup(stop)
	p := newFixture(t, store, api.Config{KeepAlive: 10 * time.Millisecond})
	p.submit(`{"title":"x"}`)
	s := p.openStream(t, "/api/v1/events?after=0&type=namespace.paused", "reviewer")
	last, err := p.LastSeq(t.Context())
	must(t, err)
	for {
		b, ok := s.next()
		if !ok {
			t.Fatal("the stream ended")
		}
		if b.comment == "keep-alive" {
			if b.id != strconv.FormatInt(last, 10) {
				t.Errorf("an idle stream stands at %s, want %d", b.id, last)
			}
			return
		}
	}
}
