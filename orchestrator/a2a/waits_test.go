package a2a_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket/orchestrator/a2a"
)

// Requests that wait do not hold the memory of request bodies, which all clients of the server share.
func TestRequestsThatWaitHoldNoBodies(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		const waits = 20 // together more than the server holds
		for _, method := range []string{"SendMessage", "SendStreamingMessage"} {
			said := make(chan string, waits)
			for range waits {
				message := send("work").Message
				params := map[string]any{"message": message, "ignored": strings.Repeat("x", 1_000_000)}
				go func() { said <- f.rpc(t, f.client, method, params) }()
				held := f.lease(t)
				_, err := f.Renew(t.Context(), held) // it holds for its whole window
				must(t, err)
				defer func() {
					f.complete(t, held, `"done"`)
					if got := <-said; !strings.Contains(got, "TASK_STATE_COMPLETED") {
						t.Errorf("%s: %.300s", method, got)
					}
				}()
			}
		}
	})
}

// deadlineWriter records the last write deadline that was set.
type deadlineWriter struct {
	*httptest.ResponseRecorder
	deadline time.Time
}

func (w *deadlineWriter) SetWriteDeadline(at time.Time) error {
	w.deadline = at
	return nil
}

// The time in which a client has to take its answer begins when the answer is there, however long the client has
// waited for it.
func TestAnAnswerCanComeLate(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		said := &deadlineWriter{ResponseRecorder: httptest.NewRecorder()}
		body := `{"message":{"role":"ROLE_USER","messageId":"m","parts":[{"text":"work"}]}}`
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/agents/builder/a2a/message:send",
			strings.NewReader(body))
		req.Host = "localhost"
		req.Header = http.Header{"X-Api-Key": {f.client}, "Content-Type": {"application/json"}}
		answered := make(chan struct{})
		go func() {
			defer close(answered)
			f.server.ServeHTTP(said, req)
		}()
		held := f.lease(t)
		before := time.Now()
		f.complete(t, held, `"done"`)
		<-answered
		if said.Code != http.StatusOK || said.deadline.Before(before) {
			t.Errorf("%d %s, with the deadline %v", said.Code, said.Body, said.deadline)
		}
	})
}

// Each event of a stream repeats the id of its request, so that a long one is refused.
func TestTheIDOfARequestIsBounded(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for size, want := range map[int]string{1024: `"code":-32601`, 1025: `"code":-32600`} {
			id := strings.Repeat("x", size-2) // without its quotes
			body := `{"jsonrpc":"2.0","id":"` + id + `","method":"unknown"}`
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+"/agents/builder/a2a",
				strings.NewReader(body))
			must(t, err)
			req.Header = http.Header{"X-Api-Key": {f.client}, "Content-Type": {"application/json"}}
			res, err := f.http.Do(req)
			must(t, err)
			said, err := io.ReadAll(res.Body)
			must(t, err)
			must(t, res.Body.Close())
			if !strings.Contains(string(said), want) {
				t.Errorf("an id of %d bytes: %.200s", size, said)
			}
		}
	})
}

// A client with too many streams and waiting requests is refused before its message does anything.
func TestARefusedWaitSubmitsNothing(t *testing.T) {
	f := onMemory(t, func(c *a2a.Config) { c.StreamsPerKey = 1 })
	own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	events := follow(t, own.SendStreamingMessage(ctx, send("work")))
	task, _ := next(t, events).(*protocol.Task)
	tasks := func() int {
		list, err := own.ListTasks(t.Context(), &protocol.ListTasksRequest{})
		must(t, err)
		return len(list.Tasks)
	}
	_, err := own.SendMessage(t.Context(), send("more work"))
	if err == nil || !strings.Contains(err.Error(), "open streams and waiting requests") {
		t.Errorf("a request that waits beside a stream: %v", err)
	}
	if n := tasks(); n != 1 {
		t.Errorf("%d tasks after the refusal, want 1", n)
	}
	sendTo(t, own, atOnce(send("more work")))
	if n := tasks(); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
	held := f.lease(t)
	if held.TaskID != string(task.ID) {
		t.Fatalf("leased %s", held.TaskID)
	}
	f.complete(t, held, `"done"`)
	for range events { // the stream ends with its task
	}
}
