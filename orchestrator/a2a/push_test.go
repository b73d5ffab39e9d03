package a2a_test

import (
	"context"
	stdjson "encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/reaper/push"
	"github.com/picket-dev/picket/reaper/webhooks"
)

// receiver is a server on loopback that push notifications are sent to. answer decides about each request, by its
// number from 1; nil takes all.
type receiver struct {
	*httptest.Server
	answer func(n int, w http.ResponseWriter, r *http.Request)

	mu     sync.Mutex
	got    []notification
	update chan struct{} // has an entry after a request
}

type notification struct {
	id     string
	header http.Header
	body   []byte
	event  protocol.Event
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	r := &receiver{update: make(chan struct{}, 1000)}
	r.Server = httptest.NewServer(http.HandlerFunc(r.serve))
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) serve(w http.ResponseWriter, req *http.Request) {
	body, _ := io.ReadAll(req.Body)
	var told protocol.StreamResponse
	_ = stdjson.Unmarshal(body, &told)
	r.mu.Lock()
	r.got = append(r.got, notification{id: req.Header.Get(webhooks.HeaderID), header: req.Header.Clone(), body: body,
		event: told.Event})
	n := len(r.got)
	r.mu.Unlock()
	r.update <- struct{}{}
	if r.answer != nil {
		r.answer(n, w, req)
	}
}

// wait waits until n requests have come, and returns them.
func (r *receiver) wait(t *testing.T, n int) []notification {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		r.mu.Lock()
		got := slices.Clone(r.got)
		r.mu.Unlock()
		if len(got) >= n {
			return got
		}
		select {
		case <-r.update:
		case <-late:
			t.Fatalf("%d requests within 20 s, want %d", len(got), n)
		}
	}
}

// host is the address of the receiver, as an allow-list has it.
func (r *receiver) host() string {
	u, _ := url.Parse(r.URL)
	return u.Host
}

// said are the events of notifications in words.
func said(list []notification) (words []string) {
	for _, n := range list {
		switch ev := n.event.(type) {
		case *protocol.TaskStatusUpdateEvent:
			words = append(words, strings.TrimPrefix(string(ev.Status.State), "TASK_STATE_"))
		case *protocol.TaskArtifactUpdateEvent:
			words = append(words, "artifact "+ev.Artifact.Parts[0].Text())
		default:
			words = append(words, "nothing")
		}
	}
	return words
}

// withPush lets clients name the receivers that are given.
func withPush(t *testing.T, receivers ...*receiver) (*webhooks.Sender, func(*a2a.Config)) {
	t.Helper()
	cfg := webhooks.SenderConfig{}
	for _, r := range receivers {
		cfg.Allow = append(cfg.Allow, r.host())
	}
	sender, err := webhooks.NewSender(cfg)
	must(t, err)
	t.Cleanup(sender.Close)
	return sender, func(c *a2a.Config) { c.CheckPush = sender.CheckHTTPS }
}

// deliver runs a deliverer until stop is called.
func (f *fixture) deliver(sender push.Poster, change ...func(*push.Config)) (stop func()) {
	f.t.Helper()
	queue := push.Queue(&steppedQueue{f.Engine, f.pushStepped})
	cfg := push.Config{Queues: map[string]push.Queue{"default": queue}, Sender: sender, Render: a2a.PushBody,
		ContentType: a2a.PushContentType, Log: slog.New(slog.DiscardHandler),
		Jitter: func(most time.Duration) time.Duration { return 0 }}
	for _, c := range change {
		c(&cfg)
	}
	d, err := push.New(cfg)
	must(f.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		must(f.t, <-ended)
	})
	f.t.Cleanup(stop)
	return stop
}

// steppedQueue tells after each step of a deliverer that it was taken.
type steppedQueue struct {
	*orchestrator.Engine
	stepped chan struct{}
}

func (q *steppedQueue) AdvancePush(ctx context.Context, s picket.PushStep) (picket.PushState, error) {
	state, err := q.Engine.AdvancePush(ctx, s)
	select {
	case q.stepped <- struct{}{}:
	default: // one entry is enough: who reads it looks at all configurations
	}
	return state, err
}

