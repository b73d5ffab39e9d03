package a2a_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
)

// leaseToken acquires the next task of the pool builder, and returns the token of its agent.
func (f *fixture) leaseToken(t *testing.T) (token string, held picket.LeaseCredential) {
	t.Helper()
	leases, err := f.Acquire(t.Context(), operator,
		picket.AcquireRequest{AgentID: "a1", Role: "builder", WaitSeconds: new(10)})
	must(t, err)
	if len(leases) != 1 {
		t.Fatalf("%d leases", len(leases))
	}
	token = leases[0].LeaseToken.Reveal()
	held, err = rig.Sealer().OpenLeaseToken(token)
	must(t, err)
	return token, held
}

// peer is the official client of the pool builder for an agent inside a run.
func (f *fixture) peer(t *testing.T, token string) *a2aclient.Client {
	t.Helper()
	at := []*protocol.AgentInterface{protocol.NewAgentInterface(f.url+"/agents/builder/a2a",
		protocol.TransportProtocolJSONRPC)}
	c, err := a2aclient.NewFromEndpoints(t.Context(), at, a2aclient.WithJSONRPCTransport(f.http),
		a2aclient.WithCallInterceptors(&bearerInterceptor{token: token}))
	must(t, err)
	return c
}

type bearerInterceptor struct {
	a2aclient.PassthroughInterceptor
	token string
}

func (b *bearerInterceptor) Before(ctx context.Context, req *a2aclient.Request) (context.Context, any, error) {
	req.ServiceParams.Append("Authorization", "Bearer "+b.token)
	return ctx, nil, nil
}

// What an agent submits from inside its run is a subtask: its envelope is carved from that of the task, it is seen by
// no other run, and a superseded lease is refused.
func TestAPeerCallIsASubtask(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.Register(t.Context(), operator, picket.Registration{AgentID: "member", RoleID: "builder"})
		must(t, err)
		root, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: budget.Money(1_000_000_000)}})
		must(t, err)
		token, held := f.leaseToken(t)
		peer := f.peer(t, token)
		req := atOnce(send("help me"))
		task := sendTo(t, peer, req)
		if again := sendTo(t, peer, req); again.ID != task.ID {
			t.Errorf("the same message made %s and %s", task.ID, again.ID)
		}
		child, err := f.Task(t.Context(), string(task.ID))
		must(t, err)
		if child.Parent == nil || *child.Parent != root.TaskID || child.Role != "builder" ||
			child.BudgetEnvelope.USD != 500_000_000 || child.ReviewBy != picket.ReviewByNone {
			t.Errorf("child: %+v", child)
		}
		events := follow(t, peer.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: task.ID}))
		if first, ok := next(t, events).(*protocol.Task); !ok || first.ID != task.ID {
			t.Errorf("first: %+v", first)
		}
		childToken, childHeld := f.leaseToken(t)
		wantUpdate(t, events, protocol.TaskStateWorking)
		more := atOnce(send("and this"))
		more.Message.TaskID = task.ID
		sendTo(t, peer, more)
		read, err := f.ReadMessages(t.Context(), childHeld, "", picket.ReadMessages{}, 0)
		must(t, err)
		if len(read.Messages) != 1 || read.Messages[0].Body != "and this" {
			t.Errorf("messages: %+v", read.Messages)
		}
		// The run of the subtask sees neither itself nor its parent as a client does.
		for _, id := range []string{root.TaskID, string(task.ID)} {
			_, err = f.peer(t, childToken).GetTask(t.Context(), &protocol.GetTaskRequest{ID: protocol.TaskID(id)})
			wantErr(t, err, protocol.ErrTaskNotFound)
		}
		_, err = peer.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: task.ID})
		wantErr(t, err, protocol.ErrUnsupportedOperation)
		f.complete(t, childHeld, `"helped"`)
		if a, ok := next(t, events).(*protocol.TaskArtifactUpdateEvent); !ok || a.Artifact.Parts[0].Text() != "helped" {
			t.Errorf("artifact: %+v", a)
		}
		wantUpdate(t, events, protocol.TaskStateCompleted)

		// The next run of the task sees the subtask; the superseded one sees nothing, and a stream of it ends.
		open := sendTo(t, peer, atOnce(send("later")))
		events = follow(t, peer.SubscribeToTask(t.Context(), &protocol.SubscribeToTaskRequest{ID: open.ID}))
		next(t, events)
		_, err = f.Release(t.Context(), held, picket.Exit{Class: picket.ReleaseClasses[0]})
		must(t, err)
		if ev := next(t, events); ev != nil {
			t.Errorf("after the end of the run: %+v", ev)
		}
		for _, path := range []string{"/a2a/tasks", "/a2a/health", "/a2a/extendedAgentCard",
			"/.well-known/agent-card.json", "/instances/member/a2a/health"} {
			res, body := f.get(t, "/agents/builder"+path, "", http.Header{"Authorization": {"Bearer " + token}})
			if res.StatusCode != http.StatusPreconditionFailed {
				t.Errorf("GET %s with a superseded lease: %d %s", path, res.StatusCode, body)
			}
		}
		for _, err := range []error{
			second(peer.GetTask(t.Context(), &protocol.GetTaskRequest{ID: task.ID})),
			second(peer.SendMessage(t.Context(), atOnce(send("too late")))),
		} {
			if err == nil || !errors.Is(err, protocol.ErrServerError) {
				t.Errorf("with a superseded lease: %v", err)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }

// Agents that call each other in a ring come to an end: at the depth limit, and together within the envelope of the
// root.
func TestARingOfPeersComesToAnEnd(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1_000_000, USD: budget.Money(1_000_000_000)}})
		must(t, err)
		var depth int
		var last error
		for last == nil {
			token, _ := f.leaseToken(t)
			if _, last = f.peer(t, token).SendMessage(t.Context(), atOnce(send("your turn"))); last == nil {
				depth++
			}
		}
		if depth != picket.MaxDepth || !errors.Is(last, protocol.ErrUnsupportedOperation) ||
			!strings.Contains(last.Error(), "deep") {
			t.Errorf("depth %d, then %v", depth, last)
		}
		var granted budget.Money
		for id := root.TaskID; ; {
			task, err := f.Task(t.Context(), id)
			must(t, err)
			granted += task.Available.USD
			if len(task.Children) == 0 {
				break
			}
			id = task.Children[0]
		}
		if granted != 1_000_000_000 {
			t.Errorf("the ring has %d nano-dollars, its root had 1,000,000,000", granted)
		}
	})
}

