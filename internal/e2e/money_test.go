//go:build linux

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// paidService is a paid service outside: it counts its calls. A request to /wait is answered when
// the test says it, or never.
type paidService struct {
	*httptest.Server
	hits    atomic.Int64
	waiting chan string   // the path of a call that waits
	left    chan string   // the path of one whose caller has gone
	serve   chan struct{} // lets one that waits go on
}

const price = "0.3"

func newPaidService(t *testing.T) *paidService {
	s := &paidService{waiting: make(chan string, 100), left: make(chan string, 100), serve: make(chan struct{})}
	s.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		s.hits.Add(1)
		if !strings.HasPrefix(r.URL.Path, "/wait") {
			fmt.Fprint(rw, "served")
			return
		}
		s.waiting <- r.URL.Path
		select {
		case <-s.serve:
			fmt.Fprint(rw, "served")
		case <-r.Context().Done():
			s.left <- r.URL.Path
		}
	}))
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// money is a world with two of each role, where http_request may call the shop
// for a price, and a port at which nobody listens.
func (w *testEnv) money(s *paidService) [2]serverSet {
	w.t.Helper()
	at, _ := url.Parse(s.URL)
	settings := fmt.Sprintf("tools:\n  prices: {http_request: {call: %s}}\n  http_request: {allow: [%q, \"127.0.0.1:1\"], timeout: 3s}\n", price, at.Host)
	if err := os.MkdirAll(w.path("config", "picket"), 0o700); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(w.path("config", "picket", "picket.yaml"), []byte(settings), 0o600); err != nil {
		w.t.Fatal(err)
	}
	w.store()
	return w.pairs()
}

// funded submits a task with an envelope of a dollar and leases it.
func (w *testEnv) funded(role string) picket.Lease {
	w.t.Helper()
	s := spec("pays for "+role, 60)
	s.Role, s.Review = role, picket.ReviewByNone
	s.BudgetEnvelope = &budget.Envelope{USD: 1_000_000_000}
	w.submit(s)
	return w.leaseOf(role)
}

func (w *testEnv) leaseOf(role string) picket.Lease {
	w.t.Helper()
	var got struct {
		Leases []picket.Lease `json:"leases"`
	}
	wait := 30
	w.into(&got, "POST", "/leases", picket.AcquireRequest{Role: role, WaitSeconds: &wait})
	if len(got.Leases) != 1 {
		w.t.Fatalf("acquired %d leases of role %s", len(got.Leases), role)
	}
	return got.Leases[0]
}

// pay calls the shop through a proxy.
func pay(proxy string, l picket.Lease, at, method string) (answer, error) {
	return try(l.LeaseToken.Reveal(), "POST", proxy+"/v1/tools/http_request",
		map[string]any{"method": method, "url": at})
}

func (w *testEnv) envelope(id string) (e picket.EnvelopeState) {
	w.t.Helper()
	w.into(&e, "GET", "/envelopes/"+id, nil)
	return e
}

func (w *testEnv) rows(id string) []picket.LedgerRow {
	w.t.Helper()
	var page picket.LedgerPage
	w.into(&page, "GET", "/ledger?task="+id, nil)
	return page.Rows
}

func usd(text string) budget.Money {
	m, err := budget.ParseMoney(text)
	if err != nil {
		panic(err)
	}
	return m
}