// pushOnBothStores runs a test with a receiver and a running deliverer against both stores.
func pushOnBothStores(t *testing.T, test func(t *testing.T, f *fixture, r *receiver)) {
	t.Helper()
	run := func(t *testing.T, s rig.Store) {
		r := newReceiver(t)
		sender, on := withPush(t, r)
		f := newFixture(t, s, on)
		f.deliver(sender)
		test(t, f, r)
	}
	t.Run("Memory", func(t *testing.T) {
		store, stop := rig.Memory()
		t.Cleanup(stop)
		run(t, store)
	})
	t.Run("Real", func(t *testing.T) { run(t, rig.Real(t)) })
}

// A client is told each change that it sees, in order, and the configuration ends with the task.
func TestPushNotificationsTellEachChange(t *testing.T) {
	pushOnBothStores(t, func(t *testing.T, f *fixture, r *receiver) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			before := len(r.wait(t, 0))
			req := atOnce(send("build"))
			req.Config.PushConfig = &protocol.PushConfig{URL: r.URL + "/told?a=b", Token: "tok", ID: "c1",
				Auth: &protocol.PushAuthInfo{Scheme: "Bearer", Credentials: "cred"}}
			answer, err := c.SendMessage(t.Context(), req)
			task := taskOf(t, answer, err)
			held := f.lease(t)
			_, err = f.Emit(t.Context(), held, "", picket.ArtifactChunk{Parts: []picket.Part{{Text: new("half")}}})
			must(t, err)
			_, err = f.RequestHelp(t.Context(), held, picket.HelpRequest{Question: "Which?"})
			must(t, err)
			again := send("this one")
			again.Message.TaskID = task.ID
			_, err = c.SendMessage(t.Context(), atOnce(again))
			must(t, err)
			f.complete(t, f.lease(t), `"whole"`)
			got := r.wait(t, before+7)[before:]
			want := []string{"WORKING", "artifact half", "INPUT_REQUIRED", "SUBMITTED", "WORKING", "artifact whole",
				"COMPLETED"}
			if s := said(got); !slices.Equal(s, want) {
				t.Errorf("told %q, want %q", s, want)
			}
			for i, n := range got {
				checkNotification(t, n, task)
				if i > 0 && n.id == got[i-1].id {
					t.Errorf("two notifications have the id %s", n.id)
				}
			}
			f.awaitNoPush(t, c, task.ID)
		})
	})
}

// checkNotification expects the headers that the configuration of a task asks for.
func checkNotification(t *testing.T, n notification, task *protocol.Task) {
	t.Helper()
	want := map[string]string{"Content-Type": "application/a2a+json", "X-A2A-Notification-Token": "tok",
		"Authorization": "Bearer cred"}
	for name, value := range want {
		if got := n.header.Get(name); got != value {
			t.Errorf("%s is %q, want %q", name, got, value)
		}
	}
	seconds, err := strconv.ParseInt(n.header.Get(webhooks.HeaderTimestamp), 10, 64)
	must(t, err)
	signature, err := webhooks.Sign(webhooks.TokenSecret("tok"), n.id, time.Unix(seconds, 0), n.body)
	must(t, err)
	if got := n.header.Get(webhooks.HeaderSignature); got != signature {
		t.Errorf("the signature is %q, want %q", got, signature)
	}
	if info := n.event.TaskInfo(); info.TaskID != task.ID || info.ContextID != task.ContextID {
		t.Errorf("the event is about %+v", info)
	}
}

// awaitNoPush waits until a task has no push configuration. It looks after each step of the deliverers.
func (f *fixture) awaitNoPush(t *testing.T, c *a2aclient.Client, task protocol.TaskID) {
	t.Helper()
	for late := time.After(20 * time.Second); ; {
		list, err := c.ListTaskPushConfigs(t.Context(), &protocol.ListTaskPushConfigRequest{TaskID: task})
		must(t, err)
		if len(list) == 0 {
			return
		}
		select {
		case <-f.pushStepped:
		case <-late:
			t.Error("the task keeps its push configuration")
			return
		}
	}
}

