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

// till is a proxy's side of a meter: it answers as it is told, and remembers
// what it was told.
type till struct {
	answers []error // of the posts in turn; after them nil
	took    []picket.UsageReport
}

func (b *till) post(_ context.Context, u picket.UsageReport) (picket.Usage, error) {
	b.took = append(b.took, u)
	if len(b.answers) == 0 {
		return picket.Usage{}, nil
	}
	err := b.answers[0]
	b.answers = b.answers[1:]
	return picket.Usage{}, err
}

func newTill(t *testing.T, answers ...error) (*till, *meter) {
	b := &till{answers: answers}
	return b, &meter{
		post:  b.post,
		spent: func(picket.Usage) {},
		note:  filepath.Join(t.TempDir(), usageFile),
		log:   slog.New(slog.DiscardHandler),
		more:  make(chan struct{}, 1),
	}
}

func said(tokens int64) picket.UsageReport {
	return picket.UsageReport{Source: "claude", Session: "s", Scope: usageOfSession, Tokens: tokens}
}

// A report whose answer was lost, or that nobody took, is said again until it is
// taken; of newer figures only the newest.
func TestWhatWasUsedIsSaidUntilItIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := newTill(t, picket.ErrUnknown, picket.CodeUnavailable)
		m.add(said(1))
		done := make(chan struct{})
		go func() { m.run(t.Context()); close(done) }()
		synctest.Wait() // the first is lost, and the meter pauses
		if _, err := os.Stat(m.note); err != nil {
			t.Errorf("what is not taken is not noted: %v", err)
		}
		m.add(said(2))
		m.add(said(3))
		m.close()
		<-done
		if want := []picket.UsageReport{said(1), said(3), said(3)}; !slices.Equal(b.took, want) {
			t.Errorf("it said %+v, want %+v", b.took, want)
		}
		if _, err := os.Stat(m.note); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("what was taken is noted still: %v", err)
		}
	})
}

// Each session has figures of its own; a refusal is no reason to keep the others
// back, and after the end nothing is taken in.
func TestOneRefusedReportDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, m := newTill(t, picket.Refuse(picket.CodeValidation, "", "no"))
		other := picket.UsageReport{Source: "claude", Session: "another", Tokens: 5}
		m.add(said(1))
		m.add(other)
		m.close()
		m.add(said(9))
		m.run(t.Context())
		if want := []picket.UsageReport{said(1), other}; !slices.Equal(b.took, want) {
			t.Errorf("it said %+v, want %+v", b.took, want)
		}
	})
}

// A proxy that is away for long is given up with the run, and what was not taken
// is left for the adapter that comes after.
func TestWhatADeadAdapterHasNotSaidIsSaidByTheNext(t *testing.T) {
	var noted string
	synctest.Test(t, func(t *testing.T) {
		_, m := newTill(t, slices.Repeat([]error{picket.ErrUnknown}, 1000)...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		m.add(said(7))
		m.run(ctx)
		b, err := os.ReadFile(m.note)
		if err != nil {
			t.Fatal(err)
		}
		noted = string(b)
	})
	s := adaptertest.Start(t)
	lease := s.Grant(adaptertest.Task{})
	o := &orphan{dir: t.TempDir()}
	if err := os.WriteFile(filepath.Join(o.dir, usageFile), []byte(noted), 0o600); err != nil {
		t.Fatal(err)
	}
	proxy := NewProxy(lease, s.URL, nil)
	for range 2 { // the second time there is nothing left
		if err := o.postUsage(t.Context(), proxy); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.View(lease.TaskID).Runs[0].Usage; !slices.Equal(got, []picket.UsageReport{said(7)}) {
		t.Errorf("it said %+v", got)
	}
}

// Of an envelope that is overrun the run is told, once the report is taken.
func TestTheMeterTellsWhatAReportHasComeTo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, m := newTill(t)
		var told []picket.Usage
		m.post = func(context.Context, picket.UsageReport) (picket.Usage, error) {
			return picket.Usage{Overrun: true}, nil
		}
		m.spent = func(u picket.Usage) { told = append(told, u) }
		m.add(said(1))
		m.close()
		m.run(t.Context())
		if len(told) != 1 || !told[0].Overrun {
			t.Errorf("told %+v", told)
		}
	})
}
