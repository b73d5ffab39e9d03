package a2a_test

import (
	stdjson "encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/a2a"
)

// reviewed makes the results of the pools wait for a person.
func reviewed(cfg *a2a.Config) {
	for i := range cfg.Pools {
		cfg.Pools[i].Task.Review = picket.ReviewByHuman
	}
}

// A client sees no result before a person has approved it, and the reviewer's note if it is rejected.
func TestAResultWaitsForItsReview(t *testing.T) {
	f := newFixture(t, rig.Real(t), reviewed)
	own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
	for _, approve := range []bool{true, false} {
		events := follow(t, own.SendStreamingMessage(t.Context(), send("work")))
		task := next(t, events).(*protocol.Task)
		held := f.lease(t)
		wantUpdate(t, events, protocol.TaskStateWorking)
		f.complete(t, held, `"the result"`)
		now := wantState(t, own, task.ID, protocol.TaskStateWorking)
		if len(now.Artifacts) != 0 || now.Status.Message != nil {
			t.Errorf("before the review: %+v", now)
		}
		if !approve {
			_, _, err := f.Reject(t.Context(), operator, string(task.ID), picket.Decision{Note: "too short"}, nil)
			must(t, err)
			wantUpdate(t, events, protocol.TaskStateFailed)
			if now := wantState(t, own, task.ID, protocol.TaskStateFailed); len(now.Artifacts) != 0 ||
				now.Status.Message.Parts[0].Text() != "too short" {
				t.Errorf("rejected: %+v", now)
			}
			continue
		}
		_, err := f.Approve(t.Context(), operator, string(task.ID), picket.Decision{})
		must(t, err)
		if _, ok := next(t, events).(*protocol.TaskArtifactUpdateEvent); !ok {
			t.Error("no artifact after the approval")
		}
		wantUpdate(t, events, protocol.TaskStateCompleted)
	}
}

// An approval and a budget are for people: a message of the client decides nothing, and is left for the agent.
func TestAClientAnswersQuestionsOnly(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		for kind, state := range map[picket.HandoffKind]protocol.TaskState{
			picket.HandoffApproval: protocol.TaskStateAuthRequired,
			picket.HandoffBudget:   protocol.TaskStateAuthRequired,
		} {
			task := sendTo(t, own, atOnce(send("work")))
			_, err := f.RequestHelp(t.Context(), f.lease(t), picket.HelpRequest{Question: "May I?", Kind: kind})
			must(t, err)
			wantState(t, own, task.ID, state)
			yes := atOnce(send("yes"))
			yes.Message.TaskID = task.ID
			sendTo(t, own, yes)
			after := wantState(t, own, task.ID, state)
			if n := len(after.History); after.History[n-1].ID != yes.Message.ID {
				t.Errorf("the message is not kept: %+v", after.History)
			}
			open, err := f.Task(t.Context(), string(task.ID))
			must(t, err)
			if len(open.Answers) != 0 {
				t.Errorf("a client answered the hand-off %s", kind)
			}
			_, err = own.CancelTask(t.Context(), &protocol.CancelTaskRequest{ID: task.ID})
			must(t, err)
		}
	})
}

// The late result of a superseded run is refused, and no stream tells it.
func TestALateResultTellsNothing(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		own := f.newClient(t, "builder", f.client, protocol.TransportProtocolJSONRPC)
		events := follow(t, own.SendStreamingMessage(t.Context(), send("work")))
		task := next(t, events).(*protocol.Task)
		late := f.lease(t)
		wantUpdate(t, events, protocol.TaskStateWorking)
		_, err := f.Expire(t.Context(), operator, string(task.ID), "taken away")
		must(t, err)
		held := f.lease(t)
		if held.RunID == late.RunID {
			t.Fatal("the same run")
		}
		_, err = f.Complete(t.Context(), late, picket.Completion{Output: picket.RawJSON(`"late"`)})
		if err == nil {
			t.Error("the late result was taken")
		}
		f.complete(t, held, `"in time"`)
		for ev := next(t, events); ev != nil; ev = next(t, events) {
			if a, ok := ev.(*protocol.TaskArtifactUpdateEvent); ok && a.Artifact.Parts[0].Text() != "in time" {
				t.Errorf("told: %+v", a.Artifact)
			}
		}
	})
}

// get reads a path with a key, "" for none.
func (f *fixture) get(t *testing.T, path, key string, header http.Header) (*http.Response, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+path, nil)
	must(t, err)
	for name, values := range header {
		req.Header[name] = values
	}
	if key != "" {
		req.Header.Set("X-API-Key", key)
	}
	res, err := f.http.Do(req)
	must(t, err)
	body, err := io.ReadAll(res.Body)
	must(t, err)
	must(t, res.Body.Close())
	return res, string(body)
}

