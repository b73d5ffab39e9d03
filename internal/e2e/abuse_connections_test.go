//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/picket-dev/picket"
)

// besiegers is how many connections without a credential are open at once, and
// descriptors how many the server has.
const (
	attackerConnections = 2000
	descriptors         = 1024
)

// TestConnectionsWithoutAKeyDoNotEndALease opens more connections without a
// credential than the server has descriptors. Meanwhile a lease with a window
// of three seconds is renewed, and new holders come, each request on a
// connection of its own.
func TestConnectionsWithoutAKeyDoNotEndALease(t *testing.T) {
	w := newSerialTestEnv(t)
	s := &abuseTest{testEnv: w, server: w.upWith(descriptors)}
	s.addr = strings.TrimPrefix(w.url, "http://")
	h := s.newRetryingClient(3)

	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	crowded := s.floodConnections(ctx)
	<-crowded
	for deadline := time.Now().Add(12 * time.Second); time.Now().Before(deadline) && !t.Failed(); {
		h.renew()
		h.another()
	}
	counts := s.scrape()
	stop()
	t.Logf("%d connections of attackers; %d requests of holders were answered, %d were asked again, the slowest took %s",
		s.conns.Load(), h.answered, h.again, h.slowest.Round(time.Millisecond))

	task := w.task(h.lease.TaskID)
	if task.State != picket.TaskLeased || task.Failures != 0 {
		t.Errorf("the task is %s with %d failures", task.State, task.Failures)
	}
	if n := counts["picket_connections_closed_total{reason=\"address_full\"}"]; n < attackerConnections/2 {
		t.Errorf("%v connections were closed to make room", n)
	}
	if n := counts["picket_connections{kind=\"unknown\"}"]; n < 1 || n > descriptors/2 {
		t.Errorf("%v connections without a credential are open", n)
	}
	if n := counts["picket_accept_errors_total"]; n != 0 {
		t.Errorf("%v connections could not be accepted", n)
	}
	warned := strings.Count(s.server.err.text(), "a connection was closed to make room")
	if warned == 0 || warned > 10 {
		t.Errorf("the log warns %d times", warned)
	}
}

// TestAcceptErrorsAreCountedAndLogged takes the descriptors away from a running
// server, whose bounds are then too high.
func TestAcceptErrorsAreCountedAndLogged(t *testing.T) {
	w := newSerialTestEnv(t)
	s := &abuseTest{testEnv: w, server: w.upWith(descriptors)}
	s.addr = strings.TrimPrefix(w.url, "http://")
	h := s.newRetryingClient(3)
	low := unix.Rlimit{Cur: uint64(s.files()) + 150, Max: descriptors}
	if err := unix.Prlimit(s.server.pid(), unix.RLIMIT_NOFILE, &low, nil); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	<-s.floodConnections(ctx)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline) && !t.Failed(); {
		h.renew()
	}
	counts := s.scrape()
	stop()
	if counts["picket_accept_errors_total"] == 0 ||
		counts["picket_connections_closed_total{reason=\"descriptors\"}"] == 0 {
		t.Errorf("errors of accept are not counted: %v", counts)
	}
	if said := s.server.err.text(); !strings.Contains(said, "level=WARN") ||
		!strings.Contains(said, "a connection cannot be accepted") {
		t.Errorf("errors of accept are not logged: %s", said)
	}
	if task := w.task(h.lease.TaskID); task.State != picket.TaskLeased {
		t.Errorf("the task is %s", task.State)
	}
}

// upWith starts a server that may have so many descriptors.
func (w *testEnv) upWith(files int) *process {
	w.t.Helper()
	script := "ulimit -n " + strconv.Itoa(files) + `; exec "$0" "$@"`
	p := w.launch("up", exec.Command("sh", "-c", script, binary(), "up", "--listen", "127.0.0.1:0", "--log-level",
		"warn"))
	w.url = p.ready()
	w.key = w.secret("admin.key")
	w.events = followEvents(w)
	return p
}

// retryingClient is a client: it asks again when a connection breaks, as every
// adapter does, and has no connection that it keeps.
type retryingClient struct {
	*abuseTest
	lease    picket.Lease
	bearer   string
	client   *http.Client
	answered int
	again    int
	slowest  time.Duration
}