// Ten agents give each other work and all spend what they can get, several requests at a time. Together they spend no
// more than the envelope of the root.
func TestTenAgentsSpendWithinTheRoot(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		root, price := budget.Money(1e9), budget.Money(3e8)
		_, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1_000_000, USD: root}})
		must(t, err)
		var spent atomic.Int64
		work := func(token string, held picket.LeaseCredential) {
			var all sync.WaitGroup
			for range 2 {
				all.Go(func() { // refused when nothing is left
					_, _ = f.peer(t, token).SendMessage(t.Context(), atOnce(send("your turn")))
				})
			}
			for range 3 {
				all.Go(func() {
					r, err := f.Reserve(t.Context(), held, picket.CallRequest{
						CallID:       "r" + rand.Text(),
						Nonce:        rand.Text(),
						Tool:         "http_request",
						Reserve:      budget.Envelope{USD: price},
						PriceVersion: "v1",
						Effects:      picket.EffectsNone,
						TimeoutMs:    60_000,
					})
					if err != nil {
						return
					}
					if _, err := f.Settle(t.Context(), picket.Settlement{
						CallID:  r.CallID,
						TaskID:  r.TaskID,
						Nonce:   r.Nonce,
						Outcome: picket.CallDone,
						Cost:    budget.Envelope{USD: price},
					}); err != nil {
						t.Error(err)
					}
					spent.Add(int64(price))
				})
			}
			all.Wait()
		}
		for turn := range 30 {
			leases, err := f.Acquire(t.Context(), operator, picket.AcquireRequest{Role: "builder",
				AgentID: fmt.Sprint("agent-", turn%10)})
			must(t, err)
			if len(leases) == 0 {
				break
			}
			token := leases[0].LeaseToken.Reveal()
			held, err := rig.Sealer().OpenLeaseToken(token)
			must(t, err)
			work(token, held)
		}
		if got := spent.Load(); got == 0 || got > int64(root) {
			t.Errorf("ten agents spent %d nano-dollars, their root had %d", got, root)
		}
	})
}

// A peer waits in the queue of a pool like any client, and a task without money gets no subtask. What was made before
// is answered again all the same.
func TestAPeerIsBoundedLikeAClient(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		_, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder",
			BudgetEnvelope: &budget.Envelope{Tokens: 1000, USD: budget.Money(1)}})
		must(t, err)
		token, _ := f.leaseToken(t)
		tester := func(messageID string) string {
			return f.rpcAt(t, "/agents/tester", token, "SendMessage",
				map[string]any{"configuration": map[string]any{"returnImmediately": true},
					"message": map[string]any{"messageId": messageID, "role": "ROLE_USER",
						"parts": []any{map[string]any{"text": "check this"}}}})
		}
		made := tester("m1")
		if !strings.Contains(made, "TASK_STATE_SUBMITTED") {
			t.Fatalf("the first message: %s", made)
		}
		if refused := tester("m2"); !strings.Contains(refused, "QUOTA_EXCEEDED") {
			t.Errorf("a message to a full queue: %s", refused)
		}
		_, err = f.peer(t, token).SendMessage(t.Context(), atOnce(send("and this")))
		if err == nil || !strings.Contains(err.Error(), "too little left") {
			t.Errorf("a message of a task without money: %v", err)
		}
		if again := tester("m1"); !strings.Contains(again, "TASK_STATE_SUBMITTED") {
			t.Errorf("the first message again: %s", again)
		}
	})
}

// The credential of an agent session is refused, and so is a forged lease token.
func TestOtherCredentialsOpenNoEndpoint(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		worker := f.newKey(picket.KeyRequest{Name: "worker", Scopes: []picket.Scope{picket.ScopeAgent}})
		for token, want := range map[string]int{
			picket.SessionCapabilityPrefix + "default.x": 403,
			picket.LeaseTokenPrefix + "x":                401,
			"pkk_default_" + strings.Repeat("a", 43):     401,
			"":                                           401,
			worker:                                       403,
		} {
			for _, path := range []string{"/agents/builder/a2a/tasks", "/agents/builder/.well-known/agent-card.json",
				"/a2a/tasks"} {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, nil)
				must(t, err)
				req.Header.Set("Authorization", "Bearer "+token)
				res, err := f.http.Do(req)
				must(t, err)
				must(t, res.Body.Close())
				if res.StatusCode != want {
					t.Errorf("%.20s at %s: %d, want %d", token, path, res.StatusCode, want)
				}
			}
		}
	})
}
