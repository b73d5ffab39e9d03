package frozen

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/picket-dev/picket/internal/rig/cleanup"
)

var update = flag.Bool("update", false, "write the golden files instead of comparing with them")

// root is the top folder of the module.
const root = "../.."

// compare holds lines, sorted and without repeats, against testdata/name.golden.
func compare(t *testing.T, name string, lines []string) {
	t.Helper()
	lines = slices.Compact(slices.Sorted(slices.Values(lines)))
	if len(lines) == 0 {
		t.Fatalf("%s: nothing was found, so nothing can be compared", name)
	}
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	for _, line := range want {
		if _, ok := slices.BinarySearch(lines, line); !ok {
			t.Errorf("%s: missing: %s", name, line)
		}
	}
	for _, line := range lines {
		if !slices.Contains(want, line) {
			t.Errorf("%s: new: %s", name, line)
		}
	}
	if t.Failed() {
		t.Log("if this change is intended, run go test ./internal/frozen -update and review the golden files")
	}
}

var buildDir string

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		fmt.Fprintln(os.Stderr, "skipped: -short leaves out tests of whole systems")
		return
	}
	end, err := cleanup.OwnTempDir("pk-frozen-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = os.TempDir()
	code := m.Run()
	end()
	os.Exit(code)
}

// binary builds picket and the program beside it once, and returns the path of picket.
var binary = sync.OnceValues(func() (string, error) {
	path := filepath.Join(buildDir, "picket")
	out, err := exec.Command("go", "build", "-o", buildDir+"/", root+"/cmd/picket",
		root+"/cmd/picket-conformance").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build picket: %w\n%s", err, out)
	}
	return path, nil
})

// picket runs the binary in an empty home and returns what it prints on stdout.
func picket(t *testing.T, args ...string) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, args...)
	cmd.Dir = buildDir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + buildDir, "COLUMNS=120"}
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("picket %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}
