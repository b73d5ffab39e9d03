package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// lossyTransport loses its first answers.
type lossyTransport struct {
	losses int
	keys   []string // the idempotency keys that were sent
}

func (l *lossyTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	l.keys = append(l.keys, r.Header.Get("Idempotency-Key"))
	if len(l.keys) <= l.losses {
		return nil, io.ErrUnexpectedEOF
	}
	rec := httptest.NewRecorder()
	_, _ = rec.WriteString(`{"taskId":"task_1"}`)
	res := rec.Result()
	res.Request = r
	return res, nil
}

// A change whose answer is lost is sent again under one key, with growing pauses.
func TestALostChangeIsSentAgain(t *testing.T) {
	for _, tt := range []struct {
		name     string
		losses   int
		attempts int
		opts     []Option
		sent     int
		fails    bool
		took     time.Duration
		key      string // "" any, "none", or this one
	}{
		{name: "no loss", sent: 1},
		{name: "two losses", losses: 2, sent: 3, took: 300 * time.Millisecond},
		{name: "too many", losses: 9, sent: 4, fails: true, took: 700 * time.Millisecond},
		{name: "key of the caller", losses: 1, sent: 2, took: 100 * time.Millisecond,
			opts: []Option{WithIdempotencyKey("mine")}, key: "mine"},
		{name: "one attempt", losses: 1, attempts: 1, sent: 1, fails: true, key: "none"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server, began := &lossyTransport{losses: tt.losses}, time.Now()
			c := New("http://server", "", Options{HTTP: &http.Client{Transport: server}, Attempts: tt.attempts})
			task, err := c.Tasks.Create(t.Context(), picket.TaskSpec{Title: "t"}, tt.opts...)
			if (err != nil) != tt.fails || len(server.keys) != tt.sent || time.Since(began) != tt.took {
				t.Errorf("%s: %v after %d requests and %s", tt.name, err, len(server.keys), time.Since(began))
			}
			if tt.fails && !errors.Is(err, picket.ErrUnknown) || !tt.fails && task.TaskID != "task_1" {
				t.Errorf("%s: %+v, %v", tt.name, task, err)
			}
			key := server.keys[0]
			if slices.ContainsFunc(server.keys, func(k string) bool { return k != key }) ||
				(key == "") != (tt.key == "none") || tt.key == "mine" && key != "mine" {
				t.Errorf("%s: keys %q", tt.name, server.keys)
			}
		})
	}
}

// A read is sent once: its caller knows whether it is worth another try.
func TestALostReadIsAnError(t *testing.T) {
	server := &lossyTransport{losses: 1}
	c := New("http://server", "", Options{HTTP: &http.Client{Transport: server}})
	if _, err := c.Tasks.Get(t.Context(), "task_1"); !errors.Is(err, picket.ErrUnknown) || len(server.keys) != 1 {
		t.Errorf("%v after %d requests", err, len(server.keys))
	}
}

// The second try is for a refused key alone, and every error passes OnError.
func TestSecondTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		refusals := []string{`{"code":"unauthenticated","message":"no"}`, `{"code":"forbidden","message":"no"}`}
		server := &scriptedTransport{bodies: refusals}
		told := 0
		c := New("http://server", "", Options{
			HTTP:    &http.Client{Transport: server},
			OnError: func(err error) error { told++; return fmt.Errorf("told: %w", err) },
		})
		err := c.Call(t.Context(), "POST", "/x", Text("hi"), nil, WithSecondTry())
		if !errors.Is(err, picket.CodeForbidden) || !strings.HasPrefix(err.Error(), "told: ") || told != 1 ||
			!slices.Equal(server.sent, []string{"hi", "hi"}) {
			t.Errorf("%v, %d times, sent %q", err, told, server.sent)
		}
		if err := c.Call(t.Context(), "POST", "/x", Text("hi"), nil); !errors.Is(err, picket.CodeForbidden) ||
			len(server.sent) != 3 {
			t.Errorf("%v after %d requests", err, len(server.sent))
		}
	})
}

