package scriptedworker

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
)

// startFront is a front of a server that answers with the credentials of the request.
func startFront(t *testing.T) *Front {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, r.URL.Path+" "+r.Header.Get("X-API-Key")+r.Header.Get("Authorization")+"\n")
		w.(http.Flusher).Flush()
		if r.URL.Path == "/stream" {
			<-r.Context().Done()
		}
	}))
	t.Cleanup(server.Close)
	f, err := NewFront("127.0.0.1:0", server.URL, "own")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- f.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	return f
}

// The front adds its key to requests without one. It passes streams on as they come, and other credentials as they
// are. It answers under its own address alone.
func TestTheFrontAddsAKey(t *testing.T) {
	f := startFront(t)
	for _, c := range []struct{ path, header, value, host, want string }{
		{"/a", "", "", "", "/a own\n"},
		{"/stream", "", "", "", "/stream own\n"},
		{"/b", "X-API-Key", "other", "", "/b other\n"},
		{"/c", "Authorization", "Bearer x", "", "/c Bearer x\n"},
		{"/d", "", "", "evil.example", "send the requests to http://" + f.Addr() + "\n"},
	} {
		ctx, stop := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "GET", "http://"+f.Addr()+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		req.Host = c.host
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		got, err := bufio.NewReader(res.Body).ReadString('\n')
		if err != nil || got != c.want {
			t.Errorf("%s: %q %v, want %q", c.path, got, err, c.want)
		}
		stop()
		_ = res.Body.Close()
	}
}

// Everybody who reaches the front uses its key, so it serves this machine alone.
func TestTheFrontServesThisMachineAlone(t *testing.T) {
	for _, addr := range []string{"", ":9999", "0.0.0.0:0", "[::]:0", "192.0.2.1:0", "example.com:80", "127.0.0.1"} {
		if f, err := NewFront(addr, "http://127.0.0.1:7070", "own"); err == nil {
			t.Errorf("%q: it listens on %s", addr, f.Addr())
		}
	}
	if _, err := NewFront("127.0.0.1:0", "http://127.0.0.1:7070", ""); err == nil {
		t.Error("it serves without a key")
	}
}
