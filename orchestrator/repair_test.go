package orchestrator_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/picket-dev/picket/internal/rig"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// The documented line before a start of Redis takes a transaction that was cut
// off in the file away whole; without a file it does nothing.
func TestRepairBeforeAStart(t *testing.T) {
	text, err := os.ReadFile("../docs/redis.md")
	kit.OK(t, err)
	found := regexp.MustCompile(`(?m)^ExecStartPre=/bin/sh -c '(.*)'$`).FindSubmatch(text)
	if found == nil {
		t.Fatal("docs/redis.md has no ExecStartPre")
	}
	n := rig.StartNode(t, kit.DurableSettings...)
	repair := func() {
		t.Helper()
		line := strings.Replace(string(found[1]), "/var/lib/redis", n.Dir, 1)
		if out, err := exec.Command("/bin/sh", "-c", line).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", line, err, out)
		}
	}
	kit.OK(t, n.Do(t.Context(), "SET", "before", "1").Err())
	kit.OK(t, n.Do(t.Context(), "EVAL", "redis.call('SET', 'first', '1') redis.call('SET', 'second', '1') return 1", 0).
		Err())
	n.Kill()
	repair() // nothing is wrong: nothing is changed
	files, _ := filepath.Glob(filepath.Join(n.Dir, "appendonlydir", "*.incr.aof"))
	log, err := os.ReadFile(files[0])
	kit.OK(t, err)
	whole, cut := bytes.LastIndex(log, []byte("*1\r\n$5\r\nMULTI")), bytes.LastIndex(log, []byte("second"))
	if whole < 0 || cut < whole {
		t.Fatalf("the script is not a transaction in the file: %q", log)
	}
	kit.OK(t, os.Truncate(files[0], int64(cut)))
	repair()
	log, err = os.ReadFile(files[0])
	kit.OK(t, err)
	if len(log) != whole {
		t.Errorf("%d bytes are left, %d are whole: %q", len(log), whole, log)
	}
	n.Start()
	for key, want := range map[string]int{"before": 1, "first": 0, "second": 0} {
		if got, err := n.Do(t.Context(), "EXISTS", key).Int(); err != nil || got != want {
			t.Errorf("%s is there %d times (%v), want %d", key, got, err, want)
		}
	}
	kit.OK(t, os.RemoveAll(filepath.Join(n.Dir, "appendonlydir")))
	repair() // a server that never ran has no file
}
