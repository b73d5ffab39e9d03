package toolproxy_test

import (
	"io"
	"net/http"
	"testing"

	"github.com/picket-dev/picket"
)

// A vendor that closes the connection after it has read a call may have begun to
// think: the call is not made twice for one reservation, whatever the agent says
// of repeating it.
func TestACallThatMayHaveBegunIsNotMadeTwice(t *testing.T) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key", "X-Stainless-Retry-Count"} {
		m := newFakeModel(t, nil)
		m.play = func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("X-Stainless-Os") == "" { // keeps the connection
				streaming(claudeAll)(w, r)
				return
			}
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				conn.Close()
			}
		}
		w := newRichEnvelope(100)
		b := newLLMEnv(t, m, w)
		if status, text, _ := b.get("POST", "/llm/anthropic/v1/messages", claudeAsk); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		resp, err := b.ask(t.Context(), "POST", "/llm/anthropic/v1/messages", claudeAsk, "X-Stainless-Os", "Linux",
			name, "a key")
		if err != nil {
			t.Fatal(err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if n := m.calls(); n != 2 || resp.StatusCode != 502 {
			t.Errorf("with %s: status %d, %d calls of the vendor for 2 of the agent's", name, resp.StatusCode, n)
		}
		uncertain := 0
		w.mu.Lock()
		for _, s := range w.settled {
			if s.Outcome == picket.CallUncertain {
				uncertain++
			}
		}
		w.mu.Unlock()
		if uncertain != 1 {
			t.Errorf("with %s: %d calls are settled as uncertain, want 1", name, uncertain)
		}
	}
}
