package toolproxy_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/toolproxy/llm"
)

// everyCall is each call that a model can be reached by.
var everyCall = []string{"POST /llm/anthropic/v1/messages", "POST /llm/anthropic/v1/messages/count_tokens",
	"GET /llm/anthropic/v1/models",
	"POST /llm/openai/v1/chat/completions", "POST /llm/openai/v1/responses", "GET /llm/openai/v1/models/gpt-x"}

func (b *llmEnv) tryRoute(call string, head ...string) (int, string) {
	b.t.Helper()
	method, path, _ := strings.Cut(call, " ")
	body := ""
	if method == "POST" {
		body = `{"model":"gpt-x","max_tokens":300}`
		if strings.Contains(path, "responses") {
			body = `{"model":"gpt-x","max_output_tokens":300}`
		}
	}
	status, text, _ := b.get(method, path, body, head...)
	return status, text
}

// A fence that is stale cannot think: the upstream's counter stays where it is.
func TestAStaleFenceReachesNoModel(t *testing.T) {
	m := newFakeModel(t, answersJSON(200,
		`{"object":"response","usage":{"input_tokens":1,"output_tokens":1,"prompt_tokens":1,"completion_tokens":1},"type":"message"}`))
	tried := 0
	for _, r := range matrix {
		// Nothing is known here of a namespace that is served elsewhere. A valid session capability opens models.
		if r.fenced == "" || r.fenced == away || r.session {
			continue
		}
		h, leave := newEngineEnv(t, rig.Real(t))
		b := newLLMEnvOf(t, m, h.sealer, h.Engine)
		token := r.make(h)
		for _, call := range everyCall {
			tried++
			status, text := b.tryRoute(call, "X-Api-Key", "", "Authorization", "Bearer "+token)
			if status != r.fenced.Status() || !strings.Contains(text, string(r.fenced)+": ") ||
				!strings.Contains(text, `"error"`) {
				t.Errorf("%s: %s: %d %s, want %s", r.name, call, status, text, r.fenced)
			}
		}
		leave()
	}
	if n := m.calls(); n != 0 || tried < 50 {
		t.Errorf("%d of %d calls reached the upstream", n, tried)
	}
}

func TestAGoodFenceReachesTheModel(t *testing.T) {
	m := newFakeModel(t, answersJSON(200,
		`{"object":"response","usage":{"input_tokens":1,"output_tokens":1,"prompt_tokens":1,"completion_tokens":1},"type":"message"}`))
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	b := newLLMEnvOf(t, m, h.sealer, h.Engine)
	h.submit()
	l := h.lease()
	for i, call := range everyCall {
		if status, text := b.tryRoute(call, "X-Api-Key", l.LeaseToken.Reveal()); status != 200 || m.calls() != i+1 {
			t.Errorf("%s under a good lease: %d %s, %d calls", call, status, text, m.calls())
		}
	}
	// Three of the six cost something, in and out one token each.
	task, err := h.Task(h.ctx, l.TaskID)
	h.ok(err)
	if task.Spent != (budget.Envelope{Tokens: 6, USD: 54_000}) || !task.Held.IsZero() {
		t.Errorf("spent %+v, held %+v", task.Spent, task.Held)
	}
}

func TestCredentialsOfAModelsClient(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, `{"data":[]}`))
	b := newLLMEnv(t, m, newRichEnvelope(100))
	other := newSealer(t).LeaseToken("default", aTask, "run_01JZZZZZZZZZZZZZZZZZZZZZZC").Reveal()
	for name, c := range map[string]struct {
		key    string
		auth   string
		status int
	}{
		"none":                    {"", "", 401},
		"an API key of a person":  {"sk-ant-api03-x", "", 401},
		"forged":                  {b.token[:len(b.token)-2] + corrupt(b.token[len(b.token)-2:]), "", 401},
		"two leases":              {b.token, "Bearer " + other, 401},
		"as a key":                {b.token, "", 200},
		"as a bearer":             {"", "Bearer " + b.token, 200},
		"both":                    {b.token, "bearer " + b.token, 200},
		"beside a key of its own": {b.token, "Bearer sk-ant-oat01-x", 200},
		"beside a dummy":          {"dummy", "Bearer " + b.token, 200},
	} {
		status, text := b.tryRoute("GET /llm/anthropic/v1/models", "X-Api-Key", c.key, "Authorization", c.auth)
		if status != c.status || status == 401 && !strings.Contains(text, `"type":"authentication_error"`) {
			t.Errorf("%s: %d %s", name, status, text)
		}
	}
}

// An upstream without a key, such as one on this machine, is sent none.
func TestLeaseTokenIsNotSentToVendors(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, `{"type":"message","usage":{"input_tokens":1,"output_tokens":1}}`))
	b := newLLMEnv(t, m, newRichEnvelope(100),
		func(c *llm.Config) { c.Anthropic = &llm.Upstream{URL: m.URL} })
	for _, call := range everyCall[:3] {
		if status, text := b.tryRoute(strings.Replace(call, "gpt-x", "claude-x", 1), "Authorization",
			"Bearer "+b.token); status != 200 {
			t.Fatalf("%s: %d %s", call, status, text)
		}
		_, head, path := m.last(t)
		for name, values := range head {
			if strings.Contains(strings.Join(values, " "), "pkl_") {
				t.Errorf("%s got %s: %s", path, name, values)
			}
		}
		if head.Get("Authorization") != "" || head.Get("X-Api-Key") != "" {
			t.Errorf("%s got %v", path, head)
		}
	}
}

