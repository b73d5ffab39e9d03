//go:build linux

package e2e

import (
	"context"
	"crypto/rand"
	stdjson "encoding/json"
	"errors"
	"iter"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// builderSettings make the pool builder an endpoint whose results need no review.
const builderSettings = `
agents:
  builder:
    capabilities: [go]
    review: none
    a2a: {enabled: true, budget: 0.50, max_queue: 100}
    card: {name: Builders, description: They build things.}
`

// startEndpoint starts a server with the pool builder and a scripted worker, and returns the URL of the endpoint and
// the key of a client. The server may post push notifications to an address of this host.
func (w *testEnv) startEndpoint(receiver string) (url, key string) {
	w.t.Helper()
	w.put("config/picket/picket.yaml", builderSettings+"notify: {allow: '"+receiver+"'}\n")
	worker := w.path("scripted-worker")
	build := exec.CommandContext(w.t.Context(), "go", "build", "-o", worker,
		"github.com/picket-dev/picket/cmd/scripted-worker")
	if out, err := build.CombinedOutput(); err != nil {
		w.t.Fatalf("build scripted-worker: %v\n%s", err, out)
	}
	w.up()
	var forWorker, forClient picket.NewKey
	w.into(&forWorker, http.MethodPost, "/keys",
		picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
	w.into(&forClient, http.MethodPost, "/keys", picket.KeyRequest{Name: "partner", Scopes: []picket.Scope{
		picket.ScopeClient}, Client: &picket.ClientLimits{Roles: []string{"builder"}, MaxOpen: 20}})
	cmd := exec.Command(worker, "--url", w.url, "--role", "builder", "--delay", "500ms")
	cmd.Env = []string{"PICKET_API_KEY=" + forWorker.Key.Reveal()}
	w.launch("scripted-worker", cmd)
	return w.url + "/agents/builder", forClient.Key.Reveal()
}

// TestA2AJavaScript walks through an endpoint with the official SDK for JavaScript. The steps are in
// testdata/a2aclient.mjs.
func TestA2AJavaScript(t *testing.T) {
	dir := os.Getenv("PICKET_A2A_JS")
	if dir == "" {
		t.Skip("PICKET_A2A_JS names no directory with the SDK: `make conformance-a2a-js` installs it and runs this")
	}
	w := newTestEnv(t)
	port := strconv.Itoa(rig.FreePort(t))
	url, key := w.startEndpoint("127.0.0.1:" + port)
	script, err := os.ReadFile("testdata/a2aclient.mjs")
	if err != nil {
		t.Fatal(err)
	}
	w.put("client/a2aclient.mjs", string(script))
	if err := os.Symlink(filepath.Join(dir, "node_modules"), w.path("client", "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("node", w.path("client", "a2aclient.mjs"))
	cmd.Env = []string{"PICKET_A2A_URL=" + url, "PICKET_A2A_KEY=" + key,
		"PICKET_A2A_PUSH=" + port}
	walk := w.launch("client", cmd)
	code := walk.wait()
	t.Logf("%s", walk.out.text())
	if n := strings.Count(walk.out.text(), "ok "); code != 0 || n < 18 {
		t.Errorf("exit %d, %d steps\n%s", code, n, walk.err.text())
	}
}

// TestA2AGo walks through the same steps with the official SDK for Go.
func TestA2AGo(t *testing.T) {
	w := newTestEnv(t)
	pushed := newPushReceiver(t)
	url, key := w.startEndpoint(pushed.address)
	for _, binding := range []protocol.TransportProtocol{protocol.TransportProtocolJSONRPC,
		protocol.TransportProtocolHTTPJSON} {
		t.Run(string(binding), func(t *testing.T) {
			c := newGoClient(t, url, key, binding)
			done := c.send("tck-complete-task", "")
			c.want(done, protocol.TaskStateCompleted, "Hello from TCK")
			if _, err := c.GetTask(t.Context(), &protocol.GetTaskRequest{ID: done.ID}); err != nil {
				t.Error(err)
			}
			if _, err := c.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: done.ID}); !errors.Is(err,
				protocol.ErrTaskNotCancelable) {
				t.Errorf("cancel a task that has ended: %v", err)
			}

			streamed := c.read(c.SendStreamingMessage(t.Context(), goRequest("tck-stream-001", "")), nil)
			if !slices.Contains(streamed, protocol.TaskStateWorking) ||
				streamed[len(streamed)-1] != protocol.TaskStateCompleted {
				t.Errorf("the stream tells %v", streamed)
			}

			asked := c.send("tck-input-required", "")
			if asked.Status.State != protocol.TaskStateInputRequired {
				t.Fatalf("asked: %+v", asked.Status)
			}
			answered := c.send("answer", asked.ID)
			if answered.ID != asked.ID || answered.Status.State != protocol.TaskStateCompleted {
				t.Errorf("answered: %s %+v", answered.ID, answered.Status)
			}
			c.cancels()
			c.subscribesAgain()
			c.isTold(pushed)
		})
	}
}

// goClient is the official client of an endpoint.
type goClient struct {
	*a2aclient.Client
	t *testing.T
}

func newGoClient(t *testing.T, url, key string, binding protocol.TransportProtocol) goClient {
	t.Helper()
	card, err := agentcard.NewResolver(http.DefaultClient).Resolve(t.Context(), url,
		agentcard.WithRequestHeader("X-API-Key", key))
	if err != nil {
		t.Fatal(err)
	}
	c, err := a2aclient.NewFromCard(t.Context(), card,
		a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []protocol.TransportProtocol{binding}}),
		a2aclient.WithCallInterceptors(&sendsKey{key: key}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destroy() })
	return goClient{c, t}
}

