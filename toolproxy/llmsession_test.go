package toolproxy_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// An answer of 1,000 input and 100 output tokens costs $0.0045.
const sessionAnswer = `{"type":"message","usage":{"input_tokens":1000,"output_tokens":100}}`

const sessionQuestion = `{"model":"claude-x","max_tokens":300,"messages":[]}`

func (p *openPrompt) money(t *testing.T) picket.SessionPrompt {
	t.Helper()
	got, err := p.h.SessionPrompt(p.h.ctx, p.session, p.id, 0, 0)
	p.h.ok(err)
	return got
}

// A session calls a model with its capability as the key, and its prompt pays.
func TestASessionCallsAModel(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, sessionAnswer))
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	b := newLLMEnvOf(t, m, h.sealer, h.Engine)
	p := h.openPrompt()
	for i, head := range [][]string{{"X-Api-Key", p.secret.Reveal()},
		{"X-Api-Key", "sk-own", "Authorization", "Bearer " + p.secret.Reveal()}} {
		status, text, _ := b.get("POST", "/llm/anthropic/v1/messages", sessionQuestion, head...)
		if status != 200 || text != sessionAnswer {
			t.Fatalf("%d %s", status, text)
		}
		if got := p.money(t); got.Spent.USD != budget.Money(4_500_000*(i+1)) {
			t.Errorf("the prompt has spent %s", got.Spent.USD)
		}
	}
	_, sent, _ := m.last(t)
	if sent.Get("X-Api-Key") != "sk-real" || strings.Contains(strings.Join(sent["Authorization"], ""), "pks_") {
		t.Errorf("the vendor gets %v", sent)
	}
	status, text, _ := b.get("POST", "/llm/anthropic/v1/messages", sessionQuestion, "X-Api-Key", p.secret.Reveal(),
		"Authorization", "Bearer "+picket.NewSessionCapability("default", p.id).Reveal())
	if status != http.StatusUnauthorized || !strings.Contains(text, "two different credentials") {
		t.Errorf("two capabilities: %d %s", status, text)
	}
}

// A call that the prompt cannot pay, or of a prompt that has ended, does not reach the vendor.
func TestASessionStopsWhenItsPromptIsSpent(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, `{"type":"message","usage":{"input_tokens":1000,"output_tokens":6000}}`))
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	b := newLLMEnvOf(t, m, h.sealer, h.Engine)
	p := h.openPrompt()
	ask := func() (int, string) {
		status, text, _ := b.get("POST", "/llm/anthropic/v1/messages", `{"model":"claude-x","max_tokens":6000,"messages":[]}`,
			"X-Api-Key", p.secret.Reveal())
		return status, text
	}
	if status, text := ask(); status != 200 {
		t.Fatalf("%d %s", status, text)
	}
	for try := 1; ; try++ {
		status, text := ask()
		if status == 200 && try < 3 {
			continue // with a shorter answer
		}
		if status != http.StatusPaymentRequired || !strings.Contains(text, "budget_exceeded") {
			t.Errorf("%d %s", status, text)
		}
		break
	}
	calls := m.calls()
	p.end(picket.PromptAnswered)
	if status, text := ask(); status != http.StatusUnauthorized || m.calls() != calls {
		t.Errorf("after the end: %d %s", status, text)
	}
	h.checkInvariants()
}

// Two proxies and many calls at once reserve no more than the prompt has.
func TestTwoProxiesShareThePromptOfASession(t *testing.T) {
	release := make(chan struct{})
	m := newFakeModel(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		answersJSON(200, sessionAnswer)(w, r)
	})
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	proxies := []*llmEnv{newLLMEnvOf(t, m, h.sealer, h.Engine), newLLMEnvOf(t, m, h.sealer, h.Engine)}
	p := h.openPrompt()
	var all sync.WaitGroup
	var mu sync.Mutex
	answers := map[int]int{}
	for i := range 12 {
		all.Go(func() { // each reserves more than a third of what the prompt has
			status, _, _ := proxies[i%2].get("POST", "/llm/anthropic/v1/messages",
				`{"model":"claude-x","max_tokens":2000,"thinking":{"type":"enabled","budget_tokens":1999},"messages":[]}`,
				"X-Api-Key", p.secret.Reveal())
			mu.Lock()
			defer mu.Unlock()
			answers[status]++
			if status == http.StatusPaymentRequired && answers[status] == 10 {
				close(release)
			}
		})
	}
	all.Wait()
	if answers[200] != 2 || answers[http.StatusPaymentRequired] != 10 || m.calls() != 2 {
		t.Errorf("%v, and %d calls", answers, m.calls())
	}
	h.checkInvariants()
}

// A program without a credential learns whether a vendor is served, and nothing else.
func TestAVendorThatIsNotServedIsNotFound(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	b := newLLMEnvOf(t, newFakeModel(t, answersJSON(200, "{}")), h.sealer, h.Engine, withoutOpenAI)
	for path, want := range map[string]int{"/llm/anthropic/v1/messages": 401, "/llm/openai/v1/responses": 404} {
		if status, text, _ := b.get("POST", path, "{}", "X-Api-Key", ""); status != want {
			t.Errorf("%s: %d %s", path, status, text)
		}
	}
}

func withoutOpenAI(c *llm.Config) { c.OpenAI = nil }

// checkInvariants looks for damage in the whole store.
func (h *engineEnv) checkInvariants() {
	h.t.Helper()
	for cursor := ""; ; {
		part, err := h.Inspect(h.ctx, operator, picket.InspectRequest{Cursor: cursor})
		h.ok(err)
		if len(part.Violations) > 0 {
			h.t.Errorf("%+v", part.Violations)
		}
		if cursor = part.Next; cursor == "" {
			return
		}
	}
}
