package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// An answer that was lost after the report took effect: the repetition carries
// the same key, so that the server knows it; the next command has its own.
func TestRepeatedToolCallKeepsItsKey(t *testing.T) {
	var keys []string
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		if len(keys) == 1 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.WriteString(w, `{"seq":1}`)
	}))
	defer proxy.Close()
	t.Setenv("PICKET_PROXY_URL", proxy.URL)
	t.Setenv("PICKET_LEASE_TOKEN", "pkl_held")
	t.Setenv("PICKET_FENCING_TOKEN", "17")
	for range 2 {
		c := NewTool()
		c.SetOut(io.Discard)
		c.SetErr(io.Discard)
		c.SetArgs([]string{"report_progress", `{"summary":"s"}`})
		if err := c.Execute(); err != nil {
			t.Fatal(err)
		}
	}
	if len(keys) != 3 || keys[0] == "" || keys[1] != keys[0] || keys[2] == keys[0] {
		t.Errorf("keys %q", keys)
	}
}
