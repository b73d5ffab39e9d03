package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
	"github.com/picket-dev/picket/internal/rig"
)

// interceptor stands between a command and a server. meddle may change a request;
// lose says whether its answer is lost, after it has taken effect.
type interceptor struct {
	backend       string
	changeRequest func(*http.Request)
	loseAnswer    func(*http.Request) bool
}

func (b interceptor) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b.changeRequest != nil {
		b.changeRequest(r)
	}
	req, err := http.NewRequestWithContext(r.Context(), r.Method, b.backend+r.URL.RequestURI(), r.Body)
	if err != nil {
		panic(err)
	}
	req.Header, req.ContentLength = r.Header.Clone(), r.ContentLength
	res, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		w.WriteHeader(http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	if b.loseAnswer != nil && b.loseAnswer(r) {
		_, _ = io.Copy(io.Discard, res.Body) // it was answered, so it has happened
		panic(http.ErrAbortHandler)
	}
	for name, values := range res.Header {
		w.Header()[name] = values
	}
	w.WriteHeader(res.StatusCode)
	_, _ = io.Copy(w, res.Body)
}

// proxiedServer is a server, and a way to run commands through something between.
type proxiedServer struct {
	t *testing.T
	c *client.Client
}

func newProxiedServer(t *testing.T) proxiedServer {
	store, end := rig.Memory()
	t.Cleanup(end)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served, stop := startSuiteServer(t, store, l, http.DefaultTransport.(*http.Transport).Clone())
	t.Cleanup(stop)
	return proxiedServer{t, client.New(served.url, picket.Secret(served.key), client.Options{})}
}

