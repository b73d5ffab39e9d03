package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/console"
)

const consoleText = "pages of the console over HTTP in a store of 10,000 tasks against one of 100, half of them queued and half in review: 50 rows each, and the number of questions to the store does not grow. " +
	"Two readers at once; each asks for a twentieth as many pages as the plan has tasks."

// consolePages are what is asked for.
var consolePages = []string{"", "tasks", "reviews", "budgets", "events"}

// consoles measures pages in a large store against the same in a small one.
func consoles(ctx context.Context, b *bench) error {
	p := b.plan
	p.Workers, p.Tasks = 2, max(p.Tasks/20, 10)
	large := 10_000
	if b.Quick {
		large = 200
	}
	var sides []*consoleSide
	for _, n := range []int{large, 100} {
		s, err := openConsole(ctx, b.plan, n)
		if err != nil {
			return err
		}
		defer s.close()
		sides = append(sides, s)
	}
	for _, page := range consolePages {
		got, err := b.inTurn(ctx, "console /"+page, "pages/s", sides[0].contender(p, page), sides[1].contender(p, page))
		if err != nil {
			return err
		}
		b.add(line{
			Scenario: "console",
			Case:     "/console/" + page,
			Layer:    "http",
			Unit:     "pages/s",
			Fsync:    "off",
			Sides:    got,
			Must:     atLeast(0.5),
			Moonshot: atLeast(0.9),
		}, rate, sides[0].server.version)
	}
	return nil
}

// consoleSide is a console over a store with some tasks.
type consoleSide struct {
	tasks  int
	server *redisServer
	url    string
	cookie *http.Cookie
	close  func()
}

func openConsole(ctx context.Context, p plan, tasks int) (s *consoleSide, err error) {
	var undo []func()
	s = &consoleSide{tasks: tasks, close: func() {
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.server, err = startRedis(ctx, "off"); err != nil {
		return nil, err
	}
	undo = append(undo, s.server.stop)
	store, sealer, err := openStore(ctx, s.server, true)
	if err != nil {
		return nil, err
	}
	undo = append(undo, func() { _ = store.Close() })
	engine := store.Engine("default")
	if err := fillReviews(ctx, p, engine, sealer, tasks); err != nil {
		return nil, err
	}
	backend := &console.Backend{Logins: engine, Stats: engine, Handoffs: engine, Reviews: engine, Tasks: engine,
		Changes: engine, Agents: engine, Leases: engine, Budgets: engine, Events: engine, Pause: engine,
		Messages: engine, Sessions: engine, Policies: engine, Endpoints: engine}
	c, err := console.New(console.Config{Backend: func(string) *console.Backend { return backend }, Stream: noStream})
	if err != nil {
		return nil, err
	}
	e := web.New(slog.New(slog.DiscardHandler))
	c.Mount(e)
	stop := func() {}
	if s.url, stop, err = serveMCP(ctx, e); err != nil {
		return nil, err
	}
	undo = append(undo, stop)
	s.cookie, err = signIn(ctx, engine, s.url)
	return s, err
}

func noStream(echo.Context, picket.Principal, func() error) error {
	return errors.New("no page of the benchmark is live")
}

// fillReviews makes n tasks, every second of which waits for a person.
func fillReviews(ctx context.Context, p plan, e *orchestrator.Engine, sealer *seal.Sealer, n int) error {
	p.Tasks = n
	err := spread(p, func() error {
		_, err := e.Submit(ctx, asBench,
			picket.TaskSpec{
				Title:  "fix the flaky test of the shop",
				Role:   "coder",
				Input:  payload(p),
				Labels: map[string]string{"team": "shop"},
			})
		return err
	})
	if err != nil {
		return fmt.Errorf("submit: %w", err)
	}
	if _, err := e.Register(ctx, asBench, picket.Registration{AgentID: "coder-1", RoleID: "coder"}); err != nil {
		return fmt.Errorf("register: %w", err)
	}
	for left := n / 2; left > 0; {
		most := min(left, 100)
		leases, err := e.Acquire(ctx, asBench, picket.AcquireRequest{Role: "coder", Max: &most})
		if err != nil || len(leases) == 0 {
			return fmt.Errorf("acquire: %d leases, %w", len(leases), err)
		}
		for _, l := range leases {
			held, err := sealer.OpenLeaseToken(l.LeaseToken.Reveal())
			if err == nil {
				_, err = e.Complete(ctx, held,
					picket.Completion{
						Output:  picket.RawJSON(`"done"`),
						Summary: "The counter is guarded by the mutex of its pool.",
					})
			}
			if err != nil {
				return fmt.Errorf("complete: %w", err)
			}
		}
		left -= len(leases)
	}
	return nil
}

// benchHost is the host name of the login of the benchmark.
const benchHost = "benchbenchbenchbenchbenchb.localhost"

func signIn(ctx context.Context, e *orchestrator.Engine, at string) (*http.Cookie, error) {
	key, err := e.CreateKey(ctx, asBench,
		picket.KeyRequest{Name: "bench", Scopes: []picket.Scope{picket.ScopeOperator}})
	if err != nil {
		return nil, fmt.Errorf("create key: %w", err)
	}
	code, _, err := e.BeginLogin(ctx, key.Key, benchHost, "loopback")
	if err != nil {
		return nil, fmt.Errorf("begin login: %w", err)
	}
	token, _, err := e.OpenLogin(ctx, code, benchHost)
	if err != nil {
		return nil, fmt.Errorf("open session: %w", err)
	}
	u, err := url.Parse(at)
	if err != nil {
		return nil, err
	}
	return &http.Cookie{Name: "picket_session_" + u.Port(), Value: token.Reveal()}, nil
}

func (s *consoleSide) contender(p plan, page string) contender {
	return contender{fmt.Sprintf("%d tasks", s.tasks), func(ctx context.Context) (sample, error) {
		return throughput(p, func(int, int) error { return s.get(ctx, page) })
	}}
}

// get asks for a page; anything but the page itself is an error.
func (s *consoleSide) get(ctx context.Context, page string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/console/"+page, nil)
	if err != nil {
		return err
	}
	r.Host = benchHost + ":" + r.URL.Port()
	r.AddCookie(s.cookie)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || !strings.Contains(string(body), "</html>")) {
		err = fmt.Errorf("/console/%s answered %s", page, res.Status)
	}
	return err
}
