//go:build linux

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// The instruments of this suite see what they are for.

func TestLeaksAreSeen(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"secret.key":        "00112233445566778899aabbccddeeff\n",
		"admin.key":         "pkk_default_AAAAAAAAAAAAAAAAAAAA\n",
		"clean.stderr":      "pkl_ and pkk_ are prefixes\n",
		"capability.stdout": "token=pkl_AAAAAAAAAAAAAAAAAAAA\n",
		"session.stderr":    "capability pks_default.AAAAAAAAAAAAAAAAAAAA\n",
		"key.stderr":        "key pkk_default_AAAAAAAAAAAAAAAAAAAA\n",
		"seal.log":          "x 00112233445566778899aabbccddeeff x\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	found := strings.Join(leaks(dir), "\n")
	if n := strings.Count(found, "\n") + 1; n != 4 || !strings.Contains(found, "capability.stdout") ||
		!strings.Contains(found, "session.stderr") ||
		!strings.Contains(found, "key.stderr") || !strings.Contains(found, "seal.log") {
		t.Errorf("found:\n%s", found)
	}
}

func TestLeftOversAreSeen(t *testing.T) {
	dir := t.TempDir()
	for name, prepare := range map[string]func(*exec.Cmd){
		"directory":   func(c *exec.Cmd) { c.Dir = dir },
		"environment": func(c *exec.Cmd) { c.Env = []string{"X=" + dir + "/x"} },
		"argument":    func(c *exec.Cmd) { c.Args = append(c.Args, dir+"/x") },
	} {
		cmd := exec.Command("sh", "-c", "echo; read x")
		prepare(cmd)
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		// Just after the exec /proc shows an empty environment: wait for its word.
		if _, err := out.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		if found := processesOf(dir); len(found) != 1 {
			t.Errorf("by %s: %v", name, found)
		}
		in.Close()
		_ = cmd.Wait()
	}
	if found := processesOf(dir); len(found) != 0 {
		t.Errorf("after their end: %v", found)
	}
}

func TestReplaySeesBrokenLogs(t *testing.T) {
	event := func(seq int64, kind, data string, token int64) picket.Event {
		return picket.Event{Seq: seq, Type: kind, TaskID: "t", FencingToken: token, Data: picket.RawJSON(data)}
	}
	const queued, leased, done = `{"state":"queued"}`, `{"state":"leased"}`, `{"state":"completed"}`
	submitted, first := event(1, picket.EventTaskSubmitted, queued, 0), event(2, picket.EventTaskLeased, leased, 1)
	for name, log := range map[string][]picket.Event{
		"a gap":       {submitted, event(3, picket.EventTaskLeased, leased, 1)},
		"two holders": {submitted, first, event(3, picket.EventTaskLeased, leased, 2)},
		"a token that stays": {submitted, first, event(3, picket.EventLeaseExpired, queued, 1),
			event(4, picket.EventTaskLeased, leased, 1)},
		"a stale write": {submitted, first, event(3, picket.EventLeaseExpired, queued, 1),
			event(4, picket.EventTaskLeased, leased, 2), event(5, picket.EventTaskProgress, leased, 1)},
		"a closed task moves": {submitted, first, event(3, picket.EventTaskCompleted, done, 1),
			event(4, picket.EventTaskRetried, queued, 0)},
	} {
		if _, broken := replay(log); len(broken) == 0 {
			t.Errorf("%s is not seen", name)
		}
	}
	if _, broken := replay([]picket.Event{submitted, first,
		event(3, picket.EventTaskCompleted, done, 1)}); len(broken) != 0 {
		t.Errorf("a good log: %v", broken)
	}
}
