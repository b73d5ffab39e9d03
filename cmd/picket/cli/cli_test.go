package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
	"github.com/picket-dev/picket/cmd/picket/cli/exit"
)

func TestToolFields(t *testing.T) {
	for line, want := range map[string]string{
		"--next-step x":                   "nextStep=x",
		"--a=b --a c":                     "a=b a=c",
		"--x_y --looks-like-a-flag":       "xY=--looks-like-a-flag",
		`{"a":1}`:                         `={"a":1}`,
		"--idempotency-key k --summary s": "summary=s",
		"--empty=":                        "empty=",
	} {
		fields, _, err := toolFields(strings.Fields(line))
		var got []string
		for _, f := range fields {
			got = append(got, f.name+"="+f.text)
		}
		if err != nil || strings.Join(got, " ") != want {
			t.Errorf("%s: %v, %v; want %s", line, got, err, want)
		}
	}
	for _, line := range []string{"--summary", `{"a":1} --b c`, "one two"} {
		if _, _, err := toolFields(strings.Fields(line)); !errors.Is(err, exit.CodeUsage) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

func TestIDsByBeginningOrEnd(t *testing.T) {
	list := func(context.Context) ([]candidate, error) {
		return []candidate{{id: "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"}, {id: "task_01ARZ3NDEKTSV4RRFFQ69G5FBW"},
			{id: "task_02ARZ3NDEKTSV4RRFFQ69G5FCX"}}, nil
	}
	for typed, want := range map[string]string{
		"5fav":                            "task_01ARZ3NDEKTSV4RRFFQ69G5FAV",
		"task_02A":                        "task_02ARZ3NDEKTSV4RRFFQ69G5FCX",
		"02":                              "task_02ARZ3NDEKTSV4RRFFQ69G5FCX",
		"task_7ZZZZZZZZZZZZZZZZZZZZZZZZZ": "task_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", // whole: the server decides
	} {
		if got, err := resolveID(t.Context(), "task", typed, list); err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", typed, got, err, want)
		}
	}
	if _, err := resolveID(t.Context(), "task", "01", list); !errors.Is(err, exit.CodeUsage) ||
		!strings.Contains(err.Error(), "2 tasks") {
		t.Errorf("an ambiguous id: %v", err)
	}
	if _, err := resolveID(t.Context(), "task", "zz", list); !errors.Is(err, picket.CodeNotFound) {
		t.Errorf("an unknown id: %v", err)
	}
}

// TestStreamGoesOnWhereItBroke cuts an event stream in the middle of an event
// and checks that nothing is lost or told twice. A refused key is tried once
// more: a store that was emptied may get it back in a moment.
func TestStreamGoesOnWhereItBroke(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		w.Header().Set("Content-Type", "text/event-stream")
		switch len(asked) {
		case 1:
			io.WriteString(w,
				"retry: 1000\n: hello\n\nid: 1\ndata: {\"id\":\"1\",\"seq\":1}\n\nid: 2\ndata: {\"id\":\"2\",")
		case 2:
			w.WriteHeader(http.StatusBadGateway)
		case 3:
			io.WriteString(w,
				"id: 2\ndata: {\"id\":\"2\",\"seq\":2}\n\nevent: reset\nid: 9\ndata: {\"after\":\"2\"}\n\n: keep-alive\nid: 11\n\n")
		default:
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			io.WriteString(w, `{"code":"unauthenticated","message":"no"}`)
		}
	}))
	defer srv.Close()
	s := NewConnection(srv.URL, "")
	var got, links []string
	err := s.Events.Follow(t.Context(), client.Follower{
		After: "0",
		Link:  func(up bool) { links = append(links, fmt.Sprint(up)) },
		Event: func(e picket.Event, _ []byte) error {
			got = append(got, e.ID+e.Type)
			return nil
		},
	})
	if !errors.Is(err, picket.CodeUnauthenticated) {
		t.Errorf("follow ended with %v", err)
	}
	if fmt.Sprint(got) != "[1 2 reset]" || fmt.Sprint(asked) != "[0 1 1 11 11]" {
		t.Errorf("events %v, asked after %v", got, asked)
	}
	if fmt.Sprint(links) != "[true false false true false]" {
		t.Errorf("links %v", links)
	}
}

// TestStreamFromNowHasNoGap breaks a stream before its first event: what comes
// meanwhile is not passed over.
func TestStreamFromNowHasNoGap(t *testing.T) {
	var asked []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = append(asked, r.Header.Get("Last-Event-ID"))
		if len(asked) > 1 {
			w.WriteHeader(http.StatusForbidden)
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "retry: 1000\nid: 41\n\n")
	}))
	defer srv.Close()
	s := NewConnection(srv.URL, "")
	err := s.Events.Follow(t.Context(), client.Follower{Event: func(picket.Event, []byte) error { return nil }})
	if err == nil || len(asked) < 2 || asked[0] != "" || asked[1] != "41" {
		t.Errorf("asked after %q, %v", asked, err)
	}
}

func TestInstants(t *testing.T) {
	at, err := instantFlag("since", "2026-04-11T10:42:17Z", 1)
	if err != nil || at.String() != "2026-04-11T10:42:17.000Z" {
		t.Errorf("%v, %v", at, err)
	}
	soon, err := instantFlag("since", "1h", 1)
	if left := time.Until(soon.Time()); err != nil || left < 59*time.Minute || left > time.Hour {
		t.Errorf("1h from now is %v away, %v", left, err)
	}
	if _, err := instantFlag("since", "tomorrow", 1); !errors.Is(err, exit.CodeUsage) {
		t.Errorf("tomorrow: %v", err)
	}
}
