package api_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
)

// An adapter that polls for commands again and again has one poll open. Those before it are answered as if nothing had
// come. The poll of another key goes on.
func TestANewerPollForCommandsEndsTheOlder(t *testing.T) {
	p := newMemoryFixture(t)
	incarnation := p.want(201, "POST", "/api/v1/agents", "agent", `{"agent_id":"ann"}`).body["incarnation"]
	session := "asession_" + ulid.Make().String()
	p.want(200, "PUT", "/api/v1/agents/ann/sessions", "agent", fmt.Sprintf(`{"incarnation":%v,"sessions":[`+
		`{"sessionId":%q,"kind":"resident","preset":"exec","state":"idle"}]}`, incarnation, session))

	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	path := fmt.Sprintf("/api/v1/agents/ann/commands/pending?waitSeconds=50&incarnation=%v", incarnation)
	poll := func(key string, ended chan<- pollResult) {
		a, err := p.send(ctx, "GET", path, p.keys[key], "")
		ended <- pollResult{a, err}
	}
	const many = 4
	others, mine := make(chan pollResult, 1), make(chan pollResult, many)
	go poll("operator", others)
	for range many {
		go poll("agent", mine)
	}
	for range many - 1 {
		got := <-mine
		must(t, got.err)
		if got.answer.status != 200 || got.answer.raw != `{"sessions":[],"agent":[]}` {
			t.Errorf("an older poll: %d %s", got.answer.status, got.answer.raw)
		}
	}
	p.want(201, "POST", "/api/v1/agent-sessions/"+session+"/prompts", "operator", `{"text":"hello"}`)
	for _, ended := range []chan pollResult{mine, others} {
		got := <-ended
		must(t, got.err)
		if got.answer.status != 200 || !strings.Contains(got.answer.raw, `"text":"hello"`) {
			t.Errorf("the newest poll: %d %s", got.answer.status, got.answer.raw)
		}
	}
}
