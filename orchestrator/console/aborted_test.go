package console_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator/console"
)

// hookedBackend is a backend that does something when the log is read for the first
// time.
type hookedBackend struct {
	testBackend
	reads       *int
	onFirstRead func()
}

func (l hookedBackend) Events(ctx context.Context, q picket.EventQuery) (picket.EventPage, error) {
	if *l.reads++; *l.reads == 1 {
		l.onFirstRead()
	}
	return l.testBackend.Events(ctx, q)
}

// An answer that is under way when the session ends is broken off: no page is
// written into a stream, and no part of an export passes for all of it.
func TestAnAnswerIsAbortedWhenTheLoginEnds(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s, reads := o.signedIn(picket.ScopeReviewer), 0
		for i := range 510 {
			o.addTask(picket.TaskSpec{Title: fmt.Sprint(i)})
		}
		c, err := console.New(console.Config{
			Backend: func(string) *console.Backend {
				return backendOf(hookedBackend{testBackend{Engine: o.Engine, fixture: o}, &reads,
					func() {
						_, err := o.RevokeKey(t.Context(), picket.Caller{Actor: "test"}, s.key.KeyID)
						must(t, err)
					}})
			},
			Stream: func(c echo.Context, _ picket.Principal, admit func() error) error {
				_, err := c.Response().Write([]byte(": one\n\n"))
				must(t, err)
				_, err = o.RevokeKey(t.Context(), picket.Caller{Actor: "test"}, s.key.KeyID)
				must(t, err)
				return admit()
			},
		})
		must(t, err)
		e := web.New(nil)
		c.Mount(e)
		o.handler = e
		func() {
			defer func() {
				if v := recover(); v != http.ErrAbortHandler {
					t.Errorf("the export is not broken off: %v", v)
				}
			}()
			p := s.get("/console/events/export")
			t.Errorf("%d lines", strings.Count(p.body, "\n"))
		}()
		s = o.signedIn(picket.ScopeReviewer)
		if p := s.get("/console/live"); p.body != ": one\n\n" {
			t.Errorf("the stream ends with %s", p.body)
		}
	})
}

// unreachableBackend is a backend whose store does not answer.
type unreachableBackend struct{ testBackend }

func (unreachableBackend) Login(context.Context, picket.Secret, string) (picket.Login, error) {
	return picket.Login{}, fmt.Errorf("session: %w", errors.Join(picket.CodeUnavailable, picket.ErrUnknown))
}

// Where nothing was decided nobody is told that this is not known; and who
// leaves is let go, or the next person at that browser would be signed in.
func TestSigningOutWorksWithoutTheStore(t *testing.T) {
	virtual(t, func(t *testing.T, o *fixture) {
		s := o.signedIn(picket.ScopeReviewer)
		_, handoff := o.addHandoff("x", twoOptions)
		page := "/console/handoffs/" + handoff
		once := s.mustGet(page).nonce(t)
		c, err := console.New(console.Config{
			Backend: func(string) *console.Backend {
				return backendOf(unreachableBackend{testBackend{Engine: o.Engine, fixture: o}})
			},
			Stream: func(echo.Context, picket.Principal, func() error) error { return nil },
		})
		must(t, err)
		e := web.New(nil)
		c.Mount(e)
		o.handler = e
		for _, p := range []response{s.get(page), s.get("/console/login"),
			s.post(page+"/answer", "answer", "yes", "once", once)} {
			if p.status != http.StatusServiceUnavailable || strings.Contains(p.text(), "not known") {
				t.Errorf("%d %s", p.status, p.text())
			}
		}
		if p := s.post("/console/logout"); p.status != http.StatusSeeOther || len(s.cookies) != 0 {
			t.Errorf("signing out: %d, cookies %v", p.status, s.cookies)
		}
	})
}
