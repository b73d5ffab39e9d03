package toolproxy_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/toolproxy"
)

// execPrice is a tenth of a cent a second, at most two cents.
var execPrice = map[string]budget.Price{
	"exec": {PerUnit: map[budget.Unit]budget.Money{budget.UnitSecond: cent / 10}, Max: 2 * cent},
}

// execLease takes a lease whose adapter runs programs for it.
func (h *engineEnv) execLease(t *testing.T) (picket.Lease, picket.LeaseCredential) {
	t.Helper()
	h.submit()
	l := h.lease()
	h.ok(h.RunEvents(h.ctx, h.held(l), []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
	return l, h.held(l)
}

// adapter carries out the orders of a run as play says, each once, until stop
// is called; it answers how many there were.
func (h *engineEnv) adapter(t *testing.T, held picket.LeaseCredential,
	play func(o picket.ExecRequest) *picket.ExecResult) (stop func() int) {
	ctx, cancel := context.WithCancel(h.ctx)
	var known []string
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			w, _, err := h.Watch(ctx, held, 20*time.Second, known...)
			if ctx.Err() != nil || err == nil && w.State != picket.WatchHeld {
				return
			}
			for _, c := range w.Commands {
				if c.Exec == nil {
					continue
				}
				known = append(known, c.Exec.CallID)
				if r := play(*c.Exec); r != nil {
					if err := h.ExecResult(h.ctx, held, c.Exec.CallID, *r); err != nil {
						t.Errorf("the result was refused: %v", err)
					}
				}
			}
		}
	})
	return func() int { cancel(); done.Wait(); return len(known) }
}

// exited is a result; what it says of the time is to cost nothing.
func exited(code int) *picket.ExecResult {
	return &picket.ExecResult{Code: &code, Stdout: "out", DurationMs: picket.MaxNumber}
}

// elapse lets time pass where that costs none.
func (h *engineEnv) elapse(d time.Duration) {
	if h.virtual {
		time.Sleep(d)
	}
}

const anExec = `{"argv":["go","vet"],"stdin":"in"}`

// expectSpent checks the account of a task. In real time a call may have lasted
// longer, at most at the price's bound.
func (h *engineEnv) expectSpent(t *testing.T, task string, spent budget.Money) {
	t.Helper()
	got, err := h.Task(h.ctx, task)
	h.ok(err)
	slow := !h.virtual && spent > 0 && got.Spent.USD > spent && got.Spent.USD <= 2*cent
	if got.Spent.USD != spent && !slow || !got.Held.IsZero() {
		t.Errorf("spent $%s, held %+v, want $%s and nothing", got.Spent.USD, got.Held, spent)
	}
}

func TestExecIsMetered(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := newPricedProxy(t, execPrice)
		l, held := h.execLease(t)
		stop := h.adapter(t, held, func(o picket.ExecRequest) *picket.ExecResult {
			if strings.Join(o.Argv, " ") != "go vet" || o.Stdin != "in" || o.TimeoutSeconds != 60 || o.TTLMs > 70_000 ||
				o.TTLMs < 40_000 {
				t.Errorf("the order is %+v", o)
			}
			h.elapse(2_001 * time.Millisecond)
			return exited(0)
		})
		for range 2 { // the second is the first once more
			got, err := p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(anExec), "key")
			if err != nil || !strings.Contains(string(got), `"code":0`) ||
				!strings.Contains(string(got), `"stdout":"out"`) ||
				h.virtual && !strings.Contains(string(got), `"cost":{"tokens":0,"usd":0.003}`) {
				t.Fatalf("answered %s, %v", got, err)
			}
		}
		if _, err := p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(`{"argv":["go","build"]}`),
			"key"); picket.CodeOf(err) != picket.CodeIdempotencyConflict {
			t.Errorf("other arguments: %v", err)
		}
		if n := stop(); n != 1 {
			t.Errorf("%d orders", n)
		}
		if h.virtual {
			h.expectSpent(t, l.TaskID, 3*cent/10)
		}
	})
}

