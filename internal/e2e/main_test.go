//go:build linux

package e2e

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

// suiteDir is where everything of one test run lives. Its path is unique, and
// every process of the run has it in its environment, its arguments or as a
// part of its directory: that is how a left-over is found.
var suiteDir string

// waitLimit bounds every single wait. It is long, because a test must not fail on a busy machine.
// No test waits for it to pass.
const waitLimit = 30 * time.Second

func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == asAgent {
		if os.Args[2] == "writer" {
			os.Exit(writer())
		}
		os.Exit(stubbornAgent(os.Args[2] == "escape"))
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "skipped: -short leaves out tests of whole systems")
		return 0
	}
	if _, err := exec.LookPath("redis-server"); err != nil {
		fmt.Fprintln(os.Stderr, "skipped: redis-server is not installed")
		return 0
	}
	var err error
	// Short, so that a unix socket's path fits; not TMPDIR, which may be long.
	if suiteDir, err = os.MkdirTemp("/tmp", "picket-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	end, err := cleanup.KillAtEnd(suiteDir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer end()
	build := exec.Command("go", "build", "-o", filepath.Join(suiteDir, "bin", "picket"),
		"github.com/picket-dev/picket/cmd/picket")
	if out, err := build.CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build picket: %v\n%s", err, out)
		return 1
	}
	// The tests wait far more than they compute.
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
		_ = flag.Set("test.parallel", "6")
	}
	code := m.Run()
	stopBrowser()
	for _, p := range processesOf(suiteDir) {
		fmt.Fprintln(os.Stderr, "left over:", p)
		code = 1
	}
	for _, found := range leaks(suiteDir) {
		fmt.Fprintln(os.Stderr, "a secret was written down:", found)
		code = 1
	}
	return code
}
