package adapter

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig"
)

// timedLog is a server's log that remembers when each byte was written.
type timedLog struct {
	data  []byte
	at    []picket.Instant
	ended int
	t     *testing.T
}

// accept keeps what fits into room and answers the next offset.
func (b *timedLog) accept(p picket.LogWrite, room int) int64 {
	b.t.Helper()
	if p.Offset != int64(len(b.data)) {
		b.t.Fatalf("offset %d, want %d", p.Offset, len(b.data))
	}
	if len(p.Marks) > picket.MaxLogMarks {
		b.t.Fatalf("%d marks", len(p.Marks))
	}
	if len(p.Data) > 0 && (len(p.Marks) == 0 || p.Marks[0].Offset != p.Offset) {
		b.t.Fatalf("%d bytes at %d with marks %v", len(p.Data), p.Offset, p.Marks)
	}
	for i := range p.Marks {
		if i > 0 && p.Marks[i].Offset <= p.Marks[i-1].Offset || p.Marks[i].Offset > p.Offset+int64(len(p.Data)) {
			b.t.Fatalf("%d bytes at %d with marks %v", len(p.Data), p.Offset, p.Marks)
		}
	}
	if p.End {
		b.ended++
	}
	marks, at := p.Marks, picket.Instant(0)
	for i, c := range p.Data[:min(len(p.Data), room)] {
		for len(marks) > 0 && marks[0].Offset <= p.Offset+int64(i) {
			at, marks = marks[0].At, marks[1:]
		}
		b.data, b.at = append(b.data, c), append(b.at, at)
	}
	return int64(len(b.data))
}

// Every byte arrives with the time at which it was written, however it was cut
// on the way, and the end is told once.
func TestTimesOfOutput(t *testing.T) {
	seed := rig.Seed(t)
	rnd := rand.New(rand.NewPCG(seed, 2))
	for range 20 {
		taken := rand.New(rand.NewPCG(rnd.Uint64(), 0)) // the shipper's goroutine has its own
		synctest.Test(t, func(t *testing.T) {
			b := &timedLog{t: t}
			s := newLogShipper(&logShipper{
				stream:        "stdout",
				destination:   "test",
				batchInterval: 100 * time.Millisecond,
				log:           slog.New(slog.DiscardHandler),
				post: func(_ context.Context, p picket.LogWrite) (int64, error) {
					if taken.IntN(4) == 0 {
						return 0, picket.Refuse(picket.CodeUnavailable, "", "away")
					}
					return b.accept(p, 1+taken.IntN(len(p.Data)+1)), nil
				},
			})
			done := make(chan struct{})
			go func() { s.run(t.Context()); close(done) }()
			var want []picket.Instant
			var text strings.Builder
			for range 2000 {
				time.Sleep(time.Duration(rnd.IntN(3)) * time.Millisecond)
				at := picket.InstantOf(time.Now())
				line := fmt.Sprintf("%d%s\n", int64(at), strings.Repeat("x", rnd.IntN(40)))
				s.add([]byte(line), at)
				text.WriteString(line)
				for range line {
					want = append(want, at)
				}
			}
			s.close()
			<-done
			if string(b.data) != text.String() || b.ended == 0 {
				t.Fatalf("%d of %d bytes arrived, the end %d times", len(b.data), text.Len(), b.ended)
			}
			for i := range want {
				if b.at[i] != want[i] {
					t.Fatalf("byte %d is of %d, want %d", i, b.at[i], want[i])
				}
			}
		})
	}
}

// What is dropped takes its times with it, not those of what follows.
func TestTimesOfDroppedOutput(t *testing.T) {
	s := newLogShipper(&logShipper{stream: "stdout", destination: "test", log: slog.New(slog.DiscardHandler)})
	line := func(n int) string { return fmt.Sprintf("%08d\n", n) }
	for n := 1; n <= 3*maxPending/9; n++ {
		s.add([]byte(line(n)), picket.Instant(n))
	}
	s.close()
	b := &timedLog{t: t}
	for {
		p, more := s.take()
		b.accept(s.atOffset(p), len(p.Data))
		s.offset += int64(len(p.Data))
		if !more {
			break
		}
	}
	if !strings.HasPrefix(string(b.data), "\n[picket: ") || b.ended != 1 {
		t.Fatalf("it begins with %.40q, ended %d times", b.data, b.ended)
	}
	whole := strings.Index(string(b.data[2:]), "\n") + 3
	whole += strings.Index(string(b.data[whole:]), "\n") + 1 // the first may be cut
	for i := whole; i < len(b.data); i += 9 {
		if n, err := strconv.Atoi(string(b.data[i : i+8])); err != nil || b.at[i] != picket.Instant(n) {
			t.Fatalf("%q is of %d: %v", b.data[i:i+8], b.at[i], err)
		}
	}
}

// The full log stays as it was written; its times stand beside it.
func TestTimesOfTheFullLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runWriting(time.Second, "one\ntwo\n", "three\n"))
		lease := s.Grant(adaptertest.Task{})
		res, err := a.RunLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := os.ReadFile(filepath.Join(res.StateDir, "stdout.log"))
		times, _ := os.ReadFile(filepath.Join(res.StateDir, "stdout.times"))
		var o1, o2, t1, t2 int64
		if _, err := fmt.Sscanf(string(times), "%d %d\n%d %d\n", &o1, &t1, &o2, &t2); err != nil {
			t.Fatalf("%q: %v", times, err)
		}
		if string(text) != "one\ntwo\nthree\n" || o1 != 0 || o2 != 8 || t2-t1 != 1000 {
			t.Errorf("%q with %q", text, times)
		}
	})
}

// A server of an earlier version, which does not know that output can be said to
// end, gets all of it.
func TestOutputForAnEarlierServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &timedLog{t: t}
		s := newLogShipper(&logShipper{stream: "stdout", destination: "test", log: slog.New(slog.DiscardHandler),
			post: func(_ context.Context, p picket.LogWrite) (int64, error) {
				if p.End {
					return 0, picket.Invalid("?end", "See the protocol.", "end is not a parameter of this route")
				}
				return b.accept(p, len(p.Data)), nil
			}})
		s.add([]byte("all of it"), 1)
		s.close()
		s.run(t.Context())
		if string(b.data) != "all of it" {
			t.Errorf("it got %q", b.data)
		}
	})
}