func TestOnlyWhatIsMeteredOrFreeIsPassed(t *testing.T) {
	m := newFakeModel(t, answersJSON(200, `{}`))
	b := newLLMEnv(t, m, newRichEnvelope(100))
	for _, call := range []string{"POST /llm/anthropic/v1/messages/batches", "GET /llm/anthropic/v1/messages",
		"POST /llm/anthropic/v1/complete", "DELETE /llm/anthropic/v1/models/x",
		"POST /llm/openai/v1/embeddings", "POST /llm/openai/v1/responses/x/cancel", "GET /llm/openai/v1/responses/x",
		"GET /llm/openai/v1/models/..%2f..%2ffiles",
		"GET /llm/openai/v1/models/../files", "GET /llm/openai/v1/models/a%2f..%2f..",
		"POST /llm/openai/v1/chat/completions/", "GET /llm/openai/", "PUT /llm/anthropic/v1/messages"} {
		if status, text := b.tryRoute(call); status != 404 || !strings.Contains(text, "not_found: ") ||
			!strings.Contains(text, "POST /v1/") {
			t.Errorf("%s: %d %s", call, status, text)
		}
	}
	if m.calls() != 0 {
		t.Errorf("%d calls arrived, the last was %s", m.calls(), m.paths[0])
	}
	for _, call := range []string{"GET /llm/anthropic/v1/models", "GET /llm/anthropic/models/claude-x?a=b",
		"POST /llm/anthropic/v1/messages/count_tokens?beta=true"} {
		if status, text := b.tryRoute(call); status != 200 || text != `{}` {
			t.Errorf("%s: %d %s", call, status, text)
		}
		if _, _, path := m.last(t); !strings.HasSuffix(path, call[strings.LastIndex(call, "/"):]) ||
			!strings.Contains(path, " /base/v1/") {
			t.Errorf("%s arrived as %s", call, path)
		}
	}
	none := newLLMEnv(t, m, newRichEnvelope(100), func(c *llm.Config) { c.OpenAI = nil })
	if status, text := none.tryRoute("POST /llm/openai/v1/responses"); status != 404 ||
		!strings.Contains(text, "tools.llm.openai") {
		t.Errorf("without an upstream: %d %s", status, text)
	}
}

var outputLimit = regexp.MustCompile(`"max_tokens":(\d+)`)

// Calls side by side, through two proxies, each using all that it was given:
// together they never take more than there is.
func TestConcurrentCallsNeverOverspend(t *testing.T) {
	h, leave := newEngineEnv(t, rig.Real(t))
	defer leave()
	const dollar = 100 * cent
	for round := range 5 {
		task, err := h.Submit(h.ctx, operator,
			picket.TaskSpec{Title: "t", BudgetEnvelope: &budget.Envelope{Tokens: 1_000_000, USD: dollar}})
		h.ok(err)
		l := h.lease()
		var mu sync.Mutex
		running, refused, told := 0, 0, make(chan struct{})
		count := func(n *int) { // the answers wait until everybody was let in or refused
			mu.Lock()
			defer mu.Unlock()
			*n++
			if running+refused == 10 {
				close(told)
			}
		}
		m := newFakeModel(t, func(w http.ResponseWriter, r *http.Request) {
			count(&running)
			select {
			case <-told:
			case <-r.Context().Done():
				return
			}
			answersJSON(200, fmt.Sprintf(`{"type":"message","usage":{"input_tokens":2000,"output_tokens":%s}}`,
				r.Header.Get("X-Limit")))(w, r)
		})
		m.Config.Handler = limited(m.Config.Handler)
		minds := []*llmEnv{newLLMEnvOf(t, m, h.sealer, h.Engine), newLLMEnvOf(t, m, h.sealer, h.Engine)}
		var calls sync.WaitGroup
		for i := range 10 {
			calls.Go(func() {
				status, text, _ := minds[i%2].get("POST", "/llm/anthropic/v1/messages",
					`{"model":"claude-x","max_tokens":19000,"messages":[]}`, "X-Api-Key", l.LeaseToken.Reveal())
				switch {
				case status == 402 && strings.Contains(text, "picket budget top-up "+l.TaskID):
					count(&refused)
				case status != 200:
					t.Errorf("%d %s", status, text)
				}
			})
		}
		select {
		case <-told:
		case <-time.After(60 * time.Second):
			t.Fatal("not every call was let in or refused")
		}
		calls.Wait()
		task, err = h.Task(h.ctx, task.TaskID)
		h.ok(err)
		// Three have room in full, a fourth for a shorter answer.
		if task.Spent.USD > dollar || task.Available.USD < 0 || !task.Held.IsZero() || running < 3 || running > 4 ||
			task.Spent.USD < dollar*8/10 {
			t.Errorf("round %d: spent %s, available %s, held %s in %d calls", round, task.Spent.USD, task.Available.USD,
				task.Held.USD, running)
		}
		_, err = h.Cancel(h.ctx, operator, task.TaskID, "")
		h.ok(err)
	}
}

// limited tells a handler how long its answer may be.
func limited(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if found := outputLimit.FindSubmatch(body); found != nil {
			r.Header.Set("X-Limit", string(found[1]))
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		next.ServeHTTP(w, r)
	})
}
