package client

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
)

// scriptedTransport answers each request with the next body; the last one for ever. An
// empty body is a success.
type scriptedTransport struct {
	bodies []string
	sent   []string
}

func (s *scriptedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	body := s.bodies[min(len(s.sent), len(s.bodies)-1)]
	s.sent = append(s.sent, string(b))
	rec := httptest.NewRecorder()
	if body != "" {
		rec.Header().Set("Content-Type", "application/problem+json")
		rec.Header().Set("Retry-After", "1")
		rec.WriteHeader(http.StatusTooManyRequests)
		_, _ = rec.WriteString(body)
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

func TestARequestThatIsRefusedForItsRateIsRepeated(t *testing.T) {
	const fast = `{"code":"rate_limited","message":"too many","remedy":"Wait.","perSecond":200}`
	const full = `{"code":"rate_limited","message":"too many commands wait","remedy":"Wait."}`
	for _, tt := range []struct {
		name   string
		bodies []string
		calls  int
		fails  bool
		took   time.Duration
	}{
		{"twice too fast", []string{fast, fast, ""}, 3, false, 2 * time.Second},
		{"always too fast", []string{fast}, 30, true, 29 * time.Second}, // within the timeout of a call
		{"another bound", []string{full, ""}, 1, true, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			server, began := &scriptedTransport{bodies: tt.bodies}, time.Now()
			c := New("http://server", "", Options{HTTP: &http.Client{Transport: server}})
			err := c.Call(t.Context(), "POST", "/x", map[string]int{"n": 1}, nil)
			if took := time.Since(began); (err != nil) != tt.fails || len(server.sent) != tt.calls || took != tt.took {
				t.Errorf("%s: %v after %d requests and %s", tt.name, err, len(server.sent), took)
			}
			if tt.fails && picket.CodeOf(err) != picket.CodeRateLimited {
				t.Errorf("%s: %v", tt.name, err)
			}
			for _, body := range server.sent {
				if body != `{"n":1}` {
					t.Errorf("%s: sent %q", tt.name, body)
				}
			}
		})
	}
}
