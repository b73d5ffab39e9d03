package a2a_test

import (
	stdjson "encoding/json"
	"strings"
	"testing"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket/orchestrator/a2a"
)

// Cards are in the JSON of Protocol Buffers, which other libraries than the Go one read. A client of the Go library
// gets the form that it reads. A cache keeps the two apart.
func TestEachClientReadsTheScopesOfACard(t *testing.T) {
	f := onMemory(t, func(c *a2a.Config) { c.PublicCards = true })
	const specified, ofGo = `"securityRequirements":[{"schemes":{"apiKey":{"list":[]}}}]`,
		`"securityRequirements":[{"schemes":{"apiKey":[]}}]`
	for agent, want := range map[string]string{"": specified, "python-httpx/0.28.1": specified, "node": specified,
		"Go-http-client/1.1": ofGo, "Go-http-client/2.0": ofGo} {
		_, header, card := f.ask(f.client, "GET", "/.well-known/agent-card.json", "", "User-Agent", agent)
		_, _, rest := f.ask(f.client, "GET", "/a2a/extendedAgentCard", "", "User-Agent", agent)
		rpc := f.rawRPC(f.client, "GetExtendedAgentCard", "{}", "User-Agent", agent)
		for _, body := range []string{card, rest, rpc} {
			if strings.Count(body, "securityRequirements") != 1 || !strings.Contains(body, want) {
				t.Errorf("%q gets %s, want %s", agent, body, want)
			}
		}
		if !strings.Contains(header.Get("Vary"), "User-Agent") {
			t.Errorf("Vary: %s", header.Get("Vary"))
		}
		var read protocol.AgentCard
		if err := stdjson.Unmarshal([]byte(card), &read); (err == nil) != (want == ofGo) {
			t.Errorf("%q: the Go library reads the card: %v", agent, err)
		}
	}
}
