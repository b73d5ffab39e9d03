package webhooks_test

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/reaper/webhooks"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var operator = picket.Caller{Actor: "key_test"}

// fixture is a namespace on the virtual clock, whose store time goes on as if a
// reaper ticked.
type fixture struct {
	*orchestrator.Engine
	t   *testing.T
	ctx context.Context
	raw redis.UniversalClient
	log *strings.Builder
	to  slog.Handler // writes to log, one record at a time, for all deliverers
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// virtual runs a test on the virtual clock with an in-process store.
func virtual(t *testing.T, test func(h *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, stop := rig.Memory()
		defer stop()
		store, err := orchestrator.Open(t.Context(),
			orchestrator.Config{
				Redis:   s.Redis,
				Memory:  s.Memory,
				Sealer:  rig.Sealer(),
				Witness: t.TempDir(),
				Found:   true,
				Log:     slog.New(slog.DiscardHandler),
			})
		must(t, err)
		defer store.Close()
		h := &fixture{
			Engine: store.Engine("default"),
			t:      t,
			ctx:    t.Context(),
			raw:    rig.Hashes(redis.NewUniversalClient(&s.Redis)),
			log:    &strings.Builder{},
		}
		h.to = slog.NewTextHandler(h.log, nil)
		defer h.raw.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var ticking sync.WaitGroup
		defer ticking.Wait()
		defer cancel()
		ticking.Go(func() {
			for every := time.NewTicker(time.Second); ctx.Err() == nil; {
				select {
				case <-ctx.Done():
					every.Stop()
				case <-every.C:
					_ = h.Tick(ctx)
				}
			}
		})
		test(h)
	})
}

// addWebhook makes a target for events of a kind that tests can make at will.
func (h *fixture) addWebhook(name string) picket.NewWebhook {
	h.t.Helper()
	made, err := h.CreateWebhook(h.ctx, operator,
		picket.WebhookSpec{
			Name:  name,
			URL:   picket.Secret("https://" + name + ".test/secret/path?token=abc"),
			Types: []string{picket.EventTaskSubmitted},
		})
	must(h.t, err)
	return made
}

// addEvents makes n events.
func (h *fixture) addEvents(n int) {
	h.t.Helper()
	for range n {
		_, err := h.Submit(h.ctx, operator, picket.TaskSpec{Title: "x"})
		must(h.t, err)
	}
}

func (h *fixture) webhook(id string) picket.Webhook {
	h.t.Helper()
	w, err := h.Webhook(h.ctx, id)
	must(h.t, err)
	return w
}

// startDeliverer starts one; stop waits until it has ended.
func (h *fixture) startDeliverer(way http.RoundTripper, change func(*webhooks.Config)) (stop func()) {
	h.t.Helper()
	s, err := webhooks.NewSender(webhooks.SenderConfig{})
	must(h.t, err)
	s.SetTransport(way)
	cfg := webhooks.Config{
		Queues: map[string]webhooks.Queue{"default": h.Engine},
		Sender: s,
		Log:    slog.New(h.to),
		Jitter: func(most time.Duration) time.Duration { return most },
	}
	if change != nil {
		change(&cfg)
	}
	d, err := webhooks.New(cfg)
	must(h.t, err)
	ctx, cancel := context.WithCancel(h.ctx)
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	return sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			h.t.Errorf("run: %v", err)
		}
	})
}

// delivery is a request that a target has got.
type delivery struct {
	at   time.Time
	host string
	id   string
	seq  int64
}

// target answers requests and keeps what arrived. answer says how, by the
// number of the request from 1; nil takes everything.
type target struct {
	mu       sync.Mutex
	got      []delivery
	secrets  map[string]picket.Secret // by host; signatures are checked for those
	answer   func(n int, r *http.Request) (*http.Response, error)
	problems []string
}

func (g *target) RoundTrip(r *http.Request) (*http.Response, error) {
	_, n := g.record(r)
	if g.answer == nil {
		return status(200)
	}
	return g.answer(n, r)
}

// record reads a request and holds its signature against its body; n counts.
func (g *target) record(r *http.Request) (a delivery, n int) {
	body, _ := io.ReadAll(r.Body)
	_ = r.Body.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	a = delivery{at: time.Now(), host: r.URL.Host, id: r.Header.Get(webhooks.HeaderID)}
	var ev picket.Event
	if err := json.Unmarshal(body, &ev); err != nil {
		g.problems = append(g.problems, "body: "+err.Error())
	}
	a.seq = ev.Seq
	stamp, _ := strconv.ParseInt(r.Header.Get(webhooks.HeaderTimestamp), 10, 64)
	if want, _ := webhooks.Sign(g.secrets[a.host], a.id, time.Unix(stamp, 0), body); g.secrets[a.host] != "" &&
		r.Header.Get(webhooks.HeaderSignature) != want {
		g.problems = append(g.problems, "signature "+r.Header.Get(webhooks.HeaderSignature))
	}
	if time.Since(time.Unix(stamp, 0)).Abs() > time.Minute {
		g.problems = append(g.problems, "timestamp "+r.Header.Get(webhooks.HeaderTimestamp))
	}
	g.got = append(g.got, a)
	return a, len(g.got)
}

// deliveries are the requests so far.
func (g *target) deliveries() []delivery {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]delivery(nil), g.got...)
}

func status(code int, headers ...string) (*http.Response, error) {
	resp := &http.Response{StatusCode: code, Header: http.Header{}, Body: http.NoBody}
	for i := 0; i+1 < len(headers); i += 2 {
		resp.Header.Set(headers[i], headers[i+1])
	}
	return resp, nil
}

// eventually waits on the virtual clock, at most for an hour.
func (h *fixture) eventually(what string, holds func() bool) {
	h.t.Helper()
	for n := range 3600 {
		if holds() {
			return
		}
		time.Sleep(min(time.Duration(n+1)*10*time.Millisecond, time.Second))
	}
	h.t.Fatalf("%s did not come about\n%s", what, h.log)
}
