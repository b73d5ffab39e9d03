package web_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket/internal/web"
)

// Whatever is written while a request is answered says which one it was, and
// in which trace, once.
func TestLogLinesNameTheirRequest(t *testing.T) {
	var out bytes.Buffer
	log := web.WithLogIDs(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	e := web.New(log)
	e.GET("/fails", func(c echo.Context) error {
		web.WithLogIDs(log).With("task", "t1").DebugContext(c.Request().Context(), "on the way")
		return errors.New("a bug")
	})
	e.GET("/panics", func(echo.Context) error { panic("a bug") })
	const trace = "0af7651916cd43dd8448eb211c80319c"
	ask := func(path string, headers ...string) string {
		t.Helper()
		out.Reset()
		r := httptest.NewRequest("GET", path, nil)
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		id := w.Header().Get("X-Request-Id")
		if id == "" || !strings.Contains(w.Body.String(), `"requestId":"`+id+`"`) {
			t.Errorf("%s: the answer names no request: %s", path, w.Body)
		}
		for line := range strings.Lines(out.String()) {
			if strings.Count(line, " requestId="+id) != 1 {
				t.Errorf("%s: not the request %s once: %s", path, id, line)
			}
		}
		return out.String()
	}
	if got := ask("/fails", "X-Request-Id", "mine", "Traceparent",
		"00-"+trace+"-b7ad6b7169203331-01"); strings.Count(got, "requestId=mine traceId="+trace) != 2 ||
		!strings.Contains(got, "task=t1") {
		t.Errorf("logged: %s", got)
	}
	for _, bad := range []string{"", "00-" + strings.ToUpper(trace) + "-b7ad6b7169203331-01"} {
		if got := ask("/fails", "Traceparent", bad); strings.Count(got, "\n") != 2 || strings.Contains(got, "traceId") {
			t.Errorf("logged for traceparent %q: %s", bad, got)
		}
	}
	if got := ask("/panics"); !strings.Contains(got, "handler panicked") {
		t.Errorf("logged: %s", got)
	}
	out.Reset()
	log.InfoContext(t.Context(), "for nobody")
	if strings.Contains(out.String(), "requestId") {
		t.Errorf("without a request: %s", out.String())
	}
}