// What a person typed counts more than the query of the program.
func TestQueries(t *testing.T) {
	var got []string
	c := newAnsweringClient(t, func(w http.ResponseWriter, r *http.Request) {
		got = append(got, r.URL.Path+" "+r.URL.RawQuery)
		page := len(got) % 2
		fmt.Fprintf(w, `{"tasks":[{"taskId":"task_%d"}],"nextCursor":%s,"agents":[],"events":[],"rows":[]}`, len(got),
			[]string{"null", `"c2"`}[page])
	})
	ctx := t.Context()
	least := 0
	for _, call := range []func() error{
		func() error {
			var ids []string
			states := []picket.TaskState{picket.TaskQueued, picket.TaskLeased}
			for task, err := range c.Tasks.All(ctx, picket.TaskQuery{States: states, Since: 1000}) {
				if err != nil {
					return err
				}
				ids = append(ids, task.TaskID)
			}
			if !slices.Equal(ids, []string{"task_1", "task_2"}) {
				return fmt.Errorf("read %q", ids)
			}
			return nil
		},
		func() error {
			_, err := c.Tasks.List(ctx, picket.TaskQuery{Limit: 5, Labels: map[string]string{"team": "a b"}},
				WithQuery(url.Values{"limit": {"x"}}))
			return err
		},
		func() error { _, err := c.Agents.List(ctx, picket.AgentQuery{MinAvailable: &least}); return err },
		func() error {
			_, err := c.Events.List(ctx, picket.EventQuery{Audit: true, After: 7, Types: []string{"a", "b"}})
			return err
		},
		func() error { _, err := c.Budgets.Ledger(ctx, picket.LedgerQuery{TaskID: "task_1"}); return err },
		func() error {
			_, err := c.Budgets.Spending(ctx, picket.SpendingQuery{By: []string{"day", "label:team"}, Since: "30d"})
			return err
		},
		func() error { _, err := c.Pools.Get(ctx, "a/b"); return err },
	} {
		if err := call(); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{
		"/api/v1/tasks since=1970-01-01T00%3A00%3A01.000Z&state=queued%2Cleased",
		"/api/v1/tasks cursor=c2&since=1970-01-01T00%3A00%3A01.000Z&state=queued%2Cleased",
		"/api/v1/tasks label=team%3Da+b&limit=x",
		"/api/v1/agents min_available_capacity=0",
		"/api/v1/audit after=7&type=a%2Cb",
		"/api/v1/ledger task=task_1",
		"/api/v1/spending by=day%2Clabel%3Ateam&since=30d",
		"/api/v1/pools/a/b ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("asked for\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A piece of a log is read from its headers, also if the server says no offset.
func TestLogPieces(t *testing.T) {
	headers := map[string]string{"X-Picket-Run": "run_1", "X-Picket-Offset": "4", "X-Picket-Next": "9",
		"X-Picket-Log": "ended", "X-Picket-Latest-Run": "run_2", "X-Picket-Task-State": "leased"}
	c := newAnsweringClient(t, func(w http.ResponseWriter, _ *http.Request) {
		for name, value := range headers {
			w.Header().Set(name, value)
		}
		io.WriteString(w, "hello")
	})
	chunk, err := c.Tasks.Log(t.Context(), "task_1", LogQuery{Offset: 2, Follow: "task"})
	if err != nil || string(chunk.Data) != "hello" || chunk.Offset != 4 || chunk.Next != 9 || chunk.RunID != "run_1" ||
		chunk.State != picket.LogEnded || chunk.LatestRunID != "run_2" || chunk.TaskState != picket.TaskLeased {
		t.Errorf("%+v, %v", chunk, err)
	}
	delete(headers, "X-Picket-Next")
	if chunk, err := c.Tasks.Log(t.Context(), "task_1", LogQuery{Offset: 2}); err != nil || chunk.Next != 7 {
		t.Errorf("%+v, %v", chunk, err)
	}
}

// A request that the server may hold gets that much longer.
func TestLeasesAreWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := roundTripper(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})
		c := New("http://server", "", Options{HTTP: &http.Client{Transport: hang}, Attempts: 1})
		wait, began := 50, time.Now()
		_, err := c.Leases.Acquire(t.Context(), picket.AcquireRequest{AgentID: "a", WaitSeconds: &wait})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != 80*time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
