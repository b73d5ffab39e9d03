package workspace

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket/internal/rig/proctest"
)

// A git that is given up ends with the filters that it has started, one that
// has left its group included: it is not waited for.
func TestGitEndsWithItsFilters(t *testing.T) {
	for _, prefix := range []string{"", "exec setsid -w "} {
		dir := t.TempDir()
		fifo := filepath.Join(dir, "fifo")
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		filter := prefix + "sh -c 'echo $$ > " + fifo + "; exec sleep 1000'"
		for _, args := range [][]string{{"init", "-q"}, {"config", "filter.slow.clean", filter}} {
			cmd := exec.Command("git", args...)
			cmd.Dir = dir
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
		}
		for name, text := range map[string]string{".gitattributes": "f filter=slow\n", "f": "text\n"} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		added := make(chan error, 1)
		go func() {
			_, err := git{common: filepath.Join(dir, ".git"), admin: filepath.Join(dir, ".git"), tree: dir}.output(ctx,
				"add", "f")
			added <- err
		}()
		said, err := os.ReadFile(fifo)
		if err != nil {
			t.Fatal(err)
		}
		pid, err := strconv.Atoi(strings.TrimSpace(string(said)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = syscall.Kill(pid, syscall.SIGKILL) }()
		cancel()
		select {
		case err := <-added:
			if err == nil {
				t.Error("git add came to an end")
			}
		case <-time.After(30 * time.Second):
			t.Fatal("git is waited for though it was given up")
		}
		if prefix != "" {
			continue
		}
		proctest.Eventually(t, func() bool { return !proctest.Alive(strconv.Itoa(pid)) }, "the filter goes on")
	}
}