// Another client finds no task to configure, the sixth configuration is refused, and a message that is sent again sets
// its configuration again. A task that has ended takes a configuration, which is told nothing.
func TestWhoConfiguresPushNotifications(t *testing.T) {
	pushOnBothStores(t, func(t *testing.T, f *fixture, r *receiver) {
		f.onBothBindings(t, func(t *testing.T, c *a2aclient.Client) {
			req := atOnce(send("build"))
			req.Config.PushConfig = &protocol.PushConfig{URL: r.URL, ID: "c0"}
			answer, err := c.SendMessage(t.Context(), req)
			task := taskOf(t, answer, err)
			of := protocol.PushConfig{TaskID: task.ID, ID: "c0", URL: r.URL}
			stranger := f.newClient(t, "builder", f.other, protocol.TransportProtocolJSONRPC)
			_, err = stranger.CreateTaskPushConfig(t.Context(), &of)
			wantErr(t, err, protocol.ErrTaskNotFound)
			_, err = stranger.GetTaskPushConfig(t.Context(), &protocol.GetTaskPushConfigRequest{TaskID: of.TaskID,
				ID: of.ID})
			wantErr(t, err, protocol.ErrTaskNotFound)
			_, err = stranger.ListTaskPushConfigs(t.Context(), &protocol.ListTaskPushConfigRequest{TaskID: of.TaskID})
			wantErr(t, err, protocol.ErrTaskNotFound)
			err = stranger.DeleteTaskPushConfig(t.Context(), &protocol.DeleteTaskPushConfigRequest{TaskID: of.TaskID,
				ID: of.ID})
			wantErr(t, err, protocol.ErrTaskNotFound)
			for i := range picket.MaxTaskPushes {
				of.ID = "c" + strconv.Itoa(i+1)
				_, err = c.CreateTaskPushConfig(t.Context(), &of)
				if (err != nil) != (i == picket.MaxTaskPushes-1) {
					t.Errorf("configuration %d: %v", i+2, err)
				}
			}
			must(t, c.DeleteTaskPushConfig(t.Context(), &protocol.DeleteTaskPushConfigRequest{TaskID: task.ID,
				ID: "c0"}))
			again, err := c.SendMessage(t.Context(), req)
			if same := taskOf(t, again, err); same.ID != task.ID {
				t.Error("the message became another task")
			}
			got, err := c.GetTaskPushConfig(t.Context(), &protocol.GetTaskPushConfigRequest{TaskID: task.ID, ID: "c0"})
			must(t, err)
			if got.URL != r.URL || got.Token != "" {
				t.Errorf("%+v", got)
			}
			_, err = c.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: task.ID})
			must(t, err)
			f.awaitNoPush(t, c, task.ID)
			for range 2 {
				made, err := c.CreateTaskPushConfig(t.Context(), &of)
				must(t, err)
				if made.ID != of.ID {
					t.Errorf("%+v", made)
				}
			}
			must(t, c.DeleteTaskPushConfig(t.Context(), &protocol.DeleteTaskPushConfigRequest{TaskID: task.ID,
				ID: of.ID}))
			f.awaitNoPush(t, c, task.ID)
		})
	})
}

// An agent inside a run has no push notifications, and a server without them refuses each operation.
func TestWhoHasNoPushNotifications(t *testing.T) {
	r := newReceiver(t)
	_, on := withPush(t, r)
	f := newFixture(t, rig.Real(t), on)
	c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	answer, err := c.SendMessage(t.Context(), atOnce(send("build")))
	taskOf(t, answer, err)
	token, _ := f.leaseToken(t)
	without := newFixture(t, rig.Real(t))
	for what, c := range map[string]*a2aclient.Client{"peer": f.peer(t, token),
		"off": without.newClient(t, "builder", without.client, protocol.TransportProtocolHTTPJSON)} {
		answer, err := c.SendMessage(t.Context(), atOnce(send(what)))
		of := protocol.PushConfig{TaskID: taskOf(t, answer, err).ID, ID: "c0", URL: r.URL}
		_, err = c.CreateTaskPushConfig(t.Context(), &of)
		wantErr(t, err, protocol.ErrPushNotificationNotSupported)
		_, err = c.GetTaskPushConfig(t.Context(), &protocol.GetTaskPushConfigRequest{TaskID: of.TaskID, ID: of.ID})
		wantErr(t, err, protocol.ErrPushNotificationNotSupported)
		_, err = c.ListTaskPushConfigs(t.Context(), &protocol.ListTaskPushConfigRequest{TaskID: of.TaskID})
		wantErr(t, err, protocol.ErrPushNotificationNotSupported)
		req := atOnce(send(what))
		req.Config.PushConfig = &of
		_, err = c.SendMessage(t.Context(), req)
		wantErr(t, err, protocol.ErrPushNotificationNotSupported)
	}
}