// sendsKey sends an API key with each call.
type sendsKey struct {
	a2aclient.PassthroughInterceptor
	key string
}

func (s *sendsKey) Before(ctx context.Context, req *a2aclient.Request) (context.Context, any, error) {
	req.ServiceParams.Append("X-API-Key", s.key)
	return ctx, nil, nil
}

// goRequest is a message whose id tells the scripted worker what to do.
func goRequest(prefix string, task protocol.TaskID) *protocol.SendMessageRequest {
	m := protocol.NewMessage(protocol.MessageRoleUser, protocol.NewTextPart("Please."))
	m.ID, m.TaskID = prefix+"-"+rand.Text(), task
	return &protocol.SendMessageRequest{Message: m}
}

// send sends a message, and waits until its task has ended or asks something.
func (c goClient) send(prefix string, to protocol.TaskID) *protocol.Task {
	c.t.Helper()
	got, err := c.SendMessage(c.t.Context(), goRequest(prefix, to))
	if err != nil {
		c.t.Fatal(err)
	}
	task, isTask := got.(*protocol.Task)
	if !isTask {
		c.t.Fatalf("%s: %T", prefix, got)
	}
	return task
}

func (c goClient) want(task *protocol.Task, state protocol.TaskState, text string) {
	c.t.Helper()
	if task.Status.State != state || len(task.Artifacts) != 1 || task.Artifacts[0].Parts[0].Text() != text {
		c.t.Errorf("%+v %+v, want %s with %q", task.Status, task.Artifacts, state, text)
	}
}

// read reads the states that a stream tells, to its end.
func (c goClient) read(stream iter.Seq2[protocol.Event, error],
	each func(protocol.TaskState)) (states []protocol.TaskState) {
	c.t.Helper()
	for event, err := range stream {
		if err != nil {
			c.t.Fatal(err)
		}
		var state protocol.TaskState
		switch e := event.(type) {
		case *protocol.Task:
			state = e.Status.State
		case *protocol.TaskStatusUpdateEvent:
			state = e.Status.State
		default:
			continue
		}
		states = append(states, state)
		if each != nil {
			each(state)
		}
	}
	return states
}

// cancels cancels a task as soon as its stream reports the work.
func (c goClient) cancels() {
	c.t.Helper()
	req := goRequest("tck-cancel", "")
	req.Config = &protocol.SendMessageConfig{ReturnImmediately: true}
	got, err := c.SendMessage(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	id, sent := got.(*protocol.Task).ID, false
	states := c.read(c.SubscribeToTask(c.t.Context(), &protocol.SubscribeToTaskRequest{ID: id}),
		func(state protocol.TaskState) {
			if state == protocol.TaskStateWorking && !sent {
				sent = true
				if _, err := c.CancelTask(c.t.Context(), &protocol.CancelTaskRequest{ID: id}); err != nil {
					c.t.Error(err)
				}
			}
		})
	if last := states[len(states)-1]; last != protocol.TaskStateCanceled {
		c.t.Errorf("the stream of a task that is cancelled ends with %s", last)
	}
}

// subscribesAgain leaves a stream after its first event, and subscribes again.
func (c goClient) subscribesAgain() {
	c.t.Helper()
	var id protocol.TaskID
	for event, err := range c.SendStreamingMessage(c.t.Context(), goRequest("test-resubscribe-message-id", "")) {
		if err != nil {
			c.t.Fatal(err)
		}
		id = event.TaskInfo().TaskID
		break
	}
	states := c.read(c.SubscribeToTask(c.t.Context(), &protocol.SubscribeToTaskRequest{ID: id}), nil)
	if last := states[len(states)-1]; last != protocol.TaskStateCompleted {
		c.t.Errorf("the second stream ends with %s", last)
	}
}

// pushReceiver gets push notifications.
type pushReceiver struct {
	address string
	got     chan pushNotification
}

type pushNotification struct {
	token string
	body  protocol.StreamResponse
}

func newPushReceiver(t *testing.T) pushReceiver {
	t.Helper()
	r := pushReceiver{got: make(chan pushNotification, 100)}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		n := pushNotification{token: req.Header.Get("X-A2A-Notification-Token")}
		if err := stdjson.NewDecoder(req.Body).Decode(&n.body); err != nil {
			t.Errorf("a push notification: %v", err)
		}
		r.got <- n
	}))
	t.Cleanup(s.Close)
	r.address = s.Listener.Addr().String()
	return r
}

// isTold names the receiver for a task, which is told how the task ends.
func (c goClient) isTold(r pushReceiver) {
	c.t.Helper()
	req := goRequest("tck-stream-001", "")
	req.Config = &protocol.SendMessageConfig{ReturnImmediately: true,
		PushConfig: &protocol.PushConfig{URL: "http://" + r.address + "/", Token: "from-the-client"}}
	got, err := c.SendMessage(c.t.Context(), req)
	if err != nil {
		c.t.Fatal(err)
	}
	id := got.(*protocol.Task).ID
	for late := time.After(time.Minute); ; {
		select {
		case n := <-r.got:
			if n.token != "from-the-client" || n.body.Event.TaskInfo().TaskID != id {
				c.t.Errorf("%+v", n)
			}
			if s, ok := n.body.Event.(*protocol.TaskStatusUpdateEvent); ok && s.Status.State.Terminal() {
				return
			}
		case <-late:
			c.t.Fatal("no push notification of the end within a minute")
		}
	}
}
