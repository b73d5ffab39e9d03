package toolproxy_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/toolproxy"
)

// renewingBackend renews every lease at once.
type renewingBackend struct{ toolproxy.Backend }

func (renewingBackend) Renew(context.Context, picket.LeaseCredential) (picket.Renewal, error) {
	idle := int64(1234)
	return picket.Renewal{
		LeaseExpiresAt: 1_799_999_999_123,
		LeaseTTLMs:     300_000,
		FencingToken:   4_503_599_627_370_497,
		IdleMs:         &idle,
	}, nil
}

// answerBuffer is a response of which the body is thrown away.
type answerBuffer struct {
	header http.Header
	status int
}

func (a *answerBuffer) Header() http.Header         { return a.header }
func (a *answerBuffer) Write(p []byte) (int, error) { return len(p), nil }
func (a *answerBuffer) WriteHeader(status int)      { a.status = status }

// BenchmarkRenew renews a lease through the tool proxy without a store: by its handler alone, and over a connection,
// where cpu-ns/op has the client too. The body is empty, or an empty object.
func BenchmarkRenew(b *testing.B) {
	sealer := newSealer(b)
	log := slog.New(slog.DiscardHandler)
	p, err := toolproxy.New(toolproxy.Config{
		Sealer:  sealer,
		Log:     log,
		Backend: func(string) toolproxy.Backend { return renewingBackend{} },
	})
	if err != nil {
		b.Fatal(err)
	}
	e := web.New(log)
	p.Mount(e)
	header := http.Header{
		"Authorization": {"Bearer " + sealer.LeaseTokenFor(picket.SideAdapter, "default", aTask, aRun).Reveal()},
		"Content-Type":  {"application/json"},
	}
	for name, body := range map[string]string{"empty": "", "object": "{}"} {
		b.Run("handler/"+name, func(b *testing.B) { renewByHandler(b, e, header, body) })
		b.Run("connection/"+name, func(b *testing.B) { renewByConnection(b, e, log, header, body) })
	}
}

func renewByHandler(b *testing.B, e *echo.Echo, header http.Header, body string) {
	r := httptest.NewRequest(http.MethodPost, "/v1/lease/renew", http.NoBody)
	r.Header = header
	b.ReportAllocs()
	for b.Loop() {
		if body != "" {
			r.Body, r.ContentLength = io.NopCloser(strings.NewReader(body)), int64(len(body))
		}
		w := &answerBuffer{header: http.Header{}}
		if e.ServeHTTP(w, r); w.status != http.StatusOK {
			b.Fatal(w.status)
		}
	}
}

func renewByConnection(b *testing.B, e *echo.Echo, log *slog.Logger, header http.Header, body string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	ctx, stop := context.WithCancel(b.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, listener, e, log) }()
	client := &http.Client{Transport: &http.Transport{}}
	defer func() {
		client.CloseIdleConnections()
		stop()
		<-served
	}()
	before := processTime(b)
	b.ReportAllocs()
	for b.Loop() {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+listener.Addr().String()+"/v1/lease/renew",
			strings.NewReader(body))
		if err != nil {
			b.Fatal(err)
		}
		r.Header = header
		res, err := client.Do(r)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
			b.Fatal(res.StatusCode, err)
		}
		_ = res.Body.Close()
	}
	b.ReportMetric(float64(processTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// processTime returns the processor time of this process in nanoseconds.
func processTime(b *testing.B) int64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
