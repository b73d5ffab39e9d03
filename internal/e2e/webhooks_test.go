//go:build linux

package e2e

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// receiver is a system that events are posted to, with its own kind of fault.
type receiver struct {
	t      *testing.T
	name   string
	server *httptest.Server
	hook   picket.NewWebhook
	over   chan struct{} // ends what hangs

	mu     sync.Mutex
	random *rand.Rand
	bad    int // requests that are still to go wrong
	row    int // how many went wrong in a row: at most two, the pause doubles each time
	got    []delivered
	faults int
}

// delivered is an event that was taken.
type delivered struct {
	id    string
	event picket.Event
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the sender was killed
	}
	r.mu.Lock()
	fault := r.bad > 0 && r.row < 2 && (r.bad == 12 || r.random.IntN(3) == 0) // the first one, and some of the others
	if fault {
		r.bad--
		r.row++
		r.faults++
	} else {
		r.row = 0
	}
	r.mu.Unlock()
	cut := func() {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.(*net.TCPConn).SetLinger(0)
			_ = conn.Close()
		}
	}
	if fault {
		switch r.name {
		case "breaks":
			w.WriteHeader(http.StatusInternalServerError)
			return
		case "hangs":
			r.mu.Lock()
			r.bad = 0 // once: it takes a quarter of a minute
			r.mu.Unlock()
			select {
			case <-req.Context().Done():
			case <-r.over:
			}
			return
		case "resets":
			cut()
			return
		case "gone":
			w.WriteHeader(http.StatusGone)
			return
		case "forgets": // it accepts it, and the answer is lost
			r.take(req, body)
			cut()
			return
		}
	}
	r.take(req, body)
}

// take keeps an event whose signature is right.
func (r *receiver) take(req *http.Request, body []byte) {
	id, at := req.Header.Get("webhook-id"), req.Header.Get("webhook-timestamp")
	r.mu.Lock()
	defer r.mu.Unlock()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(r.hook.Secret.Reveal(), "whsec_"))
	if err != nil {
		r.t.Error(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(id + "." + at + "." + string(body)))
	if want := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)); req.Header.Get("webhook-signature") != want {
		r.t.Errorf("%s: the signature %q is not %q", r.name, req.Header.Get("webhook-signature"), want)
	}
	var ev picket.Event
	if err := json.Unmarshal(body, &ev); err != nil {
		r.t.Errorf("%s: %v: %.200s", r.name, err, body)
	}
	r.got = append(r.got, delivered{id, ev})
}

// distinct are the events taken, each when it came first; one that came again
// must have come under the same id.
func (r *receiver) distinct() (out []picket.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ids := map[int64]string{}
	for _, d := range r.got {
		if known, again := ids[d.event.Seq]; again {
			if known != d.id {
				r.t.Errorf("%s got event %d as %s and as %s", r.name, d.event.Seq, known, d.id)
			}
			continue
		}
		ids[d.event.Seq] = d.id
		out = append(out, d.event)
	}
	return out
}

