package a2a_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/internal/rig/cleanup"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/orchestrator/api"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(cleanup.WithTempDir(m, "pk-a2a-")) }

var operator = picket.Caller{Actor: "key_op", Operator: true}

// fixture is a server with the pools builder and tester, behind real HTTP.
type fixture struct {
	*orchestrator.Engine
	t      testing.TB
	store  *orchestrator.Store
	server http.Handler
	stop   func() // stops the server and closes the store
	url    string
	http   *http.Client
	client string // a client key that may use builder
	other  string // one that may use both pools
	person string // an operator key
	// pushStepped has an entry after a deliverer of the fixture has advanced a push configuration.
	pushStepped chan struct{}
}

// onBothStores runs a test against the in-process store and against a real redis-server.
func onBothStores(t *testing.T, test func(t *testing.T, f *fixture), change ...func(*a2a.Config)) {
	t.Helper()
	t.Run("Memory", func(t *testing.T) {
		store, stop := rig.Memory()
		t.Cleanup(stop)
		test(t, newFixture(t, store, change...))
	})
	t.Run("Real", func(t *testing.T) { test(t, newFixture(t, rig.Real(t).Patient(), change...)) })
}

// onBothBindings runs a test with the official client over both bindings.
func (f *fixture) onBothBindings(t *testing.T, test func(t *testing.T, c *a2aclient.Client)) {
	bindings := []protocol.TransportProtocol{protocol.TransportProtocolJSONRPC, protocol.TransportProtocolHTTPJSON}
	for _, binding := range bindings {
		t.Run(string(binding), func(t *testing.T) { test(t, f.newClient(t, "builder", f.client, binding)) })
	}
}

func newFixture(t testing.TB, s rig.Store, change ...func(*a2a.Config)) *fixture {
	t.Helper()
	return newFixtureIn(t, s, t.TempDir(), change...)
}

// newFixtureIn is a server with its witness files in a directory.
func newFixtureIn(t testing.TB, s rig.Store, witness string, change ...func(*a2a.Config)) *fixture {
	t.Helper()
	store, err := orchestrator.Open(t.Context(), orchestrator.Config{Redis: s.Redis, Memory: s.Memory,
		Namespaces: []string{"default", "other"}, Sealer: rig.Sealer(), ProxyURL: "http://proxy", Witness: witness,
		Found: true})
	must(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	control, err := api.New(api.Config{Engine: store.Engine, Engines: store.Engines,
		AgentEndpoint: func(namespace string, a picket.Agent) string {
			if !slices.ContainsFunc(pools(), func(p a2a.Pool) bool { return p.Role == a.RoleID }) {
				return ""
			}
			return a2a.InstanceURL("http://"+l.Addr().String(), namespace, a.RoleID, a.AgentID)
		}})
	must(t, err)
	f := &fixture{Engine: store.Engine("default"), t: t, store: store, url: "http://" + l.Addr().String(),
		http: &http.Client{Transport: &http.Transport{}}, pushStepped: make(chan struct{}, 1)}
	cfg := a2a.Config{PublicURL: f.url, Pools: pools(), Admit: control.Admit, Engine: store.Engine,
		Leases: rig.Sealer()}
	for _, c := range change {
		c(&cfg)
	}
	server, err := a2a.New(cfg)
	must(t, err)
	e := web.New(slog.New(slog.DiscardHandler))
	control.Mount(e)
	server.Mount(e)
	f.server = e
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, slog.New(slog.DiscardHandler)) }()
	f.stop = sync.OnceFunc(func() {
		f.http.CloseIdleConnections()
		stop()
		must(t, <-served)
		must(t, store.Close())
	})
	t.Cleanup(f.stop)
	f.client, f.other = f.clientKey("builder"), f.clientKey("builder", "tester")
	f.person = f.newKey(picket.KeyRequest{Name: "person", Scopes: []picket.Scope{picket.ScopeOperator}})
	return f
}

