package web_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// Slow bodies cannot take all memory together: a new body takes the memory of the one that has been
// arriving for longest.
func TestTheSlowestBodyMakesRoom(t *testing.T) {
	const size, slow = 1 << 20, 40 // together more than is held
	e := web.New(nil)
	e.POST("/large", func(c echo.Context) error {
		b, _, err := web.Decode[struct {
			Text string `json:"text"`
		}](c, size)
		if err != nil {
			return err
		}
		return web.JSON(c, 200, map[string]int{"length": len(b.Text)})
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, nil) }()
	head := fmt.Sprintf("POST /large HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n", size)
	text := `{"text":"` + strings.Repeat("x", size-11) + `"}`
	for i := range slow {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, head+text[:size-1]); err != nil { // all but the last byte
			t.Fatal(err)
		}
		if i != 0 {
			continue
		}
		// The first and oldest is told while the others still come.
		told := make(chan *http.Response, 1)
		go func() {
			resp, _ := http.ReadResponse(bufio.NewReader(c), nil)
			told <- resp
		}()
		defer func() {
			select {
			case resp := <-told:
				wantBodyMemoryRefusal(t, resp)
			case <-time.After(20 * time.Second):
				t.Error("the oldest body is still held")
			}
		}()
	}
	client := &http.Client{Timeout: 20 * time.Second}
	for range 3 {
		resp, err := client.Post("http://"+l.Addr().String()+"/large", "application/json", strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		got, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if want := fmt.Sprintf(`{"length":%d}`, size-11); resp.StatusCode != 200 || string(got) != want {
			t.Errorf("a body that comes at once: %d %.200s", resp.StatusCode, got)
		}
	}
	client.CloseIdleConnections()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
}

func wantBodyMemoryRefusal(t *testing.T, resp *http.Response) {
	t.Helper()
	if resp == nil {
		t.Error("the oldest body was not answered")
		return
	}
	defer resp.Body.Close()
	var p testProblem
	raw, _ := io.ReadAll(resp.Body)
	if err := json.Unmarshal(raw, &p, json.MatchCaseInsensitiveNames(true)); err != nil || resp.StatusCode != 503 ||
		p.Code != string(picket.CodeUnavailable) || p.Remedy == "" || resp.Header.Get("Retry-After") != "1" {
		t.Errorf("the oldest body: %v, %d %s", err, resp.StatusCode, raw)
	}
}
