package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli"
	"github.com/picket-dev/picket/cmd/picket/settings"
	"github.com/picket-dev/picket/internal/conformance"
	"github.com/picket-dev/picket/internal/rfc16"
	"github.com/picket-dev/picket/internal/rig"
)

// suiteServer is a whole server for the suite: orchestrator, proxy and reaper on
// one listener, as `picket up` runs them.
type suiteServer struct {
	url  string
	key  string
	http *http.Client
}

// startSuiteServer serves until stop is called. The listener is the test's own,
// so it may be one without sockets.
func startSuiteServer(t *testing.T, s rig.Store, l net.Listener,
	transport *http.Transport) (c suiteServer, stop func()) {
	t.Helper()
	return startSuiteServerWith(t, s, l, transport, settings.Wake{})
}

// startSuiteServerWith is startSuiteServer with settings of wakes.
func startSuiteServerWith(t *testing.T, s rig.Store, l net.Listener, transport *http.Transport,
	wakes settings.Wake) (c suiteServer, stop func()) {
	t.Helper()
	url := "http://" + l.Addr().String()
	h := serverProcess{
		roles:         roles{true, true, true},
		redis:         s.Redis,
		memory:        s.Memory,
		sealer:        rig.Sealer(),
		proxyURL:      url,
		log:           slog.New(slog.DiscardHandler),
		witnessDir:    t.TempDir(),
		createMissing: true,
		policyDir:     wakes.Dir,
		cfg: settings.Settings{General: settings.General{Namespace: "default", AllowUnsafeRedis: true,
			Wake: wakes}},
	}
	store, err := h.openStore(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, err := store.Engine("default").
		CreateKey(t.Context(), bootstrapCaller,
			picket.KeyRequest{Name: "conformance", Scopes: []picket.Scope{picket.ScopeAdmin}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- h.serve(ctx, endpoints{{Listener: l, console: true}}, store) }()
	if err := awaitReady(t.Context(), store); err != nil {
		t.Error(err)
	}
	return suiteServer{url: url, key: key.Key.Reveal(), http: &http.Client{Transport: transport}},
		sync.OnceFunc(func() {
			transport.CloseIdleConnections()
			cancel()
			if err := <-served; err != nil {
				t.Errorf("serve: %v", err)
			}
			_ = store.Close()
		})
}

// onVirtualClock runs a test on the virtual clock with a server that has no sockets:
// thresholds are the RFC's defaults and requests take no time.
func onVirtualClock(t *testing.T, test func(t *testing.T, cfg rfc16.Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store, end := rig.Memory()
		defer end()
		l := newPipes()
		c, stop := startSuiteServer(t, store, l, &http.Transport{DialContext: l.dial, MaxIdleConnsPerHost: 400})
		defer stop()
		test(t, rfc16.Config{
			URL:          c.url,
			Key:          c.key,
			HTTP:         c.http,
			Interval:     30,
			Unhealthy:    90,
			Dead:         300,
			DrainTimeout: 120,
			Parallel:     400,
			Poll:         250 * time.Millisecond,
			Slack:        2 * time.Second,
			Exact:        true,
		})
	})
}

// pipes is a listener whose connections are net.Pipes.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, io.EOF
	}
}

func (p *pipes) Close() error {
	p.once.Do(func() { close(p.closed) })
	return nil
}

func (p *pipes) Addr() net.Addr { return pipeAddr{} }

type pipeAddr struct{}

func (pipeAddr) Network() string { return "pipe" }
func (pipeAddr) String() string  { return "127.0.0.1:7070" }

// rulesNotOverHTTP are the rules that no server can be held against over HTTP.
func rulesNotOverHTTP() []string {
	var names []string
	for _, r := range rfc16.Rules() {
		if r.Check == nil {
			names = append(names, r.Name())
		}
	}
	return names
}

// expectConforming expects every rule to have passed except for those that cannot be run
// here.
func expectConforming(t *testing.T, report conformance.Report, notRun ...string) {
	t.Helper()
	t.Log(report.Summary())
	for _, r := range report.Results {
		name := r.Section + "/" + r.ID
		switch {
		case r.Outcome == conformance.Failed:
			t.Errorf("%s: %s\n  expected: %s\n  got:      %s\n  repeat:   %s", name, r.Text, r.Expected, r.Got,
				r.Repeat)
		case r.Outcome == conformance.NotRun && !slices.Contains(notRun, name):
			t.Errorf("%s was not run: %s", name, r.Why)
		case r.Outcome == conformance.Passed && slices.Contains(notRun, name):
			t.Errorf("%s cannot have been run", name)
		}
	}
	if len(report.Left) > 0 {
		t.Errorf("left behind: %s", strings.Join(report.Left, ", "))
	}
}

