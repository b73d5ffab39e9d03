package a2a_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/a2a"
	"github.com/picket-dev/picket/reaper/push"
)

// pushTask submits a task of the client with a push configuration, and returns it.
func (f *fixture) pushTask(t *testing.T, c protocol.PushConfig) *protocol.Task {
	t.Helper()
	client := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	req := atOnce(send("build"))
	req.Config.PushConfig = &c
	answer, err := client.SendMessage(t.Context(), req)
	return taskOf(t, answer, err)
}

// syncBuffer is a log that goroutines write.
type syncBuffer struct {
	mu    sync.Mutex
	text  bytes.Buffer
	wrote chan struct{} // has an entry after a line
}

func newLog() *syncBuffer { return &syncBuffer{wrote: make(chan struct{}, 1000)} }

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.wrote <- struct{}{}:
	default:
	}
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// tickAlong lets store time go on, as a reaper does.
func (f *fixture) tickAlong(t *testing.T) {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var ticking sync.WaitGroup
	ticking.Go(func() {
		for every := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-ctx.Done():
				every.Stop()
				return
			case <-every.C:
				_ = f.Tick(ctx)
			}
		}
	})
	t.Cleanup(func() { stop(); ticking.Wait() })
}

// A receiver that fails, ends the connection, or redirects gets the update again, under the same id, and then what
// follows in order. A redirect is not followed. No log line and no event has a secret.
func TestAFailingReceiverGetsTheUpdateAgain(t *testing.T) {
	log := newLog()
	r, elsewhere := newReceiver(t), newReceiver(t)
	r.answer = func(n int, w http.ResponseWriter, req *http.Request) {
		switch n {
		case 1:
			w.WriteHeader(http.StatusInternalServerError)
		case 2:
			http.Redirect(w, req, elsewhere.URL, http.StatusTemporaryRedirect)
		case 3:
			panic(http.ErrAbortHandler)
		}
	}
	sender, on := withPush(t, r, elsewhere)
	f := newFixture(t, rig.Real(t), on)
	f.tickAlong(t)
	f.deliver(sender, func(c *push.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	f.pushTask(t, protocol.PushConfig{URL: r.URL + "/path-secret", Token: "token-secret",
		Auth: &protocol.PushAuthInfo{Scheme: "Bearer", Credentials: "cred-secret"}})
	f.complete(t, f.lease(t), `"whole"`)
	got := r.wait(t, 6)
	if s, want := said(got), []string{"WORKING", "WORKING", "WORKING", "WORKING", "artifact whole",
		"COMPLETED"}; !slices.Equal(s, want) {
		t.Errorf("told %q, want %q", s, want)
	}
	for _, n := range got[1:4] {
		if n.id != got[0].id {
			t.Errorf("the repeat has the id %s, and the first one %s", n.id, got[0].id)
		}
	}
	if len(elsewhere.wait(t, 0)) > 0 {
		t.Error("a redirect was followed")
	}
	page, err := f.Events(t.Context(), picket.EventQuery{Limit: 1000})
	must(t, err)
	for _, ev := range page.Events {
		log.Write(ev.Data)
	}
	if strings.Contains(log.String(), "-secret") || !strings.Contains(log.String(), "will be sent again") {
		t.Errorf("the log is %s", log)
	}
}

// A client whose receiver hangs for all of its tasks leaves turns to other clients.
func TestAClientLeavesTurnsToOthers(t *testing.T) {
	free := make(chan struct{})
	hangs, r := newReceiver(t), newReceiver(t)
	hangs.answer = func(n int, w http.ResponseWriter, req *http.Request) { <-free }
	sender, on := withPush(t, r, hangs)
	f := newFixture(t, rig.Real(t), on)
	const turns = 8
	for range 2 * turns {
		f.pushTask(t, protocol.PushConfig{URL: hangs.URL})
		f.lease(t)
	}
	stop := f.deliver(sender, func(c *push.Config) { c.Grace, c.Turns = time.Millisecond, turns })
	hangs.wait(t, 2)
	other := f.newClient(t, "builder", f.other, protocol.TransportProtocolJSONRPC)
	req := atOnce(send("build"))
	req.Config.PushConfig = &protocol.PushConfig{URL: r.URL}
	_, err := other.SendMessage(t.Context(), req)
	must(t, err)
	f.complete(t, f.lease(t), `"whole"`)
	r.wait(t, 3)
	stop()
	close(free)
	if n := len(hangs.wait(t, 2)); n >= turns {
		t.Errorf("%d requests of one client were under way, with %d turns", n, turns)
	}
}

// A receiver that hangs does not hold up the configurations of others.
func TestAHangingReceiverHoldsUpNobody(t *testing.T) {
	free := make(chan struct{})
	hangs, r := newReceiver(t), newReceiver(t)
	hangs.answer = func(n int, w http.ResponseWriter, req *http.Request) { <-free }
	sender, on := withPush(t, r, hangs)
	f := newFixture(t, rig.Real(t), on)
	stop := f.deliver(sender, func(c *push.Config) { c.Grace = time.Millisecond })
	f.pushTask(t, protocol.PushConfig{URL: hangs.URL})
	f.lease(t)
	hangs.wait(t, 1)
	f.pushTask(t, protocol.PushConfig{URL: r.URL})
	f.complete(t, f.lease(t), `"whole"`)
	r.wait(t, 3)
	stop() // the request is cut off, and its claim given back
	close(free)
	turn, err := f.TakePushTurn(t.Context(), "next", 0)
	must(t, err)
	if turn.Cursor != 0 || turn.Failures != 0 || len(turn.Updates) != 1 {
		t.Errorf("the claim is not given back: %+v", turn)
	}
}

// A name that leads inside when it is dialled is not reached, also if it led elsewhere when it was checked.
func TestAPushNameThatLeadsInsideIsNotReached(t *testing.T) {
	log := newLog()
	r := newReceiver(t)
	sender, _ := withPush(t)
	f := newFixture(t, rig.Real(t), func(c *a2a.Config) { // the name led elsewhere then
		c.CheckPush = func(context.Context, picket.Secret) error { return nil }
	})
	f.deliver(sender, func(c *push.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	_, port, _ := strings.Cut(r.host(), ":")
	f.pushTask(t, protocol.PushConfig{URL: "https://localhost:" + port + "/"})
	f.lease(t)
	for late := time.After(20 * time.Second); !strings.Contains(log.String(), "leads inside"); {
		select {
		case <-log.wrote:
		case <-late:
			t.Fatalf("the log is %s", log)
		}
	}
	if len(r.wait(t, 0)) > 0 {
		t.Error("it was reached")
	}
}

// The address of a configuration is https, or stands on the list of the server.
func TestPushAddressesAreChecked(t *testing.T) {
	r := newReceiver(t)
	_, on := withPush(t, r)
	f := newFixture(t, rig.Real(t), on)
	c := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	answer, err := c.SendMessage(t.Context(), atOnce(send("build")))
	task := taskOf(t, answer, err)
	for _, url := range []string{"http://hooks.test/", "http://127.0.0.1:1/", "https://127.0.0.1/", "https://[::1]/",
		"https://169.254.169.254/latest", "https://localhost/", "https://a.localhost./", "https://10.0.0.1/",
		"file:///etc/passwd", "https://u:p@hooks.test/", "", "https://hooks.test/\r\nX: y",
		"https://[::ffff:127.0.0.1]/"} {
		_, err := c.CreateTaskPushConfig(t.Context(), &protocol.PushConfig{TaskID: task.ID, URL: url})
		wantErr(t, err, protocol.ErrInvalidParams)
		req := atOnce(send("no"))
		req.Config.PushConfig = &protocol.PushConfig{URL: url}
		_, err = c.SendMessage(t.Context(), req)
		wantErr(t, err, protocol.ErrInvalidParams)
	}
	for _, url := range []string{"https://hooks.test/", r.URL} {
		_, err := c.CreateTaskPushConfig(t.Context(), &protocol.PushConfig{TaskID: task.ID, URL: url})
		must(t, err)
	}
	tasks, err := c.ListTasks(t.Context(), &protocol.ListTasksRequest{})
	must(t, err)
	if len(tasks.Tasks) != 1 {
		t.Errorf("%d tasks: one was made with a refused configuration", len(tasks.Tasks))
	}
}

// lostSteps loses the replies of the engine, or the steps, of a deliverer.
type lostSteps struct {
	*orchestrator.Engine
	lose func(s picket.PushStep) bool // the step is not written, as if the process had been killed before
}

func (l *lostSteps) AdvancePush(ctx context.Context, s picket.PushStep) (picket.PushState, error) {
	if l.lose(s) {
		return "", errors.New("killed")
	}
	return l.Engine.AdvancePush(ctx, s)
}

// A deliverer that is killed between a request and its mark leaves the update to the next one, which sends it again
// under the same id, after the claim has ended.
func TestAKilledDelivererLeavesTheUpdateToTheNext(t *testing.T) {
	r := newReceiver(t)
	sender, on := withPush(t, r)
	s := rig.Real(t)
	f := newFixture(t, s, on)
	killed := &lostSteps{f.Engine, func(picket.PushStep) bool { return true }}
	stop := f.deliver(sender, func(c *push.Config) { c.Queues = map[string]push.Queue{"default": killed} })
	f.pushTask(t, protocol.PushConfig{URL: r.URL})
	held := f.lease(t)
	r.wait(t, 1)
	stop()
	f.complete(t, held, `"whole"`)
	turn, err := f.TakePushTurn(t.Context(), "other", 0)
	must(t, err)
	if turn.ID != "" {
		t.Error("the claim of the killed deliverer is over at once")
	}
	raw := redis.NewUniversalClient(&s.Redis)
	defer raw.Close()
	must(t, raw.HIncrBy(t.Context(), "pk:{default}:meta", "now", picket.PushTurnTTL.Milliseconds()+1000).Err())
	f.deliver(sender)
	got := r.wait(t, 4)
	if s, want := said(got), []string{"WORKING", "WORKING", "artifact whole", "COMPLETED"}; !slices.Equal(s, want) {
		t.Errorf("told %q, want %q", s, want)
	}
	if got[0].id != got[1].id || got[1].id == got[2].id {
		t.Errorf("the ids are %s, %s and %s", got[0].id, got[1].id, got[2].id)
	}
}

// A configuration that is deleted gets nothing more, and one that is deleted during its request ends there.
func TestADeletedPushConfigurationGetsNothing(t *testing.T) {
	r := newReceiver(t)
	sender, on := withPush(t, r)
	f := newFixture(t, rig.Real(t), on)
	c := f.newClient(t, "builder", f.client, protocol.TransportProtocolHTTPJSON)
	var task *protocol.Task
	made := make(chan struct{})
	r.answer = func(n int, w http.ResponseWriter, req *http.Request) {
		<-made
		must(t, c.DeleteTaskPushConfig(context.Background(), &protocol.DeleteTaskPushConfigRequest{TaskID: task.ID,
			ID: "c1"}))
	}
	task = f.pushTask(t, protocol.PushConfig{URL: r.URL, ID: "c1"})
	close(made)
	stop := f.deliver(sender)
	held := f.lease(t)
	r.wait(t, 1)
	f.complete(t, held, `"whole"`)
	stop()
	if got := said(r.wait(t, 1)); !slices.Equal(got, []string{"WORKING"}) {
		t.Errorf("told %q", got)
	}
	f.awaitNoPush(t, c, task.ID)
}

// Two deliverers on one store send each update once, in order.
func TestTwoDeliverersSendEachUpdateOnce(t *testing.T) {
	r := newReceiver(t)
	sender, on := withPush(t, r)
	f := newFixture(t, rig.Real(t), on)
	f.deliver(sender)
	f.deliver(sender)
	const tasks = 10
	for range tasks {
		f.pushTask(t, protocol.PushConfig{URL: r.URL})
		f.complete(t, f.lease(t), `"whole"`)
	}
	told := map[protocol.TaskID][]notification{}
	for _, n := range r.wait(t, 3*tasks) {
		id := n.event.TaskInfo().TaskID
		told[id] = append(told[id], n)
	}
	for id, list := range told {
		if s, want := said(list), []string{"WORKING", "artifact whole", "COMPLETED"}; !slices.Equal(s, want) {
			t.Errorf("%s: told %q, want %q", id, s, want)
		}
	}
}
