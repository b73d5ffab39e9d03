package web_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

func TestListsAreSplit(t *testing.T) {
	for body, want := range map[string]string{
		`{"rows":[1]}`: `1`,
		" {\n\t\"rows\" : [ {\"a\" : [1 , 2] } ,\"x\" ]\r\n} ": `{"a" : [1 , 2] }|"x"`,
		`{"rows":[{"a":1,"a":2},"` + "\xff" + `",null]}`:       `{"a":1,"a":2}|"` + "\xff" + `"|null`,
		`{"ro\u0077s":[1.50,2]}`:                               `1.50|2`,
	} {
		elements, err := web.DecodeList([]byte(body), "rows", 3)
		if got := string(bytes.Join(elements, []byte("|"))); err != nil || got != want {
			t.Errorf("%q: %q, %v; want %q", body, got, err, want)
		}
	}
	for body, field := range map[string]string{
		``: "/rows", `{}`: "/rows", `{"rows":[]}`: "/rows", `{"rows":[1,2,3,4]}`: "/rows", `{"rows":1}`: "/rows",
		`{"rows":[1],"rows":[2]}`: "/rows", `{"ROWS":[1]}`: "/ROWS", `{"rows":[1],"a":2}`: "/a", `[1]`: "", `"x"`: "",
		`{"rows":[1]}x`: "", `{"rows":[1,]}`: "/rows", `{"rows":[1}`: "/rows", `{rows:[1]}`: "", `{"rows":[1]`: "",
		`{"rows"`: "/rows", "\x00": "",
	} {
		elements, err := web.DecodeList([]byte(body), "rows", 3)
		var refusal *picket.Error
		if !errors.As(err, &refusal) || refusal.Code != picket.CodeValidation || refusal.Facts["field"] != field ||
			refusal.Remedy == "" || elements != nil {
			t.Errorf("%q: %q, %+v; want field %q", body, elements, err, field)
		}
	}
}

func TestWithoutMember(t *testing.T) {
	for object, want := range map[string]string{
		`{"k":1}`:                              `{}`,
		`{"k":1,"a":2}`:                        `{"a":2}`,
		`{"a":2,"k":1}`:                        `{"a":2}`,
		`{"a":2,"k":1,"b":{"k":3}}`:            `{"a":2,"b":{"k":3}}`,
		`{ "k" : 1 , "a" : 2 }`:                `{ "a" : 2 }`,
		`{"a":2 , "k" : "x,}" , "b":3}`:        `{"a":2 , "b":3}`,
		`{"\u006b":1,"a":2}`:                   `{"a":2}`,
		`{"a":{"k":1}}`:                        `{"a":{"k":1}}`,
		`{}`:                                   `{}`,
		`{"a":1.50,"k":[[["]"]]],"b":[1 , 2]}`: `{"a":1.50,"b":[1 , 2]}`,
	} {
		before := strings.Clone(object)
		raw := []byte(object)
		if got := string(web.WithoutMember(raw, "k")); strings.Replace(got, "{  ", "{ ", 1) != want {
			t.Errorf("%s: %s, want %s", object, got, want)
		}
		if string(raw) != before {
			t.Errorf("%s was changed to %s", before, raw)
		}
	}
}

// Requests with large bodies that are at work do not keep others out: they have memory of their own.
func TestLargeBodiesAreCountedApart(t *testing.T) {
	const size, held = 8 << 20, 4 // all that is held of large bodies, and twice what is held of others
	e := web.New(nil)
	atWork, release := make(chan struct{}), make(chan struct{})
	e.POST("/large", func(c echo.Context) error {
		web.CountAsLarge(c)
		if _, err := web.ReadBody(c, size, echo.MIMEApplicationJSON); err != nil {
			return err
		}
		atWork <- struct{}{}
		<-release
		return web.JSON(c, 200, "large")
	})
	e.POST("/small", func(c echo.Context) error {
		if _, err := web.ReadBody(c, size, echo.MIMEApplicationJSON); err != nil {
			return err
		}
		return web.JSON(c, 200, "small")
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- web.Serve(ctx, l, e, nil) }()
	client := &http.Client{Transport: &http.Transport{}, Timeout: 20 * time.Second}
	t.Cleanup(func() {
		client.CloseIdleConnections()
		stop()
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	send := func(path string, size int) int {
		body := strings.NewReader(strings.Repeat("x", size))
		resp, err := client.Post("http://"+l.Addr().String()+path, "application/json", body)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			return 0
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	var group sync.WaitGroup
	for range held {
		group.Go(func() {
			if status := send("/large", size); status != 200 {
				t.Errorf("a large body: %d", status)
			}
		})
	}
	for range held {
		select {
		case <-atWork:
		case <-time.After(20 * time.Second):
			t.Error("a large body is not at work")
		}
	}
	if status := send("/small", 1<<20); status != 200 {
		t.Errorf("beside large bodies: %d", status)
	}
	if status := send("/large", 1<<20); status != 503 {
		t.Errorf("a large body without room: %d", status)
	}
	close(release)
	group.Wait()
}

// The check of empty ids takes time that grows with the length of the body only. With a pointer for each
// token, this body takes minutes.
func TestEmptyIDsAreFoundInLinearTime(t *testing.T) {
	body := `{"title":"x","input":{"` + strings.Repeat("n", 400_000) + `":[` + strings.Repeat(`"",`, 200_000) +
		`""]},"fixes":""}`
	var spec picket.TaskSpec
	err := web.Unmarshal([]byte(body), &spec)
	var refusal *picket.Error
	if !errors.As(err, &refusal) || refusal.Facts["field"] != "/fixes" {
		t.Errorf("%.300v", err)
	}
	for body, field := range map[string]any{
		`{"title":"","role":""}`:                                   "/role",
		`{"agent":"a","labels":{"agent":""}}`:                      nil,
		`{"input":{"role":""},"needs":[""],"fixes":"","agent":""}`: "/agent",
	} {
		err := web.Unmarshal([]byte(body), &picket.TaskSpec{})
		var got any
		if errors.As(err, &refusal) {
			got = refusal.Facts["field"]
		}
		if err == nil && field != nil || err != nil && got != field {
			t.Errorf("%s: %v", body, err)
		}
	}
}