func TestConformanceVirtual(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	onVirtualClock(t, func(t *testing.T, cfg rfc16.Config) {
		report, err := rfc16.Run(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		expectConforming(t, report, rulesNotOverHTTP()...)
		expectNothingLeft(t, cfg, report)
	})
}

// TestConformanceReal is the same on the clock on the wall, with real processes,
// sockets and a real Redis, and thresholds of 1, 2 and 4 seconds. The server is
// a process of its own: the Redis client keeps timers for anyone who comes next,
// and one from a bubble ends a process that uses it outside.
func TestConformanceReal(t *testing.T) {
	rig.SkipShort(t)
	t.Parallel()
	if _, err := exec.LookPath("redis-server"); err != nil {
		t.Fatal("redis-server is not installed: what is not tested on a real store is not tested")
	}
	url, key := startUp(t)
	// The suite runs beside other tests: lateness is not what is tested here.
	cfg := rfc16.Config{URL: url, Key: key, Parallel: 64, Slack: time.Minute}
	report, err := rfc16.Run(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	exact := rulesNotOverHTTP()
	for _, r := range rfc16.Rules() {
		if r.Needs&rfc16.Exact != 0 {
			exact = append(exact, r.Name())
		}
	}
	expectConforming(t, report, exact...)
	expectNothingLeft(t, cfg, report)
}

// startUp runs `picket up` with a redis-server of its own until the test ends.
func startUp(t *testing.T) (url, key string) {
	t.Helper()
	return startUpIn(t, t.TempDir())
}

// startUpIn is startUp with its data in the folder data of a directory.
func startUpIn(t *testing.T, dir string) (url, key string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := &exec.Cmd{
		Path:   self,
		Args:   []string{"picket", "up", "--listen", "127.0.0.1:0", "--data", dir + "/data"},
		Dir:    dir,
		Stderr: &log,
		Env: []string{"PATH=" + os.Getenv("PATH"), "XDG_CONFIG_HOME=" + dir, "XDG_DATA_HOME=" + dir,
			"XDG_STATE_HOME=" + dir, "NO_COLOR=1"},
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("picket up: %v\n%s", err, log.String())
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	url, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		t.Fatalf("picket up says %q, %v", line, err)
	}
	secret, err := cli.ReadSecret(dir + "/data/admin.key")
	if err != nil {
		t.Fatal(err)
	}
	return url, secret.Reveal()
}

// expectNothingLeft looks for what a run has left on a server that had nothing.
func expectNothingLeft(t *testing.T, cfg rfc16.Config, report conformance.Report) {
	t.Helper()
	client := client.New(cfg.URL, picket.Secret(cfg.Key), client.Options{HTTP: cfg.HTTP})
	var agents picket.AgentPage
	var leases struct {
		Leases []picket.LiveLease `json:"leases"`
	}
	var keys struct {
		Keys []picket.APIKey `json:"keys"`
	}
	var stats picket.Stats
	for path, into := range map[string]any{
		"/api/v1/agents?status=active,unhealthy,draining,dead": &agents,
		"/api/v1/leases": &leases,
		"/api/v1/keys":   &keys,
		"/api/v1/stats":  &stats,
	} {
		if err := client.Call(t.Context(), "GET", path, nil, into); err != nil {
			t.Fatal(err)
		}
	}
	if agents.Total > 0 || len(leases.Leases) > 0 {
		t.Errorf("%d agents and %d leases are left, such as %+v", agents.Total, len(leases.Leases), agents.Agents)
	}
	for state, n := range stats.Tasks {
		if n > 0 && !state.Terminal() {
			t.Errorf("%d tasks are left in %s", n, state)
		}
	}
	for _, k := range keys.Keys {
		if strings.HasPrefix(k.Name, report.Prefix) && k.RevokedAt.IsZero() {
			t.Errorf("the key %s is left", k.Name)
		}
	}
}
