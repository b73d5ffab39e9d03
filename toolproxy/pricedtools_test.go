package toolproxy_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig/contract"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
	mcppart "github.com/picket-dev/picket/toolproxy/mcp"
)

// pricedEnv is a house whose proxy sells: the tool "buy" costs 30 cents a call.
type pricedEnv struct {
	*engineEnv
	*proxyEnv
	proxy  *toolproxy.Proxy
	source *fakeSource
}

// openPriced puts another proxy before the engine, with prices and the shelf.
func (h *engineEnv) openPriced(t testing.TB, configure func(*toolproxy.Config)) *pricedEnv {
	t.Helper()
	f := &proxyEnv{sealer: h.sealer, doc: contract.Load(t)}
	log := slog.New(slog.DiscardHandler)
	cfg := toolproxy.Config{
		Sealer: h.sealer,
		Log:    log,
		Backend: func(ns string) toolproxy.Backend {
			if ns != "default" {
				return nil
			}
			return h.Engine
		},
		Prices: priceList(t, map[string]budget.Price{
			"buy":          {Call: 30 * cent},
			"look":         {},
			"http_request": {Call: cent},
		}),
		Parts: append(externalTools(), mcppart.New(nil)),
	}
	if configure != nil {
		configure(&cfg)
	}
	p, err := toolproxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	m := &pricedEnv{engineEnv: h, proxyEnv: f, proxy: p, source: &fakeSource{proxy: p}}
	p.AddSource(m.source)
	f.e = web.New(log)
	p.Mount(f.e)
	return m
}

// fakeSource is a source with the tools buy, which acts outside, and look, which
// does not. It counts what is dispatched.
type fakeSource struct {
	proxy  *toolproxy.Proxy
	calls  atomic.Int64
	during func(ctx context.Context) error // in the middle of a call; nil: nothing
}

func (s *fakeSource) Tools(context.Context, toolproxy.ExecQueue,
	picket.LeaseCredential) (list []toolproxy.Tool, err error) {
	for _, name := range []string{"buy", "look", "unpriced"} {
		if t, ok := s.proxy.WithPrice(toolproxy.Tool{
			Name:        name,
			Description: name,
			InputSchema: jsontext.Value(`{"type":"object"}`),
		}); ok {
			list = append(list, t)
		}
	}
	return list, nil
}

func (s *fakeSource) Call(ctx context.Context, c toolproxy.Call) (jsontext.Value, bool, error) {
	if c.Name != "buy" && c.Name != "look" && c.Name != "unpriced" {
		return nil, false, nil
	}
	m := toolproxy.MeteredCall{
		Tool: c.Name,
		Args: c.Args,
		Key:  c.Key,
		Dispatch: func(ctx context.Context, _ picket.Reservation) (toolproxy.DispatchResult, error) {
			s.calls.Add(1)
			if s.during != nil {
				if err := s.during(ctx); err != nil {
					return toolproxy.DispatchResult{}, err
				}
			}
			return toolproxy.DispatchResult{Result: picket.RawJSON(`{"bought":true}`)}, nil
		},
	}
	if c.Name == "buy" {
		m.Effects = picket.EffectsExternal
	}
	r, err := s.proxy.Metered(ctx, c.Backend, c.Held, m)
	if err != nil {
		return nil, true, err
	}
	answer, err := r.Answer()
	return answer, true, err
}

// tool calls a tool by HTTP; the shelf's are not described.
func (m *pricedEnv) tool(t testing.TB, l picket.Lease, name, args, key string) answer {
	t.Helper()
	r := request{path: "/v1/tools/" + name, bearer: l.LeaseToken.Reveal(), body: args}
	if key != "" {
		r.header = map[string]string{"Idempotency-Key": key}
	}
	f := m.proxyEnv
	if name == "buy" || name == "look" || name == "unpriced" {
		f = f.undescribed()
	}
	return f.call(t, r)
}

// checkedEnvelope are what the task's envelope says.
func (m *pricedEnv) checkedEnvelope(t testing.TB, taskID string) picket.EnvelopeState {
	t.Helper()
	e, err := m.Envelope(m.ctx, taskID)
	m.ok(err)
	if !e.Balanced() {
		t.Errorf("the books of %s do not add up: %+v", taskID, e.Account)
	}
	return e
}

func (m *pricedEnv) expectSettled(t testing.TB, taskID string, want budget.Money) {
	t.Helper()
	if e := m.checkedEnvelope(t, taskID); e.Spent.USD != want || !e.Held.IsZero() {
		t.Errorf("spent %s, held %s, want %s and nothing", e.Spent.USD, e.Held.USD, want)
	}
}

