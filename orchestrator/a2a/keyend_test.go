package a2a_test

import (
	"testing"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// The streams of a client end with its key: when it is revoked, and soon after it has expired. The task goes on.
func TestStreamsEndWithTheKey(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		for name, end := range map[string]func(id string){
			"revoked": func(id string) {
				_, err := f.RevokeKey(t.Context(), operator, id)
				must(t, err)
			},
			"expired": func(string) {},
		} {
			t.Run(name, func(t *testing.T) {
				req := picket.KeyRequest{Name: name, Scopes: []picket.Scope{picket.ScopeClient},
					Client: &picket.ClientLimits{Roles: []string{"builder"}}}
				if name == "expired" {
					req.ExpiresAt = picket.InstantOf(time.Now().Add(3 * time.Second))
				}
				key, err := f.CreateKey(t.Context(), operator, req)
				must(t, err)
				c := f.newClient(t, "builder", key.Key.Reveal(), protocol.TransportProtocolJSONRPC)
				events := follow(t, c.SendStreamingMessage(t.Context(), send("work")))
				first, ok := next(t, events).(*protocol.Task)
				if !ok {
					t.Fatal("the stream begins without the task")
				}
				end(key.KeyID)
				if ev := next(t, events); ev != nil {
					t.Errorf("after the end of the key: %+v", ev)
				}
				task, err := f.Task(t.Context(), string(first.ID))
				must(t, err)
				if task.State != picket.TaskQueued {
					t.Errorf("the task is %s", task.State)
				}
			})
		}
	})
}
