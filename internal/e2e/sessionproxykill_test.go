//go:build linux

package e2e

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// callingAgent hands the capability of each prompt to the test, and answers when it is told to.
const callingAgent = `dir=${0%/*}
while IFS= read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"promptId":"\([^"]*\)".*/\1/')
	printf '%s\n' "$line" | sed 's/.*"capability":"\([^"]*\)".*/\1/' >"$dir/capability"
	read x <"$dir/go"
	printf '{"type":"answer","promptId":"%s","text":"done"}\n' "$id"
done
`

// slowModel is a vendor whose first call is never answered. Each later one costs $0.0045.
type slowModel struct {
	*httptest.Server
	begun chan struct{} // closed when the first call has come
}

func newSlowModel(t *testing.T) *slowModel {
	t.Helper()
	m := &slowModel{begun: make(chan struct{})}
	first := make(chan struct{}, 1)
	first <- struct{}{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // else the end of the connection is not noticed
		select {
		case <-first:
			close(m.begun)
			<-r.Context().Done()
		default:
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"type":"message","usage":{"input_tokens":1000,"output_tokens":100}}`)
		}
	}))
	t.Cleanup(func() {
		m.CloseClientConnections()
		m.Close()
	})
	return m
}

// promptedAgent is an agent with a session, which is prompted, and two sets of servers.
type promptedAgent struct {
	*testEnv
	sets       [2]serverSet
	session    string
	capability *fifo
}

func newPromptedAgent(t *testing.T, model string) *promptedAgent {
	t.Helper()
	w := &promptedAgent{testEnv: newTestEnv(t)}
	w.put("agent.sh", callingAgent)
	w.put("config/picket/picket.yaml", "agents:\n  coder:\n    session: {max: 1}\n"+
		"    launch: {command: [sh, "+w.path("agent.sh")+"]}\n"+
		"tools:\n  models: {'*': {input: 3, output: 15}}\n  llm: {anthropic: {url: '"+model+"', key_env: REAL_KEY}}\n")
	w.env = append(w.env, "REAL_KEY=sk-real")
	w.capability = w.fifo("capability")
	w.fifo("go")
	w.store()
	w.sets = w.pairs()
	w.env = append(w.env, "PICKET_URL="+w.url, "PICKET_API_KEY="+w.key)
	w.start("adapter", "adapter", "--as", "coder", "--agent-id", "caller")
	w.until("the session is idle", func() bool {
		var page picket.AgentSessionPage
		w.into(&page, http.MethodGet, "/agent-sessions", nil)
		if len(page.Sessions) == 1 {
			w.session = page.Sessions[0].SessionID
		}
		return len(page.Sessions) == 1 && page.Sessions[0].Health.State == picket.SessionIdle
	})
	return w
}

// ask calls the model through a tool proxy.
func (w *promptedAgent) ask(proxy, capability string) (answer, error) {
	return try(capability, http.MethodPost, proxy+"/llm/anthropic/v1/messages",
		map[string]any{"model": "claude-x", "max_tokens": 300, "messages": []string{}})
}

// mustAsk is ask for a call that has to be made.
func (w *promptedAgent) mustAsk(proxy, capability string) {
	w.t.Helper()
	if got, err := w.ask(proxy, capability); err != nil || got.status != http.StatusOK {
		w.t.Errorf("%d %s, %v", got.status, got.body, err)
	}
}

// passDeadlines lets the deadlines of the calls under way pass, which are 15 minutes after their beginning.
func (w *promptedAgent) passDeadlines(prompt string) {
	w.t.Helper()
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: w.path("redis.sock")})
	defer c.Close()
	const holds = "pk:{default}:holds"
	calls, err := c.ZRange(w.t.Context(), holds, 0, -1).Result()
	if err != nil || len(calls) != 1 || !strings.HasPrefix(calls[0], prompt+":") {
		w.t.Fatalf("the calls under way are %q, %v", calls, err)
	}
	if err := c.ZAddXX(w.t.Context(), holds, redis.Z{Member: calls[0]}).Err(); err != nil {
		w.t.Fatal(err)
	}
}

// nothingHeld checks that no envelope from the prompt's up to that of all sessions has anything reserved, that their
// books add up, and that each of them has spent the same.
func (w *promptedAgent) nothingHeld(prompt string, spent budget.Money) {
	w.t.Helper()
	envelopes := 0
	for id := prompt; id != ""; envelopes++ {
		e := w.envelope(id)
		kept := e.Parent != "" && !e.Available.IsZero() // what came back to the first one pays for the next prompts
		if kept || !e.Held.IsZero() || !e.Balanced() || len(e.Calls) != 0 || e.State != "closed" ||
			e.SpentInAll == nil || e.SpentInAll.USD != spent {
			w.t.Errorf("the envelope %s is %+v, want $%s spent in all and nothing reserved", id, e, spent)
		}
		id = e.Parent
	}
	if envelopes != 3 {
		w.t.Errorf("the prompt is paid by %d envelopes, want 3", envelopes)
	}
}

// A tool proxy is killed while an agent session calls a model. The session goes on through another proxy, and through
// the same one when it is started again. The call is charged once, as reserved, after its prompt has ended. Nothing
// stays reserved.
func TestAToolProxyIsKilledWhileASessionCallsAModel(t *testing.T) {
	m := newSlowModel(t)
	w := newPromptedAgent(t, m.URL)
	var p picket.SessionPrompt
	w.into(&p, http.MethodPost, "/agent-sessions/"+w.session+"/prompts", picket.PromptRequest{Text: "call the model"})
	capability := w.capability.take()

	broken := make(chan error, 1)
	go func() {
		_, err := w.ask(w.sets[1].proxyURL, capability)
		broken <- err
	}()
	select {
	case <-m.begun:
	case <-time.After(waitLimit):
		t.Fatal("the model was not called")
	}
	w.sets[1].processes[1].kill()
	if <-broken == nil {
		t.Error("a killed proxy has answered")
	}
	reserved := w.envelope(p.PromptID).Held.USD
	if reserved <= 0 {
		t.Errorf("the broken call has reserved $%s", reserved)
	}
	w.mustAsk(w.sets[0].proxyURL, capability)
	w.sets[1].processes[1], _ = w.serve("toolproxy", "proxy-again", w.sets[1].proxyURL)
	w.mustAsk(w.sets[1].proxyURL, capability)

	w.give("go")
	w.until("the prompt is answered", func() bool {
		w.into(&p, http.MethodGet, "/agent-sessions/"+w.session+"/prompts/"+p.PromptID, nil)
		return p.State.Ended()
	})
	if p.State != picket.PromptAnswered {
		t.Errorf("the prompt is %s: %s", p.State, p.Reason)
	}
	if e := w.envelope(p.PromptID); e.Held.USD != reserved || !e.Available.IsZero() || e.State != "closed" {
		t.Errorf("the prompt has ended, and its envelope is %+v", e)
	}
	if got, err := w.ask(w.sets[1].proxyURL, capability); err != nil || got.status != http.StatusUnauthorized {
		t.Errorf("a call after the end of the prompt: %d %s, %v", got.status, got.body, err)
	}
	w.passDeadlines(p.PromptID)
	w.until("the broken call is charged", func() bool { return w.envelope(p.PromptID).Held.IsZero() })
	w.nothingHeld(p.PromptID, reserved+2*usd("0.0045"))
	uncertain := 0
	rows := w.rows(p.PromptID)
	for _, r := range rows {
		if r.Outcome == picket.CallUncertain && r.Charged.USD == reserved {
			uncertain++
		}
	}
	if len(rows) != 3 || uncertain != 1 {
		t.Errorf("the ledger has %+v, want three calls, and one of them uncertain", rows)
	}
	if got := w.ok("doctor", "--invariants"); !strings.Contains(got, "every invariant holds") {
		t.Errorf("picket doctor --invariants:\n%s", got)
	}
}