func (s proxiedServer) run(b interceptor, line ...string) (said string, code int) {
	s.t.Helper()
	b.backend = s.c.URL()
	srv := httptest.NewServer(b)
	defer srv.Close()
	cmd := exec.Command("picket", line...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &out, s.t.TempDir()
	cmd.Env = append(os.Environ(), "PICKET_URL="+srv.URL, "PICKET_API_KEY="+s.c.Key().Reveal(),
		"XDG_CONFIG_HOME="+s.t.TempDir())
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// log is what has become of an agent.
func (s proxiedServer) log(id string) string {
	path := "/api/v1/events?type=" + picket.EventAgentLifecycle + "," + picket.EventAgentCommand +
		"&after=0&agent=" + url.PathEscape(id)
	var page picket.EventPage
	if err := s.c.Call(s.t.Context(), http.MethodGet, path, nil, &page); err != nil {
		s.t.Error(err)
	}
	var told []string
	for _, e := range page.Events {
		told = append(told, cli.EventText(e))
	}
	return strings.Join(told, "; ")
}

// The answer to every change of an agent is lost once: the command succeeds all
// the same, and the change was made once.
func TestALostAnswerChangesAnAgentOnce(t *testing.T) {
	s := newProxiedServer(t)
	const registered, byKey = "registering to active: registered", ", by KEY" // of the operator
	key := regexp.MustCompile(`\bkey_\w+`)
	for _, c := range []struct {
		id     string
		line   string
		change string
		log    string
	}{
		{"a", "agent register a --role r", http.MethodPost, registered},
		{"b", "agent drain b --timeout 90s", http.MethodPatch,
			registered + "; active to draining: drain_initiated" + byKey},
		{"c", "agent deregister c", http.MethodPatch, registered + "; active to deregistered: deregistered" + byKey},
		{"d", "agent command d ping --reason why", http.MethodPost, registered + "; requested ping: why" + byKey},
		{"e", "agent beat e --load 1", http.MethodPost, registered},
	} {
		t.Run(c.change+" "+c.line, func(t *testing.T) {
			if c.id != "a" {
				if _, err := s.c.Agents.Register(t.Context(), picket.Registration{AgentID: c.id}); err != nil {
					t.Fatal(err)
				}
			}
			var lost atomic.Bool
			said, code := s.run(interceptor{
				loseAnswer: func(r *http.Request) bool {
					return r.Method == c.change && lost.CompareAndSwap(false, true)
				},
			}, strings.Fields(c.line)...)
			if code != 0 || !lost.Load() {
				t.Errorf("exit code %d, lost %v\n%s", code, lost.Load(), said)
			}
			if got := key.ReplaceAllString(s.log(c.id), "KEY"); got != c.log {
				t.Errorf("log: %s\nwant %s", got, c.log)
			}
		})
	}
}

// If a record changes between the read and the change, it is read again once. If it changes again,
// the command reports that.
func TestADrainOfAChangingAgent(t *testing.T) {
	s := newProxiedServer(t)
	for id, times := range map[string]int32{"once": 1, "always": 9} {
		if _, err := s.c.Agents.Register(t.Context(), picket.Registration{AgentID: id}); err != nil {
			t.Fatal(err)
		}
		var meddled atomic.Int32
		said, code := s.run(interceptor{changeRequest: func(r *http.Request) {
			if r.Method == http.MethodPatch && meddled.Add(1) <= times {
				r.Header.Set("If-Match", `"77"`)
			}
		}}, "agent", "drain", id)
		if !strings.Contains(said, id+" has changed meanwhile, trying again") {
			t.Errorf("%s: it is not told:\n%s", id, said)
		}
		if want := map[string]int{"once": exit.OK, "always": exit.Conflict}[id]; code != want || meddled.Load() != 2 {
			t.Errorf("%s: exit code %d after %d tries, want %d after 2\n%s", id, code, meddled.Load(), want, said)
		}
	}
	if got := s.log("always"); strings.Contains(got, "draining") {
		t.Errorf("always: %s", got)
	}
}

// Ten people drain one agent at once: one change, and nobody gets an error.
func TestManyDrainOneAgent(t *testing.T) {
	s := newProxiedServer(t)
	if _, err := s.c.Agents.Register(t.Context(), picket.Registration{AgentID: "a"}); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for i := range 10 {
		group.Go(func() {
			if said, code := s.run(interceptor{}, "agent", "drain", "a", "--timeout",
				fmt.Sprintf("%ds", 60+i)); code != 0 {
				t.Errorf("exit code %d\n%s", code, said)
			}
		})
	}
	group.Wait()
	if got := s.log("a"); strings.Count(got, "drain_initiated") != 1 {
		t.Errorf("log: %s", got)
	}
}

// Anyone who waits for a drain is told how that one ended, also when the agent has
// registered again before anybody looked.
func TestADrainThatEndedBeforeTheNextRegistration(t *testing.T) {
	s := newProxiedServer(t)
	ctx := t.Context()
	if _, err := s.c.Agents.Register(ctx, picket.Registration{AgentID: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := s.c.Call(ctx, http.MethodPost, "/api/v1/tasks", picket.TaskSpec{Title: "held"}, nil); err != nil {
		t.Fatal(err)
	}
	if leases, err := s.c.Leases.Acquire(ctx, picket.AcquireRequest{AgentID: "a"}); err != nil ||
		len(leases) != 1 {
		t.Fatalf("%d leases, %v", len(leases), err)
	}
	var drains, again atomic.Bool
	said, code := s.run(interceptor{changeRequest: func(r *http.Request) {
		switch {
		case r.Method == http.MethodPatch:
			drains.Store(true)
		case drains.Load() && strings.HasSuffix(r.URL.Path, "/agents/a") && !again.Load():
			_, err := s.c.Agents.Register(ctx, picket.Registration{AgentID: "a"})
			again.Store(err == nil) // refused while it still drains
		}
	}}, "agent", "drain", "a", "--timeout", "0s", "--wait")
	if code != exit.Timeout || !strings.Contains(said, "a has registered again since") ||
		!strings.Contains(said, "its time was over") {
		t.Errorf("exit code %d\n%s", code, said)
	}
}

// The answer to a drain is lost, and before it is asked for again the agent has
// gone and come back: the new registration is not drained.
func TestALostDrainDoesNotMeetTheNextRegistration(t *testing.T) {
	s := newProxiedServer(t)
	ctx := t.Context()
	if _, err := s.c.Agents.Register(ctx, picket.Registration{AgentID: "a"}); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Bool
	said, code := s.run(interceptor{loseAnswer: func(r *http.Request) bool {
		if r.Method != http.MethodPatch || !lost.CompareAndSwap(false, true) {
			return false
		}
		_, err := s.c.Agents.Deregister(ctx, "a")
		if err == nil {
			_, err = s.c.Agents.Register(ctx, picket.Registration{AgentID: "a"})
		}
		if err != nil {
			t.Error(err)
		}
		return true
	}}, "agent", "drain", "a")
	if a, err := s.c.Agents.Get(ctx, "a"); err != nil || a.Status != picket.AgentActive {
		t.Errorf("it is %s, %v", a.Status, err)
	}
	if code != exit.Conflict || !strings.Contains(said, "agent_gone") {
		t.Errorf("exit code %d\n%s", code, said)
	}
}