// Five targets that break, hang, reset, are gone and forget to answer, two
// deliverers of which each is killed, and a server that is stopped: no target
// misses an event, each has them in order, and what comes again has its id.
func TestWebhooksMissNothingAcrossKills(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	seed := rig.Seed(t)
	var receivers []*receiver
	var open []string
	over := make(chan struct{})
	for i, name := range []string{"breaks", "hangs", "resets", "gone", "forgets"} {
		r := &receiver{t: t, name: name, over: over, bad: 12, random: rand.New(rand.NewPCG(seed, uint64(i)))}
		r.server = httptest.NewServer(r)
		w.atEnd = append(w.atEnd, r.server.Close)
		receivers = append(receivers, r)
		open = append(open, r.server.Listener.Addr().String())
	}
	defer close(over)
	w.env = append(w.env, "PICKET_NOTIFY_ALLOW="+strings.Join(open, ","))
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	reapers := make([]*process, 2)
	for i := range reapers {
		reapers[i], _ = w.serve("reaper", fmt.Sprint("reaper", i), "")
	}
	server, url := w.serve("orchestrator", "server", "", "--proxy-url", "http://127.0.0.1:1")
	w.url = url
	w.events = followEvents(w)
	for _, r := range receivers {
		r.mu.Lock()
		w.into(&r.hook, http.MethodPost, "/webhooks",
			picket.WebhookSpec{Name: r.name, URL: picket.Secret(r.server.URL + "/very/secret"),
				Types: []string{picket.EventTaskSubmitted, picket.EventTaskCancelled}})
		r.mu.Unlock()
	}
	const rounds = 4
	for round := range rounds {
		wrote := w.writes(round)
		switch round {
		case 0:
			server.signal(syscall.SIGTERM)
			server.wait()
			server, _ = w.serve("orchestrator", "server", url, "--proxy-url", "http://127.0.0.1:1")
		case 1:
			reapers[0].kill()
			w.halfAMinute()
			reapers[0], _ = w.serve("reaper", "reaper0", "")
		case 2:
			server.kill()
			reapers[1].kill()
			w.halfAMinute()
			server, _ = w.serve("orchestrator", "server", url, "--proxy-url", "http://127.0.0.1:1")
			reapers[1], _ = w.serve("reaper", "reaper1", "")
		case 3:
			reapers[0].signal(syscall.SIGTERM)
			if code := reapers[0].wait(); code != 0 {
				t.Errorf("the reaper was asked to stop and ended with %d", code)
			}
		}
		<-wrote
		w.reviveAll(receivers)
	}
	all := slices.DeleteFunc(w.allEvents(), func(ev picket.Event) bool {
		return ev.Type != picket.EventTaskSubmitted && ev.Type != picket.EventTaskCancelled
	})
	for _, r := range receivers {
		w.until(r.name+" at the end", func() bool {
			w.reviveAll(receivers)
			return len(r.distinct()) >= len(all)
		})
		got := r.distinct()
		if !slices.EqualFunc(got, all,
			func(a, b picket.Event) bool { return a.Seq == b.Seq && a.Type == b.Type && a.TaskID == b.TaskID }) {
			t.Errorf("%s took %d events, the log has %d; they differ first at %d", r.name, len(got), len(all),
				firstDifference(got, all))
		}
		r.mu.Lock()
		t.Logf("%s: %d events, %d taken, %d faults", r.name, len(all), len(r.got), r.faults)
		r.mu.Unlock()
	}
	for _, p := range w.processes {
		if text := p.err.text() + p.out.text(); strings.Contains(text, "very/secret") ||
			strings.Contains(text, "whsec_") {
			t.Errorf("%s tells a secret", p.name)
		}
	}
}

// writes makes tasks and cancels them, no matter who is away meanwhile. It returns
// when some are made; the channel is closed when all are.
func (w *testEnv) writes(round int) (done chan struct{}) {
	w.t.Helper()
	const tasks = 25
	done, begun := make(chan struct{}), make(chan struct{})
	s := eventWriter{t: w.t, url: w.url + "/api/v1", key: w.key, over: make(chan struct{}), wrote: new(atomic.Int64)}
	go func() {
		defer close(done)
		for i := range tasks {
			once := fmt.Sprint("round", round, "-", i)
			var task picket.Task
			if made := s.send("/tasks", spec(once, 60), once); made != nil {
				decodeInto(w.t, made, &task)
				s.send("/tasks/"+task.TaskID+"/cancel", map[string]string{"reason": "written"}, once+"-cancel")
			}
			if i == tasks/3 {
				close(begun)
			}
		}
	}()
	<-begun
	return done
}

// halfAMinute moves store time on, so that the claims of the dead are over.
func (w *testEnv) halfAMinute() {
	w.t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: w.path("redis.sock")})
	defer c.Close()
	w.must(c.HIncrBy(context.Background(), "pk:{default}:meta", "now", picket.WebhookTurnTTL.Milliseconds()).Err())
}

// reviveAll goes on with targets that said that they are gone.
func (w *testEnv) reviveAll(receivers []*receiver) {
	w.t.Helper()
	for _, r := range receivers {
		var hook picket.Webhook
		w.into(&hook, http.MethodGet, "/webhooks/"+r.hook.WebhookID, nil)
		if hook.State != picket.WebhookActive {
			w.into(&hook, http.MethodPost, "/webhooks/"+r.hook.WebhookID+"/revive", struct{}{})
		}
	}
}
