package a2a_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
)

// tellAgent posts a message of RFC-001 below the pool builder, and wants a status.
func (f *fixture) tellAgent(t *testing.T, key, at, body string, want int, headers ...string) string {
	t.Helper()
	status, _, said := f.ask(key, http.MethodPost, at+"/a2a/messages", body, headers...)
	if status != want {
		t.Errorf("POST %s/a2a/messages %.200s: %d %s, want %d", at, body, status, said, want)
	}
	return said
}

// heldBy opens the lease of the next task that a registered agent gets.
func (f *fixture) heldBy(t *testing.T, agent string) picket.LeaseCredential {
	t.Helper()
	leases := f.leaseAs(t, agent)
	if len(leases) != 1 {
		t.Fatalf("%s got %d leases", agent, len(leases))
	}
	held, err := rig.Sealer().OpenLeaseToken(leases[0].LeaseToken.Reveal())
	must(t, err)
	return held
}

// A message to an agent reaches it at the task of the client that it runs, once however often it is sent, and the
// client sees it in the history of that task.
func TestAMessageToAnAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.register(t, "one", "builder")
		const hint = `{"messageId":"m1","toAgentId":"one","type":"hint","payload":"be quick"}`
		if said := f.tellAgent(t, f.client, "", hint, 409); !strings.Contains(said, "none of your tasks") {
			t.Errorf("to an idle agent: %s", said)
		}
		task := sendTo(t, f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC), atOnce(send("work")))
		held := f.heldBy(t, "one")
		first := f.tellAgent(t, f.client, "", hint, 202)
		f.tellAgent(t, f.client, "/instances/one", `{"type":"data","payload":{"n":12345678901234567890}}`, 202)
		again := func() {
			t.Helper()
			if said := f.tellAgent(t, f.client, "", hint, 202); said != first {
				t.Errorf("the repeated message got %s, the first %s", said, first)
			}
			if said := f.tellAgent(t, f.client, "/instances/one", hint, 202); said != first {
				t.Errorf("the repeated message got %s, the first %s", said, first)
			}
		}
		again()
		f.tellAgent(t, f.client, "", strings.Replace(hint, "quick", "slow", 1), 409)
		read, err := f.ReadMessages(t.Context(), held, "", picket.ReadMessages{}, 0)
		must(t, err)
		if len(read.Messages) != 2 || read.Messages[0].Body != "be quick" || read.Messages[0].Type != "hint" ||
			read.Messages[0].From.Kind != picket.SenderClient || read.Messages[0].To != string(task.ID) ||
			string(read.Messages[1].Data) != `{"n":12345678901234567890}` {
			t.Errorf("read %+v", read.Messages)
		}
		reply, err := f.SendMessage(t.Context(), held, "", picket.AgentMessage{
			MessageRequest: picket.MessageRequest{Body: "I am"}})
		must(t, err)
		f.tellAgent(t, f.client, "", `{"toAgentId":"one","type":"thanks","payload":"fine",`+
			`"replyTo":"`+reply.MessageID+`"}`, 202)
		shown := f.rpc(t, f.client, "GetTask", map[string]any{"id": task.ID})
		for _, want := range []string{"be quick", "12345678901234567890", "I am", "fine"} {
			if !strings.Contains(shown, want) {
				t.Errorf("the history lacks %s: %s", want, shown)
			}
		}
		// Two tasks of the client leave open which one is meant, and after their ends there is none.
		f.submitted(t)
		second := f.heldBy(t, "one")
		again()
		if said := f.tellAgent(t, f.client, "", strings.Replace(hint, "m1", "m2", 1), 409); !strings.Contains(said,
			"more than one") {
			t.Errorf("with two tasks: %s", said)
		}
		f.complete(t, held, `"done"`)
		f.complete(t, second, `"done"`)
		again()
		f.tellAgent(t, f.client, "", strings.Replace(hint, "m1", "m2", 1), 409)
		f.deregister(t, "one")
		again()
		f.tellAgent(t, f.client, "/instances/one", strings.Replace(hint, "m1", "m2", 1), 410)
	})
}

