package adapter

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/adaptertest"
)

// usageServer is a proxy's side of a meter: it answers as it is told, and remembers
// what it was told.
type usageServer struct {
	answers  []error // of the posts in turn; after them nil
	requests []picket.UsageReport
}

func (b *usageServer) post(_ context.Context, u picket.UsageReport) (picket.Usage, error) {
	b.requests = append(b.requests, u)
	if len(b.answers) == 0 {
		return picket.Usage{}, nil
	}
	err := b.answers[0]
	b.answers = b.answers[1:]
	return picket.Usage{}, err
}

func newUsageServer(t *testing.T, answers ...error) (*usageServer, *usageReporter) {
	b := &usageServer{answers: answers}
	m := newUsageReporter(b.post, slog.New(slog.DiscardHandler), func(picket.Usage) {})
	m.file = filepath.Join(t.TempDir(), usageFile)
	return b, m
}

func usageFigures(tokens int64) picket.UsageReport {
	return picket.UsageReport{Source: "claude", Session: "s", Scope: "session", Tokens: tokens}
}

// A report whose answer was lost, or that nobody took, is said again until it is
// taken; of newer figures only the newest.
func TestUsageIsReportedUntilItIsAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := newUsageServer(t, picket.ErrUnknown, picket.CodeUnavailable)
		m.add(usageFigures(1))
		done := make(chan struct{})
		go func() { m.run(t.Context()); close(done) }()
		synctest.Wait() // the first is lost, and the meter pauses
		if _, err := os.Stat(m.file); err != nil {
			t.Errorf("what is not taken is not noted: %v", err)
		}
		m.add(usageFigures(2))
		m.add(usageFigures(3))
		m.close()
		<-done
		if want := []picket.UsageReport{usageFigures(1), usageFigures(3), usageFigures(3)}; !slices.Equal(b.requests,
			want) {
			t.Errorf("it said %+v, want %+v", b.requests, want)
		}
		if _, err := os.Stat(m.file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was taken is noted still: %v", err)
		}
	})
}

// Each session has figures of its own; a refusal is not a reason to keep the others
// back, and after the end nothing is taken in.
func TestOneRefusedReportDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := newUsageServer(t, picket.Refuse(picket.CodeValidation, "", "no"))
		other := picket.UsageReport{Source: "claude", Session: "another", Tokens: 5}
		m.add(usageFigures(1))
		m.add(other)
		m.close()
		m.add(usageFigures(9))
		m.run(t.Context())
		if want := []picket.UsageReport{usageFigures(1), other}; !slices.Equal(b.requests, want) {
			t.Errorf("it said %+v, want %+v", b.requests, want)
		}
	})
}

// A proxy that is away for long is given up with the run, and what was not taken
// is left for the adapter that comes after.
func TestUsageOfADeadAdapterIsReportedByTheNext(t *testing.T) {
	var noted string
	synctest.Test(t, func(t *testing.T) {
		_, m := newUsageServer(t, slices.Repeat([]error{picket.ErrUnknown}, 1000)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m.add(usageFigures(7))
		m.run(ctx)
		b, err := os.ReadFile(m.file)
		if err != nil {
			t.Fatal(err)
		}
		noted = string(b)
	})
	s := adaptertest.Start(t)
	lease := s.Grant(adaptertest.Task{})
	o := &orphanedRun{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.dir, usageFile), []byte(noted), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := NewProxy(lease, s.URL, nil)
	for range 2 { // the second time there is nothing left
		if err := o.postUsage(t.Context(), proxy); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.View(lease.TaskID).Runs[0].Usage; !slices.Equal(got, []picket.UsageReport{usageFigures(7)}) {
		t.Errorf("it said %+v", got)
	}
}

// Of an envelope that is overrun the run is told, once the report is taken.
func TestUsageReporterReportsAnOverrun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []picket.Usage
		overrun := func(context.Context, picket.UsageReport) (picket.Usage, error) {
			return picket.Usage{Overrun: true}, nil
		}
		m := newUsageReporter(overrun, slog.New(slog.DiscardHandler),
			func(u picket.Usage) { told = append(told, u) })
		m.add(usageFigures(1))
		m.close()
		m.run(t.Context())
		if len(told) != 1 || !told[0].Overrun {
			t.Errorf("told %+v", told)
		}
	})
}
