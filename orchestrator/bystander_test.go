package orchestrator_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// judge checks a property under a test of its own that may fail.
func judge(t *testing.T, property func(rt *rapid.T, n int)) verdict {
	w := &bystander{TB: t}
	n, killed := 0, 0
	done := make(chan struct{})
	go func() { // the bystander ends its goroutine as a failed test does
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
		return verdict{rounds: n}
	}
	return verdict{found: true, rounds: killed, said: strings.Join(w.said, "\n")}
}

// bystander is a test whose failure is seen and not passed on.
type bystander struct {
	testing.TB
	failed bool
	said   []string
}

func (w *bystander) Fail()           { w.failed = true }
func (w *bystander) Failed() bool    { return w.failed }
func (w *bystander) FailNow()        { w.failed = true; runtime.Goexit() }
func (w *bystander) Log(args ...any) { w.said = append(w.said, fmt.Sprintln(args...)) }
func (w *bystander) Logf(format string, args ...any) {
	w.said = append(w.said, fmt.Sprintf(format, args...))
}
func (w *bystander) Error(args ...any)                 { w.Log(args...); w.Fail() }
func (w *bystander) Errorf(format string, args ...any) { w.Logf(format, args...); w.Fail() }
func (w *bystander) Fatal(args ...any)                 { w.Log(args...); w.FailNow() }
func (w *bystander) Fatalf(format string, args ...any) { w.Logf(format, args...); w.FailNow() }