// both runs a test with a market, on the virtual clock and on a real store.
func onBothPriced(t *testing.T, test func(t *testing.T, m *pricedEnv)) {
	t.Helper()
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		m := h.openPriced(t, nil)
		defer m.proxy.Close()
		test(t, m)
	})
}

// The same key and arguments are the same call: one dispatch, one charge. Other
// arguments are another call, which needs another key.
func TestTheSameCallIsMadeOnce(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		task := m.submit()
		l := m.lease()
		first := m.tool(t, l, "buy", `{"what":"a"}`, "one")
		again := m.tool(t, l, "buy", `{"what":"a"}`, "one")
		if first.status != 200 || first.body["bought"] != true || again.status != 200 ||
			again.body["replayed"] != true || again.body["bought"] != true {
			t.Errorf("%s\n%s", first.raw, again.raw)
		}
		if a := m.tool(t, l, "buy", `{"what":"b"}`, "one"); a.status != 422 || a.code() != "idempotency_conflict" {
			t.Errorf("other arguments: %d %s", a.status, a.raw)
		}
		if a := m.tool(t, l, "look", `{"what":"a"}`, "one"); a.status != 422 {
			t.Errorf("another tool with the key: %d %s", a.status, a.raw)
		}
		// A resumed run repeats it safely, too.
		_, err := m.Release(m.ctx, m.held(l), picket.Exit{Class: picket.ExitReleased})
		m.ok(err)
		if a := m.tool(t, m.lease(), "buy", `{"what":"a"}`, "one"); a.status != 200 || a.body["replayed"] != true {
			t.Errorf("in the next run: %d %s", a.status, a.raw)
		}
		if n := m.source.calls.Load(); n != 1 {
			t.Errorf("%d dispatches", n)
		}
		m.expectSettled(t, task.TaskID, 30*cent)
	})
}

// Two at the same time are one dispatch; the other is told to wait.
func TestConcurrentRepeatsAreOneDispatch(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		task := m.submit()
		l := m.lease()
		inside, leave := make(chan struct{}), make(chan struct{})
		m.source.during = func(context.Context) error { close(inside); <-leave; return nil }
		first := make(chan answer)
		go func() { first <- m.tool(t, l, "buy", `{}`, "k") }()
		<-inside
		if a := m.tool(t, l, "buy", `{}`, "k"); a.status != 409 || a.code() != "call_in_progress" {
			t.Errorf("%d %s", a.status, a.raw)
		}
		close(leave)
		if a := <-first; a.status != 200 {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if n := m.source.calls.Load(); n != 1 {
			t.Errorf("%d dispatches", n)
		}
		m.expectSettled(t, task.TaskID, 30*cent)
	})
}

// What the envelope does not cover is refused before anything is called; after
// a top-up the same call is made, and who waited for it is woken.
func TestACallSucceedsAfterATopUp(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		task := m.submit()
		l := m.lease()
		for i, want := range []int{200, 200, 200, 402} {
			a := m.tool(t, l, "buy", `{}`, string(rune('a'+i)))
			if a.status != want {
				t.Errorf("call %d: %d %s", i, a.status, a.raw)
			}
			if want == 402 && (a.code() != "budget_exceeded" ||
				!strings.Contains(a.remedy(), "picket budget top-up "+task.TaskID+" --usd 0.2")) {
				t.Errorf("%s", a.raw)
			}
		}
		if n := m.source.calls.Load(); n != 3 {
			t.Errorf("%d dispatches", n)
		}
		woken := make(chan answer)
		go func() { woken <- m.tool(t, l, "await_top_up", `{"waitSeconds":50}`, "") }()
		_, err := m.TopUp(m.ctx, operator, task.TaskID, picket.TopUp{USD: 20 * cent})
		m.ok(err)
		if a := <-woken; a.status != 200 || a.body["toppedUp"] != true {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if a := m.tool(t, l, "buy", `{}`, "d"); a.status != 200 || a.body["replayed"] != nil {
			t.Errorf("after the top-up: %d %s", a.status, a.raw)
		}
		m.expectSettled(t, task.TaskID, 120*cent)
	})
}

