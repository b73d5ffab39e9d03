//go:build linux

package e2e

import (
	stdjson "encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// killingReceiver takes push notifications. While it has one of every second update for the first time, the deliverer
// is stopped. Then it answers, and the deliverer is killed before it can record the delivery.
type killingReceiver struct {
	t        *testing.T
	server   *httptest.Server
	arrived  chan struct{} // a notification waits for its answer
	stopped  chan struct{} // the deliverer is stopped, so the answer may be sent
	answered chan struct{}

	mu   sync.Mutex
	got  []pushedUpdate
	seen map[string]protocol.TaskState // by id
}

type pushedUpdate struct {
	id    string
	state protocol.TaskState
}

func newKillingReceiver(t *testing.T) *killingReceiver {
	r := &killingReceiver{t: t, arrived: make(chan struct{}), stopped: make(chan struct{}),
		answered: make(chan struct{}, 10),
		seen:     map[string]protocol.TaskState{}}
	r.server = httptest.NewServer(r)
	t.Cleanup(r.server.Close)
	return r
}

func (r *killingReceiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	raw, err := io.ReadAll(req.Body)
	var told protocol.StreamResponse
	if err == nil {
		err = stdjson.Unmarshal(raw, &told)
	}
	status, isStatus := told.Event.(*protocol.TaskStatusUpdateEvent)
	if err != nil || !isStatus {
		r.t.Errorf("a notification: %v: %s", err, raw)
		return
	}
	id := req.Header.Get("webhook-id")
	r.mu.Lock()
	r.got = append(r.got, pushedUpdate{id, status.Status.State})
	before, again := r.seen[id]
	if again && before != status.Status.State {
		r.t.Errorf("%s is sent again as %s, and was %s", id, status.Status.State, before)
	}
	r.seen[id] = status.Status.State
	kills := !again && len(r.seen)%2 == 1
	r.mu.Unlock()
	if !kills {
		return
	}
	select {
	case r.arrived <- struct{}{}:
	case <-r.t.Context().Done():
		return
	}
	select {
	case <-r.stopped:
	case <-r.t.Context().Done():
		return
	}
	w.WriteHeader(http.StatusOK)
	w.(http.Flusher).Flush()
	r.answered <- struct{}{}
}

// count is how many notifications have come, and of how many updates.
func (r *killingReceiver) count() (all, updates int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.got), len(r.seen)
}

// receive waits for something that the receiver does.
func receive(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(waitLimit):
		t.Fatalf("%s never came", what)
	}
}

// killBetween kills a deliverer between a delivery and its mark. Before its claim ends, something else happens. Then it
// returns another deliverer.
func (r *killingReceiver) killBetween(w *testEnv, deliverer *process, meanwhile func()) *process {
	w.t.Helper()
	receive(w.t, "a notification", r.arrived)
	deliverer.signal(syscall.SIGSTOP)
	w.until("the deliverer is stopped", func() bool { return proctest.State(deliverer.pid()) == 'T' })
	r.stopped <- struct{}{}
	receive(w.t, "the answer", r.answered)
	deliverer.kill()
	meanwhile()
	w.halfAMinute()
	next, _ := w.serve("reaper", "reaper", "")
	return next
}

// A deliverer that is killed after a push notification was answered and before it has recorded that loses no update:
// the next one sends it again under the same id, then those after it, in order. The configuration ends with the task.
func TestPushMissesNothingAcrossKills(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	r := newKillingReceiver(t)
	w.put("config/picket/picket.yaml", builderSettings+"notify: {allow: '"+r.server.Listener.Addr().String()+"'}\n")
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	deliverer, _ := w.serve("reaper", "reaper", "")
	_, w.url = w.serve("orchestrator", "server", "", "--proxy-url", "http://127.0.0.1:1")
	w.events = followEvents(w)
	var client picket.NewKey
	w.into(&client, http.MethodPost, "/keys", picket.KeyRequest{Name: "partner", Scopes: []picket.Scope{
		picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{"builder"}}})
	endpoint := w.url + "/agents/builder/a2a/"
	sent := w.call(client.Key.Reveal(), http.MethodPost, endpoint+"message:send", map[string]any{
		"message": map[string]any{"messageId": "m1", "role": "ROLE_USER",
			"parts": []any{map[string]any{"text": "work"}}},
		"configuration": map[string]any{"returnImmediately": true,
			"taskPushNotificationConfig": map[string]any{"url": r.server.URL}},
	})
	var made struct{ Task struct{ ID string } }
	if err := stdjson.Unmarshal(sent.body, &made); err != nil || made.Task.ID == "" {
		t.Fatalf("%v: %d %s", err, sent.status, sent.body)
	}
	var want []protocol.TaskState
	for range 2 {
		w.leaseOf("builder")
		deliverer = r.killBetween(w, deliverer, func() {
			w.into(&picket.Task{}, http.MethodPost, "/leases/"+made.Task.ID+"/expire", map[string]any{"reason": "test"})
		})
		want = append(want, protocol.TaskStateWorking, protocol.TaskStateSubmitted)
		w.until("both updates are delivered", func() bool { _, n := r.count(); return n == len(want) })
	}
	w.into(&picket.Task{}, http.MethodPost, "/tasks/"+made.Task.ID+"/cancel", map[string]any{"reason": "test"})
	want = append(want, protocol.TaskStateCanceled)
	r.killBetween(w, deliverer, func() {})
	w.until("the configuration ends with the task", func() bool {
		got := w.call(client.Key.Reveal(), http.MethodGet,
			endpoint+"tasks/"+made.Task.ID+"/pushNotificationConfigs", nil)
		return strings.Contains(string(got.body), `"configs":[]`)
	})
	r.expect(want, 3)
}

// expect holds what came first of each update against the states that a client is told, in order. Each kill is followed
// by a repeat.
func (r *killingReceiver) expect(want []protocol.TaskState, kills int) {
	r.t.Helper()
	all, updates := r.count()
	if all < updates+kills {
		r.t.Errorf("%d notifications of %d updates, so a kill was not between a delivery and its mark", all, updates)
	}
	var states []protocol.TaskState
	last, seen := "", map[string]bool{}
	for _, u := range r.got {
		if seen[u.id] && u.id != last {
			r.t.Errorf("%s came again after %s", u.id, last)
		}
		if !seen[u.id] {
			states = append(states, u.state)
		}
		seen[u.id], last = true, u.id
	}
	if !slices.Equal(states, want) {
		r.t.Errorf("told %v, want %v", states, want)
	}
}
