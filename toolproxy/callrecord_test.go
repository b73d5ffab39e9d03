package toolproxy_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

// recordedProxy is a proxy with a priced tool whose calls onCall gets; it may be nil.
func recordedProxy(t testing.TB, backend toolproxy.Backend, onCall func(toolproxy.CallRecord)) *toolproxy.Proxy {
	t.Helper()
	list, err := budget.NewPriceList(map[string]budget.Price{"paid": {}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  newSealer(t),
		Log:     slog.New(slog.DiscardHandler),
		Backend: func(string) toolproxy.Backend { return backend },
		Prices:  func() *budget.PriceList { return list },
		OnCall:  onCall,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Each call is recorded once, with what it came to: a free one, a paid one, one that is refused.
func TestCallsAreRecorded(t *testing.T) {
	var got []toolproxy.CallRecord
	w := newRichEnvelope(100)
	p := recordedProxy(t, w, func(r toolproxy.CallRecord) { got = append(got, r) })
	held := picket.LeaseCredential{Namespace: "default", TaskID: aTask, RunID: aRun}
	if _, err := p.Invoke(t.Context(), w, held, "get_task", nil, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Invoke(t.Context(), w, held, "no_such_tool", nil, ""); err == nil {
		t.Fatal("a tool that there is not answered")
	}
	ctx, end := p.BeginCall(t.Context(), held, "paid")
	reserve, cost := budget.Envelope{USD: 50 * cent}, budget.Envelope{USD: 20 * cent}
	_, err := p.Metered(ctx, w, held, toolproxy.MeteredCall{Tool: "paid", Reserve: &reserve,
		Dispatch: func(context.Context, picket.Reservation) (toolproxy.DispatchResult, error) {
			return toolproxy.DispatchResult{Cost: &cost}, nil
		}})
	end(err)
	if len(got) != 3 || err != nil {
		t.Fatalf("%d calls were recorded: %+v, %v", len(got), got, err)
	}
	free, refused, paid := got[0], got[1], got[2]
	if free.Tool != "get_task" || free.CallID != "" || free.Err != nil || free.Held.RunID != aRun {
		t.Errorf("the free call is %+v", free)
	}
	if picket.CodeOf(refused.Err) != picket.CodeNotFound || refused.Tool != "unknown" {
		t.Errorf("the refused call is %+v", refused)
	}
	if paid.CallID == "" || paid.Cost != cost || paid.Outcome != picket.CallDone || paid.To.Before(paid.From) {
		t.Errorf("the paid call is %+v", paid)
	}
}

// While nobody records calls, a call allocates nothing for it.
func TestNothingIsRecordedForNobody(t *testing.T) {
	p, held, ctx := recordedProxy(t, newRichEnvelope(100), nil), picket.LeaseCredential{}, t.Context()
	if n := testing.AllocsPerRun(1000, func() {
		within, end := p.BeginCall(ctx, held, "get_task")
		if within != ctx || toolproxy.RecordOf(within) != nil {
			t.Error("there is a record")
		}
		end(nil)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkCallRecords compares, in one run, what recording costs with what a call costs that does
// nothing: while it is off, and while it is on.
func BenchmarkCallRecords(b *testing.B) {
	w := newRichEnvelope(100)
	off := recordedProxy(b, w, nil)
	on := recordedProxy(b, w, func(toolproxy.CallRecord) {})
	held := picket.LeaseCredential{Namespace: "default", TaskID: aTask, RunID: aRun}
	const rounds = 2000
	median := func(of func()) float64 {
		var all []float64
		for range 15 {
			began := time.Now()
			for range rounds {
				of()
			}
			all = append(all, float64(time.Since(began))/rounds)
		}
		slices.Sort(all)
		return all[len(all)/2]
	}
	invoke := func(p *toolproxy.Proxy) func() {
		return func() {
			if _, err := p.Invoke(b.Context(), w, held, "get_task", jsontext.Value(nil), ""); err != nil {
				b.Fatal(err)
			}
		}
	}
	record := func(p *toolproxy.Proxy) func() {
		return func() {
			_, end := p.BeginCall(b.Context(), held, "get_task")
			end(nil)
		}
	}
	for b.Loop() {
		call := median(invoke(off))
		b.ReportMetric(median(record(off))/call, "off/call")
		b.ReportMetric(median(record(on))/call, "on/call")
		b.ReportMetric(0, "ns/op")
	}
}