// An estimate says what a call would take, and takes nothing.
func TestAnEstimateChangesNothing(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		task := m.submit()
		l := m.lease()
		estimate := func(name, args string) answer {
			r := request{
				path:   "/v1/tools/" + name,
				bearer: l.LeaseToken.Reveal(),
				body:   args,
				header: map[string]string{"Picket-Estimate": "true"},
			}
			return m.undescribed().call(t, r)
		}
		for range 12 { // more than make a loop of a look at the task
			a := estimate("buy", `{}`)
			if reserve, _ := a.body["reserve"].(map[string]any); a.status != 200 || reserve["usd"] != 0.3 ||
				a.body["covered"] != true || a.body["priceVersion"] == nil {
				t.Fatalf("%d %s", a.status, a.raw)
			}
		}
		for range 3 {
			m.tool(t, l, "buy", `{}`, "")
		}
		if a := estimate("buy", `{}`); a.body["covered"] != false {
			t.Errorf("%s", a.raw)
		}
		if a := estimate("look", `{}`); a.body["covered"] != true {
			t.Errorf("%s", a.raw)
		}
		if a := estimate("mark_complete", `{"output":1}`); a.status != 200 || a.body["covered"] != true {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if a := estimate("unpriced", `{}`); a.status != 403 || a.code() != "unpriced_tool" {
			t.Errorf("%d %s", a.status, a.raw)
		}
		if got, err := m.Task(m.ctx, task.TaskID); err != nil || got.State != picket.TaskLeased {
			t.Errorf("the task is %s: %v", got.State, err)
		}
		m.expectSettled(t, task.TaskID, 90*cent)
		if a := m.undescribed().
			call(t, request{
				path:   "/v1/tools/buy",
				bearer: l.LeaseToken.Reveal(),
				body:   `{}`,
				header: map[string]string{"Picket-Estimate": "yes"},
			}); a.status != 400 || a.field() != "Picket-Estimate" {
			t.Errorf("%d %s", a.status, a.raw)
		}
		m.expire()
		if a := estimate("buy", `{}`); a.status != 412 {
			t.Errorf("of an expired lease: %d %s", a.status, a.raw)
		}
	})
}

// The listing says what a call costs, and leaves out what cannot be called.
func TestToolsAreListedWithTheirPrice(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		m.submit()
		l := m.lease()
		a := m.proxyEnv.call(t, request{method: "GET", path: "/v1/tools", bearer: l.LeaseToken.Reveal()})
		prices := map[string]any{}
		list, _ := a.body["tools"].([]any)
		for _, entry := range list {
			tool := entry.(map[string]any)
			prices[text(tool["name"])] = tool["price"]
		}
		buy, _ := prices["buy"].(map[string]any)
		look, free := prices["look"].(map[string]any)
		_, task := prices["get_task"].(map[string]any)
		if buy["call"] != 0.3 || !free || look["call"] != 0.0 || task || prices["http_request"] == nil {
			t.Errorf("%v", prices)
		}
		for _, name := range []string{"unpriced", "sql"} {
			if _, listed := prices[name]; listed {
				t.Errorf("%s is listed", name)
			}
		}
		if a := m.tool(t, l, "unpriced", `{}`, ""); a.status != 403 || a.code() != "unpriced_tool" ||
			m.source.calls.Load() != 0 {
			t.Errorf("%d %s", a.status, a.raw)
		}
	})
}

// An agent's own word about its use is charged as it grows, after the end of
// the lease, too.
func TestUsageIsChargedAsItGrows(t *testing.T) {
	onBothPriced(t, func(t *testing.T, m *pricedEnv) {
		task := m.submit()
		l := m.lease()
		report := func(usd, want string, overrun bool) {
			t.Helper()
			a := m.proxyEnv.call(t, request{
				path:   "/v1/run/usage",
				bearer: l.LeaseToken.Reveal(),
				body:   `{"source":"claude","session":"s","tokens":10,"usd":` + usd + `}`,
			})
			if a.status != 200 || !strings.Contains(a.raw, `"charged":{"tokens":`) ||
				!strings.Contains(a.raw, `"usd":`+want+`},"available"`) || a.body["overrun"] != overrun {
				t.Errorf("%s: %d %s", usd, a.status, a.raw)
			}
		}
		report("0.1", "0.1", false)
		report("0.1", "0", false)
		_, err := m.Complete(m.ctx, m.held(l), picket.Completion{Output: picket.RawJSON(`1`)})
		m.ok(err)
		report("0.25", "0.15", false)
		report("1.5", "0.75", true) // the task was granted a dollar
		if e := m.checkedEnvelope(t, task.TaskID); e.Spent.USD != 100*cent || e.Spent.Tokens != 10 ||
			e.Unverified.USD != 50*cent {
			t.Errorf("spent %+v", e.Spent)
		}
	})
}

// errNever is what a dispatch that is cut off returns.
var errNever = errors.New("cut off")