func pools() []a2a.Pool {
	task := picket.TaskSpec{Review: picket.ReviewByNone}
	return []a2a.Pool{
		{Role: "builder", Task: task, MaxQueue: 100, Card: a2a.CardText{Name: "Builders", Description: "Build things."},
			Skills: map[string]a2a.Skill{"go": {Name: "Go", Description: "Writes Go."}}},
		{Role: "tester", Task: task, MaxQueue: 1},
	}
}

func (f *fixture) clientKey(roles ...string) string {
	return f.newKey(picket.KeyRequest{Name: "client", Scopes: []picket.Scope{picket.ScopeClient},
		Client: &picket.ClientLimits{Roles: roles}})
}

func (f *fixture) newKey(req picket.KeyRequest) string {
	f.t.Helper()
	key, err := f.CreateKey(f.t.Context(), operator, req)
	must(f.t, err)
	return key.Key.Reveal()
}

// newClient is the official client of a pool, made from its card.
func (f *fixture) newClient(t *testing.T, role, key string, binding protocol.TransportProtocol) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(f.http).Resolve(t.Context(), f.url+"/agents/"+role,
		agentcard.WithRequestHeader("X-API-Key", key))
	must(t, err)
	c, err := a2aclient.NewFromCard(t.Context(), card,
		a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []protocol.TransportProtocol{binding}}),
		a2aclient.WithCallInterceptors(&keyInterceptor{key: key}),
		a2aclient.WithJSONRPCTransport(f.http), a2aclient.WithRESTTransport(f.http))
	must(t, err)
	return c
}

// keyInterceptor sends an API key with each call.
type keyInterceptor struct {
	a2aclient.PassthroughInterceptor
	key string
}

func (k *keyInterceptor) Before(ctx context.Context, req *a2aclient.Request) (context.Context, any, error) {
	req.ServiceParams.Append("X-API-Key", k.key)
	return ctx, nil, nil
}

// lease leases the next task of the pool builder.
func (f *fixture) lease(t *testing.T) picket.LeaseCredential {
	t.Helper()
	leases, err := f.Acquire(t.Context(), operator,
		picket.AcquireRequest{AgentID: "a1", Role: "builder", WaitSeconds: new(10)})
	must(t, err)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	must(t, err)
	return held
}

func (f *fixture) complete(t *testing.T, held picket.LeaseCredential, output string) {
	t.Helper()
	_, err := f.Complete(t.Context(), held, picket.Completion{Output: picket.RawJSON(output), Summary: "done"})
	must(t, err)
}

func send(text string) *protocol.SendMessageRequest {
	m := protocol.NewMessage(protocol.MessageRoleUser, protocol.NewTextPart(text))
	return &protocol.SendMessageRequest{Message: m}
}

// atOnce does not wait for the task.
func atOnce(req *protocol.SendMessageRequest) *protocol.SendMessageRequest {
	req.Config = &protocol.SendMessageConfig{ReturnImmediately: true}
	return req
}

// taskOf is the task that a message became.
func taskOf(t *testing.T, result protocol.SendMessageResult, err error) *protocol.Task {
	t.Helper()
	must(t, err)
	task, ok := result.(*protocol.Task)
	if !ok {
		t.Fatalf("the answer is a %T", result)
	}
	return task
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%v, want %v", err, want)
	}
}

// next reads one event of a stream, in time.
func next(t *testing.T, events <-chan protocol.Event) protocol.Event {
	t.Helper()
	select {
	case ev := <-events:
		return ev
	case <-time.After(20 * time.Second):
		t.Fatal("no event within 20 s")
		return nil
	}
}

// follow reads a stream in the background. The channel is closed at its end.
func follow(t *testing.T, events func(func(protocol.Event, error) bool)) <-chan protocol.Event {
	t.Helper()
	out := make(chan protocol.Event, 100)
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(out)
		for ev, err := range events {
			if err != nil {
				if t.Context().Err() == nil { // else the test has ended before the stream
					t.Errorf("stream: %v", err)
				}
				return
			}
			out <- ev
		}
	})
	t.Cleanup(wg.Wait)
	return out
}
