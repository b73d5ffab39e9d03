package adapter

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

func TestProxyBodies(t *testing.T) {
	var body, path, fence string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		body, path, fence = string(b), r.URL.RequestURI(), r.Header.Get("X-Fencing-Token")
		io.WriteString(w, "{}")
	}))
	defer srv.Close()
	p := NewProxy(picket.Lease{FencingToken: 17, LeaseToken: "pkl_x"}, srv.URL, srv.Client())
	code, ms, sig := 137, int64(12), "SIGKILL"
	exit := picket.Exit{Class: picket.ExitCrash, Code: &code, Signal: &sig, DurationMs: &ms, Detail: "last"}
	ctx := t.Context()
	for _, tt := range []struct {
		call func() error
		path string
		body string
	}{
		{func() error { _, err := p.Renew(ctx); return err }, "/v1/lease/renew", `{}`},
		{func() error { _, err := p.Release(ctx, exit); return err }, "/v1/lease/release",
			`{"exit":{"class":"crash","code":137,"signal":"SIGKILL","durationMs":12},"detail":"last"}`},
		{func() error { return p.Exit(ctx, exit, "group") }, "/v1/run/exit",
			`{"class":"crash","code":137,"signal":"SIGKILL","durationMs":12,"detail":"last","containment":"group"}`},
		{func() error { _, _, err := p.Watch(ctx, 50*time.Second); return err }, "/v1/lease/watch?waitSeconds=50", ``},
		{func() error {
			_, err := p.LogPiece(ctx, picket.LogWrite{Stream: "stdout", Offset: 5, Data: []byte("hi")})
			return err
		}, "/v1/run/logs?offset=5&stream=stdout", `hi`},
		{func() error { return p.Events(ctx, picket.RunEvent{Type: "run.launched", Containment: "group"}) },
			"/v1/run/events",
			`{"events":[{"type":"run.launched","containment":"group"}]}`},
		{func() error { _, err := p.Report(ctx, picket.Progress{Summary: "s"}); return err },
			"/v1/tools/report_progress",
			`{"summary":"s","beliefs":[],"attempted":[],"nextStep":"","blockers":[]}`},
		{func() error { _, err := p.Complete(ctx, picket.RawJSON(`12345678901234567890`), ""); return err },
			"/v1/tools/mark_complete",
			`{"output":12345678901234567890}`},
		{func() error { _, err := p.Fail(ctx, "r", true); return err }, "/v1/tools/mark_failed",
			`{"reason":"r","retryable":true}`},
		{func() error { _, err := p.RequestHelp(ctx, picket.HelpRequest{Question: "q"}); return err },
			"/v1/tools/request_human_help", `{"question":"q"}`},
		{func() error { _, err := p.Task(ctx); return err }, "/v1/tools/get_task", `{}`},
	} {
		if err := tt.call(); err != nil || path != tt.path || body != tt.body || fence != "17" {
			t.Errorf("%s %s (fence %s), %v; want %s %s", path, body, fence, err, tt.path, tt.body)
		}
	}
}

// A watch that is refused says that the lease is lost, once.
func TestRefusedWatch(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(412)
		io.WriteString(w, `{"code":"stale_fence"}`)
	}))
	defer srv.Close()
	var got []picket.Watch
	watchLease(t.Context(), NewProxy(picket.Lease{}, srv.URL, srv.Client()), func() []string { return nil },
		func(w picket.Watch) { got = append(got, w) })
	if len(got) != 1 || got[0].State != picket.WatchLost {
		t.Errorf("%+v", got)
	}
}
