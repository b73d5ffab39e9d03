package picket_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/picket-dev/picket"
)

// hostileText are what an agent may write into its evidence.
var hostileText = []string{
	"--strategy=ours", "-s", "x; touch pwned", "$(touch pwned)", "`touch pwned`", "x\ntouch pwned",
	"a'; touch pwned; 'b",
	`a"; touch pwned; "b`, "x & touch pwned", "x | touch pwned", "picket/other", "",
}

func TestEvidenceCountsLines(t *testing.T) {
	for n, ok := range map[int]bool{-1: false, 0: true, 7: true, 1e18: false} {
		for _, file := range []picket.ChangedFile{{Path: "a", Added: &n}, {Path: "a", Removed: &n}} {
			ev := picket.Evidence{Branch: "b", Files: []picket.ChangedFile{{Path: "binary"}, file}}
			if err := ev.Check(); (err == nil) != ok {
				t.Errorf("%d lines: %v", n, err)
			}
		}
	}
}

// The printed commands hold nothing that an agent can write into its evidence,
// and a shell that runs them does what they say and nothing more.
func TestPrintedCommandsHoldNoWordsOfTheAgent(t *testing.T) {
	const task = "task_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	for _, hostile := range hostileText {
		dir := t.TempDir()
		git := func(args ...string) string {
			t.Helper()
			cmd := exec.Command("git",
				append([]string{"-C", dir, "-c", "user.name=Ada", "-c", "user.email=ada@example.com"}, args...)...)
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("git %v: %v: %s", args, err, out)
			}
			return strings.TrimSpace(string(out))
		}
		git("init", "-q", "-b", "main")
		git("commit", "-q", "--allow-empty", "-m", "start")
		base := git("rev-parse", "HEAD")
		git("checkout", "-q", "-b", picket.WorkBranch(task))
		git("commit", "-q", "--allow-empty", "-m", "work of the task")
		git("checkout", "-q", "main")
		own := picket.Evidence{Repository: hostile, Branch: picket.WorkBranch(task), Base: base}
		for _, command := range []string{own.DiffCommand(task), own.MergeCommand(task)} {
			sh := exec.Command("sh", "-c", command)
			sh.Dir = dir
			if out, err := sh.CombinedOutput(); command == "" || err != nil {
				t.Errorf("%q: %v: %s", command, err, out)
			}
		}
		if got := git("log", "-1", "--format=%s"); got != "work of the task" {
			t.Errorf("the merged commit is %q", got)
		}
		if _, err := os.Stat(filepath.Join(dir, "pwned")); err == nil {
			t.Errorf("a command of the agent has run with %q", hostile)
		}
		for name, ev := range map[string]picket.Evidence{
			"branch": {Repository: dir, Branch: hostile, Base: base},
			"base":   {Repository: dir, Branch: picket.WorkBranch(task), Base: hostile},
		} {
			if command := ev.DiffCommand(task); command != "" {
				t.Errorf("%s %q is shown by %q", name, hostile, command)
			}
			if command := ev.MergeCommand(task); command != "" && name == "branch" {
				t.Errorf("%s %q is merged by %q", name, hostile, command)
			}
		}
		if command := own.MergeCommand(hostile); command != "" {
			t.Errorf("task %q is merged by %q", hostile, command)
		}
	}
}
