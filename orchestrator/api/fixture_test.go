package api_test

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/internal/seal"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-api-")) }

// onBothStores runs a test against the in-process store and against a real
// redis-server, each behind a real HTTP server.
func onBothStores(t *testing.T, test func(t *testing.T, p *fixture)) {
	t.Helper()
	t.Run("Memory", func(t *testing.T) {
		store, stop := rig.Memory()
		t.Cleanup(stop)
		test(t, newFixture(t, store, api.Config{}))
	})
	t.Run("Real", func(t *testing.T) { test(t, newFixture(t, rig.Real(t), api.Config{})) })
}

// fixture is a running control plane with one key of every scope.
type fixture struct {
	*orchestrator.Engine
	other   *orchestrator.Engine // another namespace of the same process
	t       testing.TB
	url     string
	client  *http.Client
	api     *api.API
	handler http.Handler
	sealer  *seal.Sealer
	keys    map[string]string // by scope; "" is not a key
	store   *orchestrator.Store
	stop    func() // stops the server and waits for it
	log     *lockedBuffer
}

func newFixture(t testing.TB, s rig.Store, cfg api.Config) *fixture {
	t.Helper()
	return newFixtureWith(t, s, cfg, (*api.API).Mount)
}

func newFixtureWith(t testing.TB, s rig.Store, cfg api.Config, mount func(*api.API, *echo.Echo)) *fixture {
	t.Helper()
	p, store := openEngines(t, s, cfg, mount)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, p.handler, slog.New(slog.NewTextHandler(p.log, nil))) }()
	p.stop = sync.OnceFunc(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	p.url = "http://" + l.Addr().String()
	plain := &http.Transport{}
	p.client = &http.Client{Transport: contract.Load(t).Transport(t, plain), Timeout: 30 * time.Second}
	t.Cleanup(func() {
		plain.CloseIdleConnections()
		p.stop()
		_ = store.Close()
		p.wantNoSecretsInLog()
	})
	p.makeKeys()
	return p
}

// openEngines opens the engines and mounts the control plane, which nobody can call
// yet.
func openEngines(t testing.TB, s rig.Store, cfg api.Config,
	mount func(*api.API, *echo.Echo)) (*fixture, *orchestrator.Store) {
	t.Helper()
	log := &lockedBuffer{}
	logger := slog.New(slog.NewTextHandler(log, nil))
	p := &fixture{t: t, sealer: rig.Sealer(), keys: map[string]string{}, log: log}
	store, err := orchestrator.Open(t.Context(),
		orchestrator.Config{
			Redis:      s.Redis,
			Memory:     s.Memory,
			Namespaces: []string{"default", "other"},
			Sealer:     p.sealer,
			ProxyURL:   "http://proxy",
			Witness:    t.TempDir(),
			Found:      true,
			Log:        logger,
		})
	must(t, err)
	p.store, p.Engine = store, store.Engine("default")
	cfg.Engine, cfg.Engines, cfg.ScriptStats, cfg.Log = store.Engine, store.Engines, store.ScriptStats, logger
	p.other = store.Engine("other")
	p.api, err = api.New(cfg)
	must(t, err)
	e := web.New(logger)
	mount(p.api, e)
	p.handler = e
	return p, store
}

func (p *fixture) makeKeys() {
	for _, scope := range picket.Scopes {
		p.keys[string(scope)] = p.newKey(keyWith(string(scope), scope))
	}
}

// keyWith asks for a key with scopes, and for a client key with all roles.
func keyWith(name string, scopes ...picket.Scope) picket.KeyRequest {
	req := picket.KeyRequest{Name: name, Scopes: scopes}
	if slices.Contains(scopes, picket.ScopeClient) {
		req.Client = &picket.ClientLimits{Roles: []string{picket.AnyRole}}
	}
	return req
}

func (p *fixture) wantNoSecretsInLog() {
	if text := p.log.String(); strings.Contains(text, picket.KeyPrefix) ||
		strings.Contains(text, picket.LeaseTokenPrefix) || strings.Contains(text, picket.SessionCapabilityPrefix) {
		p.t.Errorf("a secret is in the log: %s", text)
	}
}