// A card needs a key, unless cards are public: then it shows less without one. It can be kept, and asked for again.
func TestCards(t *testing.T) {
	const card = "/agents/builder/.well-known/agent-card.json"
	for name, public := range map[string]bool{"private": false, "public": true} {
		t.Run(name, func(t *testing.T) {
			store, stop := rig.Memory()
			t.Cleanup(stop)
			f := newFixture(t, store, func(cfg *a2a.Config) { cfg.PublicCards = public })
			res, body := f.get(t, card, f.client, nil)
			if res.StatusCode != 200 || !strings.Contains(body, `"extensions"`) ||
				!strings.Contains(body, "Writes Go.") {
				t.Errorf("with a key: %d %s", res.StatusCode, body)
			}
			tag := res.Header.Get("ETag")
			if res, _ := f.get(t, card, f.client, http.Header{"If-None-Match": {tag}}); res.StatusCode != 304 {
				t.Errorf("the same again: %d", res.StatusCode)
			}
			res, body = f.get(t, card, f.client, http.Header{"Accept": {"application/vnd.picket.agent-card+json"}})
			var flat map[string]any
			if stdjson.Unmarshal([]byte(body), &flat) != nil || flat["protocol"] != "a2a" ||
				flat["agentId"] != "builder" || !strings.Contains(res.Header.Get("Vary"), "Accept") {
				t.Errorf("flat: %s", body)
			}
			res, body = f.get(t, card, "", http.Header{"Origin": {"https://evil.example"}})
			if want := map[bool]int{true: 200, false: 401}[public]; res.StatusCode != want {
				t.Errorf("without a key: %d, want %d", res.StatusCode, want)
			}
			allowed := res.Header.Get("Access-Control-Allow-Origin")
			if public && strings.Contains(body, `"extensions"`) || allowed != "" {
				t.Errorf("without a key: %v %s", res.Header, body)
			}
			for _, path := range []string{"/agents/tester/.well-known/agent-card.json",
				"/agents/nobody/.well-known/agent-card.json", "/n/other/agents/builder/.well-known/agent-card.json",
				"/n/nowhere/.well-known/agent-card.json"} {
				if res, body := f.get(t, path, f.client, nil); res.StatusCode != 404 {
					t.Errorf("%s: %d %s", path, res.StatusCode, body)
				}
			}
			if res, body := f.get(t, "/.well-known/agent-card.json", f.client, nil); res.StatusCode != 200 ||
				!strings.Contains(body, `"id":"builder"`) || strings.Contains(body, `"id":"tester"`) {
				t.Errorf("the orchestrator: %d %s", res.StatusCode, body)
			}
		})
	}
}

// The skills of a pool are what the settings name and what its living agents offer. Those of one agent are its own.
func TestACardShowsWhatLivingAgentsOffer(t *testing.T) {
	onBothStores(t, func(t *testing.T, f *fixture) {
		skills := func(path string) (ids []string) {
			var card protocol.AgentCard
			_, body := f.get(t, path+"/.well-known/agent-card.json", f.client, nil)
			must(t, stdjson.Unmarshal([]byte(body), &card))
			for _, s := range card.Skills {
				ids = append(ids, s.ID)
			}
			return ids
		}
		for id, capabilities := range map[string][]string{"one": {"rust/1.80", "go"}, "two": {"sql"}} {
			_, err := f.Register(t.Context(), operator, picket.Registration{AgentID: id, RoleID: "builder",
				Capabilities: capabilities})
			must(t, err)
		}
		for path, want := range map[string][]string{
			"/agents/builder":               {"go", "rust/1.80", "sql"},
			"/agents/builder/instances/two": {"sql"},
		} {
			if got := skills(path); !slices.Equal(got, want) {
				t.Errorf("%s has the skills %v, want %v", path, got, want)
			}
		}
		f.deregister(t, "two")
		if got := skills("/agents/builder"); !slices.Equal(got, []string{"go", "rust/1.80"}) {
			t.Errorf("after one has left: %v", got)
		}
	})
}

// The card of RFC-001 says what the agents run, and how their costs come to be known.
func TestACardSaysWhatAgentsRunAndCost(t *testing.T) {
	f := onMemory(t, func(c *a2a.Config) {
		c.Pools[0].Provider, c.Pools[0].Vendor = "claude", "anthropic"
		c.PriceVersion = func() string { return "p1" }
	})
	for path, want := range map[string]string{
		"/agents/builder": `"provider":"claude","sandboxLevel":0,` +
			`"costModel":{"type":"metered","provider":"anthropic","priceVersion":"p1"}`,
		"/agents/tester": `"provider":"picket","sandboxLevel":0,"costModel":{"type":"self-reported"}`,
	} {
		_, body := f.get(t, path+"/.well-known/agent-card.json", f.other,
			http.Header{"Accept": {"application/vnd.picket.agent-card+json"}})
		if !strings.Contains(body, want) {
			t.Errorf("%s: %s, want %s", path, body, want)
		}
	}
}
