//go:build linux

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// maxResident is what a server may take at its worst, in bytes.
const maxResident = 200 << 20

// times returns n in a usual run, and n multiplied by soak in a soak run.
func times(n, soak int) int { return rig.Rounds(n, n*soak) }

// soakTimes is times for a suite whose soak runs are kept.
func soakTimes(t *testing.T, suite string, n, soak int) int {
	t.Helper()
	return rig.SoakRounds(t, suite, n, n*soak)
}

// abuseTest is a server under attack, and a client who must not notice.
type abuseTest struct {
	*testEnv
	server        *process
	addr          string
	bearer        string // of a lease that holds during the whole attack
	before        usage
	abuseRequests atomic.Int64 // requests of attackers
	conns         atomic.Int64 // connections of attackers
}

// TestAbuse attacks one server in every way at once that a client has, while
// another client goes on with its work.
func TestAbuse(t *testing.T) {
	w := newSerialTestEnv(t)
	w.store()
	s := &abuseTest{testEnv: w, server: w.up("--redis", w.storeURL(), "--log-level", "warn")}
	s.addr = strings.TrimPrefix(w.url, "http://")
	s.bearer = s.acquireForAttack()
	s.warmUp()
	s.fillLog()
	s.before = s.usage()

	for round := range soakTimes(t, "HTTP abuse", 1, 4) {
		began := time.Now()
		stop := s.keepHealthyClient()
		s.attack(round)
		healthy := stop()
		after := s.awaitBaseline()
		t.Logf("HTTP abuse: %d requests on %d connections in %s; meanwhile %d healthy requests were answered, %d of them asked again, the slowest after %s; "+
			"resident at most %d MB; goroutines %d -> %d, descriptors %d -> %d",
			s.abuseRequests.Load(), s.conns.Load(), time.Since(began).Round(time.Second), healthy.answered,
			healthy.again,
			healthy.slowest.Round(time.Millisecond),
			s.peak()>>20, s.before.goroutines, after.goroutines, s.before.files, after.files)
	}
	if peak := s.peak(); peak > maxResident {
		t.Errorf("the server took %d MB at its worst, allowed are %d", peak>>20, maxResident>>20)
	}
	if s.server.ended() {
		t.Error("the server has ended")
	}
}

// unlessClosed leaves out that the server closed a connection. It may close any
// on which no credential was shown, to make room.
func unlessClosed(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		var left []error
		for _, one := range all.Unwrap() {
			left = append(left, unlessClosed(one))
		}
		return errors.Join(left...)
	}
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// attack is everything at once, each to its end.
func (s *abuseTest) attack(round int) {
	var group sync.WaitGroup
	for name, kind := range map[string]func() error{
		"malformed":  s.malformed,
		"headers":    s.dribbleHeaders,
		"bodies":     s.dribbleBodies,
		"fat bodies": s.dribbleFat,
		"silent":     s.silent,
		"idle":       s.idle,
		"polls":      s.polls,
		"watches":    s.watches,
		"streams":    s.streams,
	} {
		group.Go(func() {
			began := time.Now()
			if err := unlessClosed(kind()); err != nil {
				s.t.Errorf("%s: %v", name, err)
			}
			s.t.Logf("round %d, %s: %s", round, name, time.Since(began).Round(time.Millisecond))
		})
	}
	group.Wait()
}

// acquireForAttack makes a task and leases it for an hour, for attacks on the tool proxy.
func (s *abuseTest) acquireForAttack() string {
	s.t.Helper()
	task := spec("held", 3600)
	task.Role = "held"
	s.submit(task)
	var got picket.Acquired
	s.into(&got, http.MethodPost, "/leases", map[string]any{"agentId": "holder", "role": "held", "waitSeconds": 5})
	if len(got.Leases) != 1 {
		s.t.Fatalf("%d leases", len(got.Leases))
	}
	bearer := got.Leases[0].LeaseToken.Reveal()
	if a := s.call(bearer, http.MethodPost, s.url+"/v1/lease/renew", struct{}{}); a.status != http.StatusOK {
		s.t.Fatalf("renew: %d %s", a.status, a.body)
	}
	return bearer
}

// warmUp lets the server open the connections to its store that it keeps.
func (s *abuseTest) warmUp() {
	s.t.Helper()
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for range 5 {
				if a, err := try(s.key, http.MethodGet, s.url+"/api/v1/events?limit=5", nil); err != nil ||
					a.status != http.StatusOK {
					s.t.Errorf("warm up: %v %d", err, a.status)
				}
			}
		})
	}
	group.Wait()
}

// keepHealthyClient starts the client whose work must go on. The returned function stops
// it and says how it went.
func (s *abuseTest) keepHealthyClient() (stop func() *healthyClient) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	p := &healthyClient{abuseTest: s}
	go func() {
		defer close(ended)
		for ctx.Err() == nil && !s.t.Failed() {
			p.live()
		}
	}()
	return func() *healthyClient { cancel(); <-ended; return p }
}

// healthyClient is the client beside the attack.
type healthyClient struct {
	*abuseTest
	answered int
	again    int
	slowest  time.Duration
}