// Ten calls of 0.30 at once on an envelope of 1.00, half of them through each
// of two proxies: three are made, whichever they are, and no cent is lost.
func TestTwoProxiesMakeExactlyThreeCalls(t *testing.T) {
	w, s := newTestEnv(t), newPaidService(t)
	pairs := w.money(s)
	rounds := soakTimes(t, "ten calls on three", 20, 50)
	for round := range rounds {
		l := w.funded(fmt.Sprint("round", round))
		before := s.hits.Load()
		var made, refused atomic.Int64
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				got, err := pay(pairs[i%2].proxyURL, l, s.URL+"/", "GET")
				switch {
				case err != nil:
					t.Error(err)
				case got.status == 200:
					made.Add(1)
				case got.status == 402 && got.code() == picket.CodeBudgetExceeded:
					refused.Add(1)
				default:
					t.Errorf("HTTP %d: %s", got.status, got.body)
				}
			})
		}
		calls.Wait()
		e := w.envelope(l.TaskID)
		if made.Load() != 3 || refused.Load() != 7 || s.hits.Load()-before != 3 || !e.Held.IsZero() ||
			e.Spent.USD != usd("0.9") || e.Available.USD != usd("0.1") {
			t.Fatalf("round %d: %d made, %d refused, %d reached the shop; %+v", round, made.Load(), refused.Load(),
				s.hits.Load()-before, e.Account)
		}
		if n := len(w.rows(l.TaskID)); n != 3 {
			t.Fatalf("round %d: %d rows in the ledger", round, n)
		}
	}
	t.Logf("%d rounds of 10 calls through two proxies: 3 made each time", rounds)
}