// A client reaches no agent through the task of another client, and learns nothing of it. An operator writes to the
// inbox of the agent itself.
func TestWhoReachesAnAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.register(t, "one", "builder")
		f.register(t, "elsewhere", "tester")
		f.register(t, "unlisted", "")
		f.submitted(t)
		held := f.heldBy(t, "one")
		const hint = `{"messageId":"m1","toAgentId":"one","type":"hint","payload":"psst"}`
		if said := f.tellAgent(t, f.other, "", hint, 409); strings.Contains(said, held.TaskID) {
			t.Errorf("another client gets %s", said)
		}
		for to, want := range map[string]int{"": 400, "elsewhere": 404, "unlisted": 404, "nobody": 404, "a b": 400,
			held.TaskID: 404} {
			f.tellAgent(t, f.client, "", `{"toAgentId":"`+to+`","type":"hint","payload":"psst"}`, want)
		}
		f.tellAgent(t, f.client, "/instances/one", `{"toAgentId":"two","type":"hint","payload":"psst"}`, 400)
		f.tellAgent(t, f.person, "", hint, 202)
		f.tellAgent(t, f.person, "", hint, 202)
		read, err := f.ReadMessages(t.Context(), held, "", picket.ReadMessages{}, 0)
		must(t, err)
		if len(read.Messages) != 1 || read.Messages[0].To != "one" ||
			read.Messages[0].From.Kind != picket.SenderPerson {
			t.Errorf("read %+v", read.Messages)
		}
	})
}

// What is out of bounds or misses a member is refused.
func TestBoundsOfMessagesToAgents(t *testing.T) {
	f := onMemory(t)
	f.register(t, "one", "builder")
	f.submitted(t)
	f.heldBy(t, "one")
	long := strings.Repeat("x", picket.MaxMessage)
	for body, want := range map[string]int{
		`{"type":"hint","payload":"` + long + `"}`:        202,
		`{"type":"hint","payload":"` + long + `x"}`:       413,
		`{"type":"hint","payload":"` + long + long + `"}`: 413,
		`{"type":"hint"}`:                400,
		`{"type":"hint","payload":null}`: 400,
		`{"type":"hint","payload":""}`:   400,
		`{"payload":"x"}`:                400,
		`{"type":"a b","payload":"x"}`:   400,
		`{"type":"a2a","payload":{"messageId":"m","message":{"parts":[null]}}}`:             400,
		`{"type":"hint","payload":"x","replyTo":"x"}`:                                       400,
		`{"type":"hint","payload":"x","replyTo":"message_` + strings.Repeat("0", 26) + `"}`: 404,
		`{"type":"hint","payload":"x","messageId":"` + strings.Repeat("m", 256) + `"}`:      400,
		`{"type":"hint","payload":"x","taskId":"t"}`:                                        400,
	} {
		f.tellAgent(t, f.client, "/instances/one", body, want)
	}
	f.tellAgent(t, f.client, "/instances/one", `x`, 415, "Content-Type", "text/plain")
}

// An agent inside a run writes to another agent of the pool under its lease, and no more after that.
func TestAPeerWritesToAnAgent(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		f.register(t, "one", "builder")
		f.register(t, "elsewhere", "tester")
		_, err := f.Submit(t.Context(), operator, picket.TaskSpec{Title: "root", Role: "builder"})
		must(t, err)
		token, held := f.leaseToken(t)
		peer := []string{"Authorization", "Bearer " + token}
		const hint = `{"messageId":"m1","type":"hint","payload":"from a peer"}`
		first := f.tellAgent(t, "", "/instances/one", hint, 202, peer...)
		if again := f.tellAgent(t, "", "/instances/one", hint, 202, peer...); again != first {
			t.Errorf("the repeated message got %s, the first %s", again, first)
		}
		f.tellAgent(t, "", "/instances/one", strings.Replace(hint, "peer", "friend", 1), 409, peer...)
		f.tellAgent(t, "", "", `{"toAgentId":"elsewhere","type":"hint","payload":"x"}`, 404, peer...)
		f.tellAgent(t, "", "", `{"toAgentId":"a1","type":"hint","payload":"x"}`, 404, peer...) // it is not registered
		page, err := f.Messages(t.Context(), operator, "one", picket.MessageQuery{})
		must(t, err)
		if len(page.Messages) != 1 || page.Messages[0].From.TaskID != held.TaskID {
			t.Errorf("in the inbox: %+v", page.Messages)
		}
		_, err = f.Release(context.WithoutCancel(t.Context()), held, picket.Exit{Class: picket.ReleaseClasses[0]})
		must(t, err)
		f.tellAgent(t, "", "/instances/one", strings.Replace(hint, "m1", "m2", 1), 412, peer...)
	})
}