func TestExecIsThereWhenTheAdapterSaysSo(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p, free := newPricedProxy(t, execPrice), newPricedProxy(t, nil)
		h.submit()
		l := h.lease()
		held := h.held(l)
		lists := func(p *toolproxy.Proxy) bool {
			list, err := p.ToolsFor(h.ctx, h.Engine, held)
			h.ok(err)
			for _, tool := range list {
				if tool.Name == "exec" {
					return tool.Effects == picket.EffectsExternal && tool.Price != nil && tool.Price.Max == 2*cent
				}
			}
			return false
		}
		call := func(p *toolproxy.Proxy) picket.Code {
			_, err := p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(anExec), "")
			return picket.CodeOf(err)
		}
		h.ok(h.RunEvents(h.ctx, held, []picket.RunEvent{{Type: picket.EventRunLaunched}}))
		if lists(p) || call(p) != picket.CodeNotFound {
			t.Errorf("without an adapter that runs programs: listed %v, called %s", lists(p), call(p))
		}
		h.ok(h.RunEvents(h.ctx, held, []picket.RunEvent{{Type: picket.EventRunLaunched, Exec: true}}))
		if !lists(p) || lists(free) || call(free) != picket.CodeUnpricedTool {
			t.Errorf("with one: listed %v; without a price: listed %v, called %s", lists(p), lists(free), call(free))
		}
		_, err := h.Release(h.ctx, held, picket.Exit{Class: picket.ExitReleased})
		h.ok(err)
		if code := call(p); code != picket.CodeLeaseReleased {
			t.Errorf("after the lease: %s", code)
		}
	})
}

// faultyBackend is an engine whose answers to orders get lost, or that takes none.
type faultyBackend struct {
	*orchestrator.Engine
	lose   int
	refuse error
	orders int
}

func (f *faultyBackend) OrderExec(ctx context.Context, held picket.LeaseCredential, order picket.ExecRequest) error {
	f.orders++
	if f.refuse != nil {
		return f.refuse
	}
	err := f.Engine.OrderExec(ctx, held, order)
	if f.lose > 0 {
		f.lose--
		return lost()
	}
	return err
}

func TestAnOrderWhoseAnswerIsLost(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		for _, lose := range []int{1, 2, 99} {
			p := newPricedProxy(t, execPrice)
			l, held := h.execLease(t)
			stop := h.adapter(t, held, func(picket.ExecRequest) *picket.ExecResult { return exited(1) })
			backend := &faultyBackend{Engine: h.Engine, lose: lose}
			got, err := p.Invoke(h.ctx, backend, held, "exec", jsontext.Value(anExec), "")
			if err != nil || !strings.Contains(string(got), `"code":1`) {
				t.Errorf("%d lost: %s, %v", lose, got, err)
			}
			if n := stop(); n != 1 || backend.orders < 2 {
				t.Errorf("%d lost: %d programs for %d orders", lose, n, backend.orders)
			}
			h.expectSpent(t, l.TaskID, cent/10)
			_, err = h.Release(h.ctx, held, picket.Exit{Class: picket.ExitReleased})
			h.ok(err)
			_, err = h.Cancel(h.ctx, operator, l.TaskID, "")
			h.ok(err)
		}
	})
}

func TestAnOrderThatIsRefusedCostsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := newPricedProxy(t, execPrice)
		l, held := h.execLease(t)
		backend := &faultyBackend{Engine: h.Engine, refuse: picket.Refuse(picket.CodeRateLimited, "Wait.", "too many")}
		if _, err := p.Invoke(h.ctx, backend, held, "exec", jsontext.Value(anExec),
			"key"); picket.CodeOf(err) != picket.CodeRateLimited {
			t.Errorf("answered %v", err)
		}
		h.expectSpent(t, l.TaskID, 0)
		backend.refuse = nil // and the same call can be made again
		stop := h.adapter(t, held, func(picket.ExecRequest) *picket.ExecResult { return exited(0) })
		defer stop()
		if _, err := p.Invoke(h.ctx, backend, held, "exec", jsontext.Value(anExec), "key"); err != nil {
			t.Error(err)
		}
		h.expectSpent(t, l.TaskID, cent/10)
	})
}

