package kit

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// CheckProperty checks a property under a test of its own that may fail.
func CheckProperty(t *testing.T, property func(rt *rapid.T, n int)) Verdict {
	w := &recordingTB{TB: t}
	n, killed := 0, 0
	done := make(chan struct{})
	go func() { // in its own goroutine, because a failed property ends the goroutine
		defer close(done)
		rapid.Check(w, func(rt *rapid.T) {
			n++
			passed := false
			defer func() {
				if !passed && killed == 0 {
					killed = n
				}
			}()
			property(rt, n)
			passed = true
		})
	}()
	<-done
	if !w.failed {
		return Verdict{Rounds: n}
	}
	return Verdict{Found: true, Rounds: killed, Said: strings.Join(w.said, "\n")}
}

// recordingTB is a test whose failure is seen and not passed on.
type recordingTB struct {
	testing.TB
	failed bool
	said   []string
}

func (w *recordingTB) Fail() { w.failed = true }

func (w *recordingTB) Failed() bool { return w.failed }

func (w *recordingTB) FailNow() { w.failed = true; runtime.Goexit() }

func (w *recordingTB) Log(args ...any) { w.said = append(w.said, fmt.Sprintln(args...)) }

func (w *recordingTB) Logf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}

func (w *recordingTB) Error(args ...any) { w.Log(args...); w.Fail() }

func (w *recordingTB) Errorf(format string, args ...any) { w.Logf(format, args...); w.Fail() }

func (w *recordingTB) Fatal(args ...any) { w.Log(args...); w.FailNow() }

func (w *recordingTB) Fatalf(format string, args ...any) { w.Logf(format, args...); w.FailNow() }

// Verdict is what a suite made of a mutant.
type Verdict struct {
	Found  bool
	Rounds int // until it was found, or to the end
	Took   time.Duration
	Said   string
}