var root = picket.Caller{Actor: "test"}

func (p *fixture) newKey(req picket.KeyRequest) string {
	p.t.Helper()
	key, err := p.CreateKey(p.t.Context(), root, req)
	must(p.t, err)
	return key.Key.Reveal()
}

// response is what came back, with the JSON object in it decoded.
type response struct {
	status int
	header http.Header
	raw    string
	body   map[string]any
}

func (a response) text(name string) string { s, _ := a.body[name].(string); return s }

// call sends a request with the key of a scope ("" for none). Headers come in
// pairs of name and value.
func (p *fixture) call(method, path, scope, body string, headers ...string) response {
	p.t.Helper()
	a, err := p.send(p.t.Context(), method, path, p.keys[scope], body, headers...)
	must(p.t, err)
	return a
}

func (p *fixture) send(ctx context.Context, method, path, key, body string, headers ...string) (response, error) {
	var content io.Reader
	if body != "" {
		content = strings.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, content)
	if err != nil {
		return response{}, err
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if key != "" {
		r.Header.Set("X-API-Key", key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		if headers[i] == "Host" {
			r.Host = headers[i+1]
		}
		r.Header.Set(headers[i], headers[i+1])
	}
	resp, err := p.client.Do(r)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a := response{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if strings.Contains(resp.Header.Get("Content-Type"), "json") {
		err = json.Unmarshal(raw, &a.body)
	}
	return a, err
}

// want calls and fails the test on another status.
func (p *fixture) want(status int, method, path, scope, body string, headers ...string) response {
	p.t.Helper()
	a := p.call(method, path, scope, body, headers...)
	if a.status != status {
		p.t.Fatalf("%s %s: %d, want %d: %.1000s", method, path, a.status, status, a.raw)
	}
	return a
}

// wantCode is want for a refusal with a code.
func (p *fixture) wantCode(code picket.Code, method, path, scope, body string, headers ...string) response {
	p.t.Helper()
	a := p.want(code.Status(), method, path, scope, body, headers...)
	if a.text("code") != string(code) || a.text("remedy") == "" {
		p.t.Errorf("%s %s: code %s, want %s with a remedy: %s", method, path, a.text("code"), code, a.raw)
	}
	return a
}

// submit makes a task and gives its id.
func (p *fixture) submit(body string) string {
	p.t.Helper()
	return p.want(201, "POST", "/api/v1/tasks", "operator", body).text("taskId")
}

// lease acquires over HTTP and opens the capability.
func (p *fixture) lease() (picket.Lease, picket.LeaseCredential) {
	p.t.Helper()
	a := p.want(200, "POST", "/api/v1/leases", "agent", `{"agentId":"a1","waitSeconds":5}`)
	var got picket.Acquired
	must(p.t, json.Unmarshal([]byte(a.raw), &got))
	if len(got.Leases) != 1 {
		p.t.Fatalf("acquired %s", a.raw)
	}
	held, err := p.sealer.OpenLeaseToken(got.Leases[0].LeaseToken.Reveal())
	must(p.t, err)
	return got.Leases[0], held
}

// toReview makes a task and brings it to review.
func (p *fixture) toReview() string {
	p.t.Helper()
	id := p.submit(`{"title":"x"}`)
	_, held := p.lease()
	_, err := p.Complete(p.t.Context(), held,
		picket.Completion{Output: picket.RawJSON(`{"n":1.00000000000000000001}`), Summary: "done"})
	must(p.t, err)
	return id
}

// toHandoff makes a task, asks for help and gives the hand-off's id too.
func (p *fixture) toHandoff() (task, handoff string) {
	p.t.Helper()
	task = p.submit(`{"title":"x"}`)
	_, held := p.lease()
	h, err := p.RequestHelp(p.t.Context(), held, picket.HelpRequest{Question: "Which?", Options: []string{"a", "b"}})
	must(p.t, err)
	return task, h.HandoffID
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// lockedBuffer takes the log of many goroutines.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