// Without a result the call ends at its deadline and costs what it had reserved.
func TestAnOrderWithoutAResult(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		if !h.virtual {
			t.Skip("it takes its time")
		}
		p := newPricedProxy(t, execPrice)
		l, held := h.execLease(t)
		began := time.Now()
		_, err := p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(`{"argv":["x"],"timeoutSeconds":5}`), "key")
		if picket.CodeOf(err) != picket.CodeUpstreamTimeout || time.Since(began) > 16*time.Second ||
			time.Since(began) < 14*time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		h.expectSpent(t, l.TaskID, 2*cent)
		_, err = p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(`{"argv":["x"],"timeoutSeconds":5}`), "key")
		if picket.CodeOf(err) != picket.CodeStateConflict {
			t.Errorf("once more: %v", err)
		}
	})
}

// The program dies with the lease, and its end is still the end of the call.
func TestAnOrderWhoseLeaseEnds(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := newPricedProxy(t, execPrice)
		l, held := h.execLease(t)
		stop := h.adapter(t, held, func(o picket.ExecRequest) *picket.ExecResult {
			_, err := h.Cancel(h.ctx, operator, l.TaskID, "")
			h.ok(err)
			h.elapse(1_500 * time.Millisecond)
			kill := "SIGKILL"
			return &picket.ExecResult{Signal: &kill}
		})
		got, err := p.Invoke(h.ctx, h.Engine, held, "exec", jsontext.Value(anExec), "")
		if err != nil || !strings.Contains(string(got), `"signal":"SIGKILL"`) {
			t.Errorf("answered %s, %v", got, err)
		}
		stop()
		if h.virtual {
			h.expectSpent(t, l.TaskID, 2*cent/10)
		}
	})
}

// A caller that goes away does not keep its program from being paid.
func TestAnOrderWhoseCallerGoesAway(t *testing.T) {
	onBothStores(t, func(t *testing.T, h *engineEnv) {
		p := newPricedProxy(t, execPrice)
		l, held := h.execLease(t)
		ctx, leave := context.WithCancel(h.ctx)
		stop := h.adapter(t, held, func(picket.ExecRequest) *picket.ExecResult { leave(); return exited(0) })
		_, err := p.Invoke(ctx, h.Engine, held, "exec", jsontext.Value(anExec), "")
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stop()
		h.expectSpent(t, l.TaskID, cent/10)
	})
}

func TestArgumentsOfExec(t *testing.T) {
	w := newFakeEnvelope(cent)
	p := newPricedProxy(t, execPrice)
	backend := execBackend{w}
	for args, code := range map[string]picket.Code{
		``:                                    picket.CodeValidation,
		`{}`:                                  picket.CodeValidation,
		`{"argv":[]}`:                         picket.CodeValidation,
		`{"argv":[""]}`:                       picket.CodeValidation,
		`{"argv":"ls"}`:                       picket.CodeValidation,
		`{"argv":["a\u0000b"]}`:               picket.CodeValidation,
		`{"argv":["a"],"shell":true}`:         picket.CodeValidation,
		`{"argv":["a"],"timeoutSeconds":0}`:   picket.CodeValidation,
		`{"argv":["a"],"timeoutSeconds":111}`: picket.CodeValidation,
		`{"argv":["` + strings.Repeat("x", 130<<10) + `"]}`:                        picket.CodeTooLarge,
		`{"argv":["a"],"stdin":"` + strings.Repeat("x", 130<<10) + `"}`:            picket.CodeTooLarge,
		`{"argv":["a"` + strings.Repeat(`,"b"`, 1000) + `]}`:                       picket.CodeValidation,
		`{"argv":["a"],"stdin":"` + strings.Repeat("x", 2<<20) + `","x":[[[[]]]]}`: picket.CodeTooLarge,
	} {
		_, err := p.Invoke(t.Context(), backend, aHeld, "exec", jsontext.Value(args), "")
		if picket.CodeOf(err) != code {
			t.Errorf("%.60s: %v", args, err)
		}
	}
	if w.asks != 0 {
		t.Errorf("%d reservations", w.asks)
	}
}

type execBackend struct{ *fakeEnvelope }

func (execBackend) CanExec(context.Context, picket.LeaseCredential) (bool, error) { return true, nil }