func (p *healthyClient) live() {
	p.ask(p.key, http.MethodGet, "/healthz", nil)
	task := spec("healthy", 60)
	task.Role, task.Review = "healthy", picket.ReviewByNone
	p.ask(p.key, http.MethodPost, "/api/v1/tasks", task)
	var got picket.Acquired
	decodeInto(p.t, p.ask(p.key, http.MethodPost, "/api/v1/leases",
		map[string]any{"agentId": "healthy", "role": "healthy", "waitSeconds": 20}), &got)
	for _, l := range got.Leases {
		bearer := l.LeaseToken.Reveal()
		p.ask(bearer, http.MethodPost, "/v1/lease/renew", struct{}{})
		p.ask(bearer, http.MethodPost, "/v1/tools/report_progress",
			map[string]string{"summary": strings.Repeat("fine ", 400)})
		p.ask(bearer, http.MethodPost, "/v1/tools/mark_complete", map[string]string{"output": "done"})
	}
	p.ask(p.key, http.MethodGet, "/api/v1/tasks?limit=20", nil)
	p.ask(p.key, http.MethodGet, "/readyz", nil)
}

// ask must be answered with success. Three answers are counted and repeated, because
// the documents tell clients to repeat them: a busy machine's 503 with Retry-After,
// a connection that was closed before it showed a credential, and, under a new key, the
// 412 of an acquire whose reply was lost and whose lease was given back.
func (p *healthyClient) ask(bearer, method, path string, body any) []byte {
	repeated := false
	for deadline := time.Now().Add(waitLimit); ; {
		began := time.Now()
		a, err := try(bearer, method, p.url+path, body, "Idempotency-Key", fmt.Sprintf("polite-%d", p.answered))
		p.slowest = max(p.slowest, time.Since(began))
		if err == nil && a.status/100 == 2 {
			p.answered++
			return a.body
		}
		busy := err == nil && a.status == http.StatusServiceUnavailable && a.header.Get("Retry-After") != ""
		closed := errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)
		givenBack := repeated && a.status == http.StatusPreconditionFailed && path == "/api/v1/leases"
		if givenBack {
			p.answered++ // the next key
		}
		if !busy && !closed && !givenBack || time.Now().After(deadline) {
			p.t.Errorf("a healthy %s %s during the attack: %v, %d %s", method, path, err, a.status, a.body)
			return nil
		}
		p.again++
		repeated = true
	}
}

// usage is what a server holds. Its connections to the store, on a unix socket,
// are left out: it keeps as many as it once needed.
type usage struct {
	goroutines int
	files      int
}

func (s *abuseTest) files() (n int) {
	s.t.Helper()
	dir := filepath.Join("/proc", strconv.Itoa(s.server.pid()))
	fds, err := os.ReadDir(filepath.Join(dir, "fd"))
	if err != nil {
		s.t.Fatal(err)
	}
	var tcp []string // inodes
	for _, family := range []string{"tcp", "tcp6"} {
		text, err := os.ReadFile(filepath.Join(dir, "net", family))
		if err != nil {
			continue // without IPv6
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) > 9 {
				tcp = append(tcp, "socket:["+f[9]+"]")
			}
		}
	}
	for _, fd := range fds {
		to, err := os.Readlink(filepath.Join(dir, "fd", fd.Name()))
		if err == nil && (!strings.HasPrefix(to, "socket:") || slices.Contains(tcp, to)) {
			n++
		}
	}
	return n
}

var goroutineMetric = regexp.MustCompile(`(?m)^go_goroutines (\d+)$`)

func (s *abuseTest) usage() usage {
	s.t.Helper()
	http.DefaultClient.CloseIdleConnections()
	found := goroutineMetric.FindSubmatch(s.call("", http.MethodGet, s.url+"/metrics", nil).body)
	if found == nil {
		s.t.Fatal("/metrics does not tell go_goroutines")
	}
	return usage{goroutines: atoi(string(found[1])), files: s.files()}
}

// awaitBaseline waits until the server holds no more than before the attack; one that
// does not is made to say what it is doing. The slack is for what comes and goes
// on its own: a connection of ours that is just being closed, a sweep.
func (s *abuseTest) awaitBaseline() (now usage) {
	s.t.Helper()
	const slack = 6
	for deadline := time.Now().Add(2 * waitLimit); ; time.Sleep(50 * time.Millisecond) {
		now = s.usage()
		if now.goroutines <= s.before.goroutines+slack && now.files <= s.before.files+slack {
			return now
		}
		if time.Now().After(deadline) {
			s.server.signal(syscall.SIGQUIT)
			s.server.wait()
			s.t.Fatalf("the server held %+v before the attack and %+v after it:\n%s", s.before, now,
				s.server.err.text())
		}
	}
}

// peak is the most memory the server has ever had, in bytes.
func (s *abuseTest) peak() int64 {
	s.t.Helper()
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.server.pid()), "status"))
	if err != nil {
		s.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kb := atoi(strings.TrimSpace(rest))
	if kb == 0 {
		s.t.Fatal("/proc does not tell VmHWM")
	}
	return int64(kb) << 10
}

// dial opens an attacker's connection.
func (s *abuseTest) dial() (net.Conn, error) {
	s.conns.Add(1)
	return (&net.Dialer{Timeout: waitLimit}).Dial("tcp", s.addr)
}
