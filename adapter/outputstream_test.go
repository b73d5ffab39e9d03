package adapter

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/adapter/workspace"
)

// A secret is hidden however the stream is cut.
func TestRedaction(t *testing.T) {
	const secret = "pkl_ns.abab.abac"
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	pieces := []string{secret, "pkl_", "pkl_ns.abab.", "p", "ab", "\n", "text ", secret + secret,
		"pkl_ns.ababpkl_ns.abab.abac"}
	for range 500 {
		var in strings.Builder
		for range rnd.IntN(8) {
			in.WriteString(pieces[rnd.IntN(len(pieces))])
		}
		want := strings.ReplaceAll(in.String(), secret, workspace.RedactedText)
		r := newRedactor(secret)
		var got strings.Builder
		for rest := in.String(); rest != ""; {
			n := 1 + rnd.IntN(len(rest))
			got.Write(r.redact([]byte(rest[:n])))
			rest = rest[n:]
		}
		got.Write(r.flush())
		if got.String() != want {
			t.Fatalf("seed %d: %q became %q, want %q", seed, in.String(), got.String(), want)
		}
	}
}

// runWriting is an agent that writes pieces to stdout, a pause apart, and ends.
func runWriting(pause time.Duration, pieces ...string) scriptedLauncher {
	return func(p *scriptedProcess) {
		for _, piece := range pieces {
			p.job.Stdout.Write([]byte(piece))
			time.Sleep(pause)
		}
		p.endWith(process.Exited{})
	}
}

func TestOutputIsRedactedInEveryCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var copied bytes.Buffer
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			token := p.job.Lease.LeaseToken.Reveal()
			p.job.Stdout.Write([]byte("token " + token[:9]))
			p.job.Stdout.Write([]byte(token[9:] + "!"))
			p.job.Stderr.Write([]byte("err " + token))
			p.endWith(process.Exited{Code: 1})
		}, func(c *Config) { c.Stdout, c.Stderr = &copied, &copied })
		lease := s.Grant(adaptertest.Task{})
		res, err := a.RunLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		run := s.View(lease.TaskID).Runs[0]
		file, _ := os.ReadFile(filepath.Join(res.StateDir, "stdout.log"))
		for where, got := range map[string]string{"proxy": run.Stdout, "file": string(file)} {
			if got != "token [redacted]!" {
				t.Errorf("%s has %q", where, got)
			}
		}
		if run.Stderr != "err [redacted]" || run.Released.Detail != "err [redacted]" {
			t.Errorf("stderr %q, detail %q", run.Stderr, run.Released.Detail)
		}
		if c := copied.String(); strings.Contains(c, lease.LeaseToken.Reveal()) ||
			strings.Count(c, workspace.RedactedText) != 2 {
			t.Errorf("the copy has %q", c)
		}
	})
}

// Whatever is lost on the way, the proxy has each byte once and in order.
func TestLogsSurviveFaults(t *testing.T) {
	var pieces []string
	for i := range 40 {
		pieces = append(pieces, strings.Repeat(string(rune('a'+i%26)), 5000)+"\n")
	}
	whole := strings.Join(pieces, "")
	for _, kind := range []adaptertest.Fault{0, adaptertest.Unavailable, adaptertest.DropRequest,
		adaptertest.DropReply, adaptertest.Hang} {
		synctest.Test(t, func(t *testing.T) {
			a, s := newScriptedAdapter(t, runWriting(100*time.Millisecond, pieces...))
			lease := s.Grant(adaptertest.Task{})
			s.Fail("/v1/run/logs", kind, 3)
			if _, err := a.RunLease(t.Context(), lease); err != nil {
				t.Fatal(err)
			}
			if got := s.View(lease.TaskID).Runs[0].Stdout; got != whole {
				t.Errorf("trouble %d: %d bytes arrived, want %d", kind, len(got), len(whole))
			}
			if n := len(s.Calls("/v1/run/logs")); n > 20 {
				t.Errorf("trouble %d: %d posts are not batched", kind, n)
			}
		})
	}
}

// A proxy that lost what it had says where to go on.
func TestOffsetIsResynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runWriting(time.Second, "one\n", "two\n", "three\n"))
		lease := s.Grant(adaptertest.Task{})
		go func() {
			s.AwaitCalls(t.Context(), "/v1/run/logs", 1)
			s.Fail("/v1/run/logs", adaptertest.ForgetLogs, 1)
		}()
		if _, err := a.RunLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if got := s.View(lease.TaskID).Runs[0].Stdout; got != "two\nthree\n" {
			t.Errorf("the proxy has %q", got)
		}
	})
}