func (s *abuseTest) newRetryingClient(window int) *retryingClient {
	s.t.Helper()
	task := spec("held", window)
	task.Role = "held"
	s.submit(task)
	var got picket.Acquired
	s.into(&got, http.MethodPost, "/leases", map[string]any{"agentId": "holder", "role": "held", "waitSeconds": 5})
	if len(got.Leases) != 1 {
		s.t.Fatalf("%d leases", len(got.Leases))
	}
	return &retryingClient{abuseTest: s, lease: got.Leases[0], bearer: got.Leases[0].LeaseToken.Reveal(),
		client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 2 * time.Second}}
}

func (h *retryingClient) renew() { h.ask(h.bearer, "/v1/lease/renew", "{}") }

// another is a new task and its whole life.
func (h *retryingClient) another() {
	h.ask(h.key, "/api/v1/tasks", `{"title":"another","role":"other","review":"none"}`)
	var got picket.Acquired
	decodeInto(h.t, h.ask(h.key, "/api/v1/leases", `{"agentId":"other","role":"other","waitSeconds":5}`), &got)
	for _, l := range got.Leases {
		h.ask(l.LeaseToken.Reveal(), "/v1/tools/mark_complete", `{"output":"done"}`)
	}
}

func (h *retryingClient) ask(bearer, path, body string) []byte {
	h.t.Helper()
	began := time.Now()
	var last error
	for range 20 {
		req, err := http.NewRequest(http.MethodPost, h.url+path, strings.NewReader(body))
		if err != nil {
			h.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+bearer)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", fmt.Sprintf("held-%d", h.answered))
		res, err := h.client.Do(req)
		if err != nil {
			last = err
			h.again++
			continue
		}
		said, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err != nil || res.StatusCode/100 != 2 {
			h.t.Fatalf("%s: %d %s %v", path, res.StatusCode, said, err)
		}
		h.answered++
		h.slowest = max(h.slowest, time.Since(began))
		return said
	}
	h.t.Fatalf("%s was not answered within %s: %v", path, time.Since(began), last)
	return nil
}

// floodConnections holds connections open until ctx ends, and opens each again that the
// server closes. The channel is closed once each was open for the first time.
func (s *abuseTest) floodConnections(ctx context.Context) (crowded <-chan struct{}) {
	host := "Host: " + s.addr + "\r\n"
	ways := []string{
		"", // silent
		"GET /api/v1/tasks HTTP/1.1\r\n" + host,
		"GET /healthz HTTP/1.1\r\n" + host + "\r\n",
		"GET /api/v1/tasks HTTP/1.1\r\n" + host + "Authorization: Bearer pkk_default_forged\r\n\r\n",
		"POST /console/login HTTP/1.1\r\n" + host +
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 1000\r\n\r\nkey=",
	}
	var group, first sync.WaitGroup
	first.Add(attackerConnections)
	for i := range attackerConnections {
		group.Go(func() {
			opened := sync.OnceFunc(first.Done)
			defer opened()
			for ctx.Err() == nil {
				c, err := net.DialTimeout("tcp", s.addr, waitLimit)
				if err == nil {
					s.conns.Add(1)
					_, _ = io.WriteString(c, ways[i%len(ways)])
					opened()
					forget := context.AfterFunc(ctx, func() { _ = c.Close() })
					_, err = io.Copy(io.Discard, c)
					forget()
					c.Close()
				}
				if errors.Is(err, unix.EMFILE) {
					s.t.Errorf("the test has too few descriptors: %v", err)
					return
				}
				select { // as fast as an attacker who wants the machine to last
				case <-ctx.Done():
				case <-time.After(time.Second):
				}
			}
		})
	}
	s.t.Cleanup(group.Wait)
	crowd := make(chan struct{})
	go func() { first.Wait(); close(crowd) }()
	return crowd
}

// scrape reads the samples of /metrics.
func (s *abuseTest) scrape() map[string]float64 {
	s.t.Helper()
	text := ""
	for range 20 {
		a, err := try("", http.MethodGet, s.url+"/metrics", nil)
		if err == nil && a.status == http.StatusOK {
			text = string(a.body)
			break
		}
	}
	if text == "" {
		s.t.Fatal("/metrics was not answered")
	}
	samples := map[string]float64{}
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(strings.TrimSpace(line), " ")
		if n, err := strconv.ParseFloat(value, 64); found && err == nil {
			samples[name] = n
		}
	}
	return samples
}
