//go:build linux

package e2e

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

const dollar = budget.Money(1_000_000_000)

// Two servers, which are processes of their own over one store, wake one session two hundred times at once. One
// wake is sent. It reserves its money once, and gives it back when it ends.
func TestServersApartSendOneWake(t *testing.T) {
	w := newTestEnv(t)
	w.store()
	w.ok("init", "--redis", w.storeURL(), "--secret-file", w.path("secret.key"), "--admin-key-file",
		w.path("data", "picket", "admin.key"))
	w.key = w.secret("admin.key")
	var servers [2]string
	for i := range servers {
		_, servers[i] = w.serve("orchestrator", fmt.Sprint("orchestrator", i), "", "--proxy-url", "http://127.0.0.1:1")
	}
	w.url = servers[0]
	w.events = followEvents(w)
	k := w.keepIdle("sleeper", "coder")
	w.writePolicy("coder", "Look at your messages.\n")

	const many, connections = 200, 50
	decided := wakeAtOnce(w, servers[:], "coder", many, connections)
	var waiting picket.PendingCommands
	w.into(&waiting, http.MethodGet, fmt.Sprintf("/agents/%s/commands/pending?incarnation=%d&waitSeconds=20", k.agent,
		k.incarnation), nil)
	if len(waiting.Sessions) != 1 || waiting.Sessions[0].Command != picket.CommandWake {
		t.Fatalf("the adapter gets %+v", waiting)
	}
	prompt := waiting.Sessions[0].CommandID
	// The others are decided while the wake is on its way, and some after the adapter has accepted it.
	count, sent := map[string]int{}, picket.WakeDecision{}
	for i := range many {
		if i == many/2 {
			k.say(prompt, picket.CommandResult{State: picket.PromptAccepted})
		}
		d := <-decided
		count[fmt.Sprintf("%s %s", d.Result, d.Reason)]++
		if d.Result == picket.WakeResultSent {
			sent = d
		}
	}
	t.Logf("decided: %v", count)
	coalesced, active := count["coalesced wake_coalesced"], count["skipped session_prompt_active"]
	if count["sent wake_sent"] != 1 || sent.WakeID != prompt || coalesced < many/2 || coalesced+active != many-1 {
		t.Errorf("the wake %s was sent of %v, want %s alone", sent.WakeID, count, prompt)
	}
	var page picket.PromptPage
	w.into(&page, http.MethodGet, "/agent-sessions/"+k.id+"/prompts?limit=50", nil)
	if len(page.Prompts) != 1 || page.Prompts[0].PromptID != prompt || !page.Prompts[0].Wake {
		t.Errorf("the session has the prompts %+v", page.Prompts)
	}

	day := "wake:coder:" + sent.At.Time().UTC().Format("2006-01-02")
	w.expectWakeMoney(day, prompt, dollar/10)
	k.say(prompt, picket.CommandResult{State: picket.PromptAnswered, Output: "nothing to do"})
	w.expectWakeMoney(day, prompt, 0)
	w.into(&struct{}{}, http.MethodPut, "/agents/"+k.agent+"/sessions", k.idleReport())
	for d := range wakeAtOnce(w, servers[:], "coder", many/4, connections) {
		if d.Result != picket.WakeResultRateLimited || d.Reason != picket.WakeReasonCooldownActive {
			t.Errorf("during the cooldown: %+v", d)
		}
	}
}

// wakeAtOnce asks for wakes of an agent name over so many connections, at each server in turn. It answers the
// decisions, and closes the channel after the last one.
func wakeAtOnce(w *testEnv, servers []string, name string, many, connections int) <-chan picket.WakeDecision {
	asked, decided := make(chan string), make(chan picket.WakeDecision, many)
	var clients sync.WaitGroup
	for range connections {
		clients.Go(func() {
			for url := range asked {
				var d picket.WakeDecision
				got, err := try(w.key, http.MethodPost, url+"/api/agents/"+name+"/heartbeat/wake", map[string]string{})
				if err == nil && got.status == http.StatusOK {
					err = json.Unmarshal(got.body, &d)
				}
				if err != nil || got.status != http.StatusOK {
					w.t.Errorf("a wake: %v %d %s", err, got.status, got.body)
				}
				decided <- d
			}
		})
	}
	go func() {
		for i := range many {
			asked <- servers[i%len(servers)]
		}
		close(asked)
		clients.Wait()
		close(decided)
	}()
	return decided
}

// expectWakeMoney checks what the envelope of a day and the one prompt that was carved from it have reserved.
// An agent that is done has spent nothing.
func (w *testEnv) expectWakeMoney(day, prompt string, reserved budget.Money) {
	w.t.Helper()
	var e picket.EnvelopeState
	w.into(&e, http.MethodGet, "/envelopes/"+day, nil)
	var status picket.PolicyStatus
	got := w.call(w.key, http.MethodGet, w.url+"/api/agents/coder/heartbeat/status", nil)
	w.must(json.Unmarshal(got.body, &status))
	if len(e.Children) != 1 || e.Children[0].ID != prompt || status.WakeBudget.Left != dollar/2-reserved {
		w.t.Errorf("want $%s reserved by the prompt %s, and $%s left:\n%+v\n%+v", reserved, prompt, dollar/2-reserved, e,
			status.WakeBudget)
	}
}

// keepIdle registers an agent with an agent name, and keeps an idle session of it that is metered.
func (w *testEnv) keepIdle(agent, name string) *keptSession {
	w.t.Helper()
	var made picket.Agent
	w.into(&made, http.MethodPost, "/agents", map[string]any{"agent_id": agent, "role_id": "coder",
		"metadata": map[string]any{"agent_name": name}})
	k := &keptSession{w, agent, "asession_" + ulid.Make().String(), made.Incarnation}
	w.into(&struct{}{}, http.MethodPut, "/agents/"+agent+"/sessions", k.idleReport())
	return k
}

// idleReport says that the session is idle and metered.
func (k *keptSession) idleReport() picket.SessionsReport {
	return picket.SessionsReport{Incarnation: k.incarnation, Sessions: []picket.SessionReport{{SessionID: k.id,
		Kind: picket.SessionResumable, Preset: "claude", State: picket.SessionIdle, Metered: true}}}
}

// writePolicy writes the first wake policy of an agent name.
func (w *testEnv) writePolicy(name, text string) {
	w.t.Helper()
	got := w.call(w.key, http.MethodPut, w.url+"/api/agents/"+name+"/heartbeat",
		map[string]string{"body": text, "expected_digest": ""})
	if got.status/100 != 2 {
		w.t.Fatalf("write the policy of %s: %d %s", name, got.status, got.body)
	}
}