// An outage of the proxy holds up no agent: old output is dropped, and a note
// says how much.
func TestOutageDropsOldestOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var took time.Duration
		line := []byte(strings.Repeat("x", 1023) + "\n")
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			start := time.Now()
			for range 4 << 10 { // 4 MiB
				p.job.Stdout.Write(line)
			}
			p.job.Stdout.Write([]byte("the end"))
			took = time.Since(start)
			time.Sleep(time.Minute)
			p.endWith(process.Exited{})
		})
		lease := s.Grant(adaptertest.Task{})
		restore := s.Fail("/v1/run/logs", adaptertest.Unavailable, -1)
		time.AfterFunc(30*time.Second, restore)
		res, err := a.RunLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if took != 0 {
			t.Errorf("the agent waited %s", took)
		}
		got := s.View(lease.TaskID).Runs[0].Stdout
		if len(got) > 2*maxPending+maxChunk+200 || !strings.Contains(got, "bytes of output were dropped") ||
			!strings.HasSuffix(got, "the end") {
			t.Errorf("%d bytes arrived, ending in %q", len(got), got[max(0, len(got)-20):])
		}
		if info, err := os.Stat(filepath.Join(res.StateDir, "stdout.log")); err != nil || info.Size() != 4<<20+7 {
			t.Errorf("the file: %v, %v", info, err)
		}
	})
}

// slowWriter is a terminal that stands still until it is released.
type slowWriter struct{ release chan struct{} }

func (w slowWriter) Write(p []byte) (int, error) { <-w.release; return len(p), nil }

// A copy that stands still costs the agent half a second once, not its run.
func TestSlowCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := slowWriter{make(chan struct{})}
		var took time.Duration
		a, s := newScriptedAdapter(t, func(p *scriptedProcess) {
			start := time.Now()
			for range 20 {
				p.job.Stdout.Write(bytes.Repeat([]byte("x"), 500<<10))
			}
			took = time.Since(start)
			p.endWith(process.Exited{})
		}, func(c *Config) { c.Stdout = w })
		lease := s.Grant(adaptertest.Task{})
		time.AfterFunc(10*time.Second, func() { close(w.release) })
		if _, err := a.RunLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if took > time.Second {
			t.Errorf("the agent waited %s", took)
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken") }

func TestBrokenCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runWriting(time.Second, "one", "two"),
			func(c *Config) { c.Stdout = brokenWriter{} })
		lease := s.Grant(adaptertest.Task{})
		if _, err := a.RunLease(t.Context(), lease); err != nil {
			t.Fatal(err)
		}
		if got := s.View(lease.TaskID).Runs[0].Stdout; got != "onetwo" {
			t.Errorf("the proxy has %q", got)
		}
	})
}

func TestKeptOutputIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, s := newScriptedAdapter(t, runWriting(time.Second, strings.Repeat("a", 80), strings.Repeat("b", 80)),
			func(c *Config) { c.LogLimit = 100 })
		lease := s.Grant(adaptertest.Task{})
		res, err := a.RunLease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := os.ReadFile(filepath.Join(res.StateDir, "stdout.log"))
		if !strings.HasPrefix(string(b), strings.Repeat("a", 80)+strings.Repeat("b", 20)+"\n[picket:") || len(b) > 160 {
			t.Errorf("the file has %q", b)
		}
	})
}

// The result of a command is the valid end of its output, within what the
// server takes, whatever the bytes are.
func TestResultIsTheValidTail(t *testing.T) {
	for name, tt := range map[string]struct {
		write string
		check func(string) bool
	}{
		"short": {"hi\n", func(s string) bool { return s == "hi\n" }},
		"empty": {"", func(s string) bool { return s == "" }},
		"long": {strings.Repeat("é", 1<<17) + "end",
			func(s string) bool { return len(s) <= maxTail && len(s) > maxTail-4 && strings.HasSuffix(s, "end") }},
		"invalid":  {strings.Repeat("\xff", 1<<17), func(s string) bool { return len(s) > 0 && len(s) <= maxTail }},
		"controls": {strings.Repeat("\x01", 1<<17), func(s string) bool { return len(s) > 1<<14 }},
	} {
		o := &outputStream{log: slog.New(slog.DiscardHandler)}
		o.Write([]byte(tt.write))
		r := &runOutput{stdout: o}
		raw, err := r.result()
		if err != nil || len(raw) > picket.MaxPayload {
			t.Fatalf("%s: %d bytes, %v", name, len(raw), err)
		}
		if s := o.text(maxTail); !utf8.ValidString(s) || !tt.check(s) {
			t.Errorf("%s: a tail of %d bytes", name, len(s))
		}
	}
}

// The shipper takes writes from several goroutines.
func TestShipperUnderLoad(t *testing.T) {
	var mu sync.Mutex
	var got int64
	s := newLogShipper(&logShipper{destination: "test", patience: time.Minute, log: slog.New(slog.DiscardHandler),
		post: func(_ context.Context, p picket.LogWrite) (int64, error) {
			mu.Lock()
			defer mu.Unlock()
			if p.Offset != got {
				t.Errorf("offset %d, want %d", p.Offset, got)
			}
			got += int64(len(p.Data))
			return got, nil
		}})
	var writers, pump sync.WaitGroup
	pump.Go(func() { s.run(t.Context()) })
	for range 4 {
		writers.Go(func() {
			for range 1000 {
				s.add(make([]byte, 1000), picket.InstantOf(time.Now()))
			}
		})
	}
	writers.Wait()
	s.close()
	pump.Wait()
	if got != 4_000_000 {
		t.Errorf("%d bytes arrived", got)
	}
}
