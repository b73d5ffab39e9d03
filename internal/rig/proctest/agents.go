// Package proctest is what tests of real processes share: agents that the test
// program plays itself, and ways to look at process trees.
package proctest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

// Scripts are the agents that the test program can play, by name. A test file
// adds its own in an init function. An agent returns its exit code.
var Scripts = map[string]func() int{}

// Main runs the tests of a package, or, when the program was started by the
// command of Agent, that agent. It does not return. name begins the names of
// the temporary directories of the tests.
func Main(m *testing.M, name string) {
	if len(os.Args) >= 3 && os.Args[1] == "agent" {
		os.Exit(Scripts[os.Args[2]]())
	}
	goleak.VerifyTestMain(cleanup.WithTempDir(m, name))
}

// Agent is the command that runs the named script in a process of its own.
func Agent(name string) []string {
	exe, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return []string{exe, "agent", name}
}

// Failed is the exit code of a script that ended with err. It prints the error.
func Failed(err error) int {
	if err == nil {
		return 0
	}
	fmt.Fprintln(os.Stderr, err)
	return 9
}

// Patience bounds what a test waits for. Only a test that fails waits that long.
func Patience(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// Eventually calls ok until it returns true. It ends the test with the message
// otherwise when that takes longer than Patience.
func Eventually(t *testing.T, ok func() bool, otherwise string) {
	t.Helper()
	for ctx := Patience(t); !ok(); time.Sleep(2 * time.Millisecond) {
		if ctx.Err() != nil {
			t.Fatal(otherwise)
		}
	}
}
