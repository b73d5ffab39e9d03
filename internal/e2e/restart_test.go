//go:build linux

package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
)

// A server that is stopped cleanly takes its store with it and has everything
// when it starts again; an agent that ran meanwhile goes on under its token.
func TestRestart(t *testing.T) {
	w := newTestEnv(t)
	server := w.up()
	pid := w.fifo("pid")
	w.fifo("go")
	worker := w.worker("first",
		`echo $$ >"$E2E/pid"; picket tool report_progress --summary half; echo reported >"$E2E/pid"
read x <"$E2E/go"; picket tool mark_complete --output done`)
	task := w.submit(spec("restarted", 10))
	agent := pid.takePID()
	pid.take()
	key, store := w.key, w.storePID()

	second := w.cli("up", "--listen", "127.0.0.1:0")
	if second.code != 4 || !strings.Contains(second.errOut, "pid "+strconv.Itoa(server.pid())) {
		t.Errorf("a second up: exit %d: %s", second.code, second.errOut)
	}
	renewed := worker.said("lease renewed")
	server.signal(syscall.SIGTERM)
	if code := server.wait(); code != 0 {
		t.Errorf("the exit code of a stopped server is %d", code)
	}
	gone(t, "the store", store)
	if _, err := os.Stat(filepath.Join(w.data(), "redis", "redis.sock")); err == nil {
		t.Error("the store's socket is left")
	}
	w.up()
	if w.key != key {
		t.Error("the admin key has changed")
	}
	worker.saysAgain("lease renewed", renewed)
	if got := w.task(task.TaskID); got.LastReport == nil || got.LastReport.Summary != "half" ||
		got.State != picket.TaskLeased {
		t.Errorf("%s, report %+v", got.State, got.LastReport)
	}
	w.give("go")
	if ev := w.of(task.TaskID, picket.EventTaskReview); ev.FencingToken != 1 {
		t.Errorf("it ended under token %d", ev.FencingToken)
	}
	gone(t, "the agent", agent)
}

// Without a redis-server the story works all the same, in memory, and one line
// reports it.
func TestMemory(t *testing.T) {
	w := newTestEnv(t)
	bin := w.path("bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"sh": "/bin/sh", "picket": binary()} {
		if err := os.Symlink(target, filepath.Join(bin, name)); err != nil {
			t.Fatal(err)
		}
	}
	w.env[0] = "PATH=" + bin
	server := w.up()
	if n := server.said("state lives in memory only"); n != 1 {
		t.Errorf("it was said %d times that state lives in memory:\n%s", n, server.err.text())
	}
	ran := w.cli("run", "--", "sh", "-c", "picket tool report_progress --summary half >&2; echo hi")
	if ran.code != 0 || ran.out != "hi\n" {
		t.Fatalf("picket run: exit %d, printed %q\n%s", ran.code, ran.out, ran.errOut)
	}
	w.ok("review", "approve")
}