// Whatever happens between the reservation and the settlement, nothing stays
// held, and each call has one row in the ledger.
func TestNothingStaysHeld(t *testing.T) {
	w, s := newTestEnv(t), newPaidService(t)
	pairs := w.money(s)
	settled := func(l picket.Lease, outcome picket.CallOutcome, spent string) {
		t.Helper()
		w.of(l.TaskID, picket.EventToolCalled)
		e, rows := w.envelope(l.TaskID), w.rows(l.TaskID)
		if !e.Held.IsZero() || e.Spent.USD != usd(spent) || !e.Balanced() || len(rows) != 1 ||
			rows[0].Outcome != outcome || rows[0].Charged.USD != usd(spent) {
			t.Errorf("%s: %+v, rows %+v; want %s, %s", outcome, e.Account, rows, outcome, spent)
		}
	}
	// Nobody listens: it never left.
	l := w.funded("dead")
	if got, err := pay(pairs[0].proxyURL, l, "http://127.0.0.1:1/", "GET"); err != nil || got.status != 502 {
		t.Errorf("a call to nobody: %d %s, %v", got.status, got.body, err)
	}
	settled(l, picket.CallUndispatched, "0")
	// It does not answer in time: nobody knows, so it costs what it may have.
	l = w.funded("slow")
	if got, err := pay(pairs[0].proxyURL, l, s.URL+"/wait/slow", "GET"); err != nil || got.status != 504 {
		t.Errorf("a call to one who does not answer: %d %s, %v", got.status, got.body, err)
	}
	settled(l, picket.CallUncertain, price)
	// The client goes when the call has left: no money comes back.
	l = w.funded("impatient")
	ctx, goAway := context.WithCancel(t.Context())
	req, err := http.NewRequestWithContext(ctx, "POST", pairs[0].proxyURL+"/v1/tools/http_request",
		strings.NewReader(`{"url":"`+s.URL+`/wait/impatient"}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+l.LeaseToken.Reveal())
	req.Header.Set("Content-Type", "application/json")
	gone := make(chan error, 1)
	go func() {
		got, err := http.DefaultClient.Do(req)
		if err == nil {
			err = got.Body.Close()
		}
		gone <- err
	}()
	w.waits(s, "/wait/impatient")
	goAway()
	if <-gone == nil {
		t.Error("a client that goes away got an answer")
	}
	settled(l, picket.CallUncertain, price)

	// The proxy is killed meanwhile. What acts outside keeps the next lease
	// waiting until its deadline, and settles automatically.
	l = w.funded("killed")
	answered := make(chan error, 1)
	go func() {
		_, err := pay(pairs[0].proxyURL, l, s.URL+"/wait/killed", "POST")
		answered <- err
	}()
	w.waits(s, "/wait/killed")
	if e := w.envelope(l.TaskID); e.Held.USD != usd(price) || len(e.Calls) != 1 ||
		e.Calls[0].Effects != picket.EffectsExternal {
		t.Errorf("while it waits %+v", e)
	}
	reserved := time.Now()
	pairs[0].processes[1].kill()
	if <-answered == nil {
		t.Error("a killed proxy has answered")
	}
	w.api("POST", "/leases/"+l.TaskID+"/expire", map[string]any{"reason": "test"})
	w.refusedEverywhere(s, pairs[1:], l)
	next := w.leaseOf("killed")
	// The call could act for 3 s from its reservation, which came a moment before.
	if waited := time.Since(reserved); next.FencingToken <= l.FencingToken || waited < 2*time.Second {
		t.Errorf("token %d was granted %s after a call of 3 s under token %d had begun", next.FencingToken, waited,
			l.FencingToken)
	}
	settled(l, picket.CallUncertain, price)
	w.refusedEverywhere(s, pairs[1:], l)
}

// waits waits for a call to arrive at the shop.
func (w *testEnv) waits(s *paidService, path string) {
	w.t.Helper()
	for deadline := time.After(waitLimit); ; {
		select {
		case got := <-s.waiting:
			if got == path {
				return
			}
		case <-deadline:
			w.t.Fatalf("no call has come to %s", path)
		}
	}
}

// refusedEverywhere checks that a lease that has ended calls nobody.
func (w *testEnv) refusedEverywhere(s *paidService, pairs []serverSet, l picket.Lease) {
	w.t.Helper()
	before := s.hits.Load()
	for _, p := range pairs {
		if got, err := pay(p.proxyURL, l, s.URL+"/", "POST"); err != nil || got.status != 412 {
			w.t.Errorf("a call under a lease that has ended: %d %s, %v", got.status, got.body, err)
		}
	}
	if n := s.hits.Load() - before; n != 0 {
		w.t.Errorf("%d calls under a lease that has ended have come through", n)
	}
}

// A call that acts outside is cut off when its lease ends, and the next lease
// is granted after that. Anyone who holds no lease calls nobody.
func TestTheNextLeaseWaitsForCallsOutside(t *testing.T) {
	w, s := newTestEnv(t), newPaidService(t)
	pairs := w.money(s)
	l := w.funded("inflight")
	for _, forged := range []picket.Lease{w.released("released"),
		{LeaseToken: picket.Secret(strings.Replace(l.LeaseToken.Reveal(), "pkl_", "pkl_x", 1))}} {
		before := s.hits.Load()
		for _, p := range pairs {
			if got, err := pay(p.proxyURL, forged, s.URL+"/", "GET"); err != nil ||
				got.status != 412 && got.status != 401 {
				t.Errorf("without a lease: %d %s, %v", got.status, got.body, err)
			}
		}
		if s.hits.Load() != before {
			t.Error("a call without a lease has come through")
		}
	}
	done := make(chan answer, 1)
	go func() {
		got, _ := pay(pairs[0].proxyURL, l, s.URL+"/wait/inflight", "POST")
		done <- got
	}()
	w.waits(s, "/wait/inflight")
	w.api("POST", "/leases/"+l.TaskID+"/expire", map[string]any{"reason": "test"})
	next := w.leaseOf("inflight")
	select {
	case <-s.left:
	case <-time.After(waitLimit):
		t.Error("a call whose lease has ended goes on")
	}
	over, granted := w.of(l.TaskID, picket.EventToolCalled), w.leased(l.TaskID, next.FencingToken)
	if next.FencingToken <= l.FencingToken || over.Seq > granted.Seq {
		t.Errorf("token %d was granted while a call under %d was under way", next.FencingToken, l.FencingToken)
	}
	if got := <-done; got.status == 200 {
		t.Errorf("a call that was cut off is answered: %s", got.body)
	}
	w.refusedEverywhere(s, pairs[:], l)
	if e := w.envelope(l.TaskID); !e.Held.IsZero() || e.Spent.USD != usd(price) {
		t.Errorf("%+v", e.Account)
	}
}

// released is a lease that was given back.
func (w *testEnv) released(role string) picket.Lease {
	w.t.Helper()
	l := w.funded(role)
	got, err := try(l.LeaseToken.Reveal(), "POST", l.ProxyURL+"/v1/lease/release",
		map[string]any{"exit": map[string]any{"class": "released"}})
	if err != nil || got.status != 200 {
		w.t.Fatalf("release: %d %s, %v", got.status, got.body, err)
	}
	return l
}
