package api_test

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
)

// The plain log is the bytes themselves; with timestamps each line begins with
// the time at which it was written.
func TestLogTimestamps(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		path := "/api/v1/tasks/" + id + "/logs"
		_, held := p.lease()
		noon := picket.InstantOf(time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC))
		_, err := p.RunLog(t.Context(), held, picket.LogWrite{Stream: "stdout", Data: []byte("one\ntwo\nthr"),
			Marks: []picket.LogMark{{Offset: 0, At: noon}, {Offset: 4, At: noon + 1500}}})
		must(t, err)
		_, err = p.RunLog(t.Context(), held,
			picket.LogWrite{
				Stream: "stdout",
				Offset: 11,
				Data:   []byte("ee\n\n"),
				Marks:  []picket.LogMark{{Offset: 11, At: noon + 9000}},
			})
		must(t, err)
		if a := p.want(200, "GET", path, "agent", ""); a.raw != "one\ntwo\nthree\n\n" {
			t.Errorf("plain: %q", a.raw)
		}
		const whole = "2026-01-02T12:00:00.000Z one\n2026-01-02T12:00:01.500Z two\n2026-01-02T12:00:01.500Z three\n2026-01-02T12:00:09.000Z \n"
		a := p.want(200, "GET", path+"?timestamps=true", "agent", "")
		if a.raw != whole || a.header.Get("X-Picket-Next") != "15" {
			t.Errorf("stamped: %q, next %s", a.raw, a.header.Get("X-Picket-Next"))
		}
		// Cut anywhere, the pieces make the whole: a line is stamped where it begins.
		for cut := 1; cut < 15; cut++ {
			var pieces strings.Builder
			for _, q := range []string{"?offset=0&limit=" + strconv.Itoa(cut), "?offset=" + strconv.Itoa(cut)} {
				pieces.WriteString(p.want(200, "GET", path+q+"&timestamps=true", "agent", "").raw)
			}
			if pieces.String() != whole {
				t.Errorf("cut at %d: %q", cut, pieces.String())
			}
		}
	})
}

// Over HTTP, a reader waits for output and is told when there is no more.
func TestFollowLogs(t *testing.T) {
	onBothStores(t, func(t *testing.T, p *fixture) {
		id := p.submit(`{"title":"x"}`)
		path := "/api/v1/tasks/" + id + "/logs"
		_, held := p.lease()
		got := make(chan pollResult, 1)
		go func() {
			a, err := p.send(t.Context(), "GET", path+"?follow=task&waitSeconds=50", p.keys["agent"], "")
			got <- pollResult{a, err}
		}()
		_, err := p.RunLog(t.Context(), held, picket.LogWrite{Stream: "stdout", Data: []byte("hello\n")})
		must(t, err)
		if r := <-got; r.err != nil || r.answer.raw != "hello\n" || r.answer.header.Get("X-Picket-Log") != "open" {
			t.Fatalf("%q %v %v", r.answer.raw, r.answer.header, r.err)
		}
		if a := p.want(200, "GET", path+"?offset=6&follow=run&waitSeconds=0", "agent", ""); a.raw != "" ||
			a.header.Get("X-Picket-Log") != "open" {
			t.Errorf("no wait: %q %v", a.raw, a.header)
		}
		_, err = p.Complete(t.Context(), held, picket.Completion{})
		must(t, err)
		_, err = p.RunLog(t.Context(), held, picket.LogWrite{Stream: "stdout", Offset: 6, End: true})
		must(t, err)
		a := p.want(200, "GET", path+"?offset=6&follow=task", "agent", "")
		if a.raw != "" || a.header.Get("X-Picket-Log") != "closed" || a.header.Get("X-Picket-Task-State") != "review" ||
			a.header.Get("X-Picket-Latest-Run") != held.RunID {
			t.Errorf("the end: %q %v", a.raw, a.header)
		}
	})
}
