package process_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() {
	// bomb FILE starts up to 300 processes, even when it is refused some, and records each. hog
	// takes memory, 1 GiB at most.
	proctest.Scripts["bomb"] = func() int {
		for range 300 {
			cmd := exec.Command("sleep", "1000")
			if cmd.Start() == nil {
				note(os.Args[3], strconv.Itoa(cmd.Process.Pid))
			}
		}
		note(os.Args[3], "all")
		time.Sleep(time.Minute) // longer than anybody takes to look
		return 0
	}
	proctest.Scripts["hog"] = func() int {
		var all [][]byte
		for range 128 {
			all = append(all, bytes.Repeat([]byte{1}, 8<<20))
		}
		time.Sleep(time.Minute)
		return len(all) - 128
	}
}

func note(file, line string) {
	f, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err == nil {
		_, _ = f.WriteString(line + "\n")
		_ = f.Close()
	}
}

// started are the processes that a bomb has noted; all says that it was through.
func started(file string) (pids []string, all bool) {
	b, _ := os.ReadFile(file)
	pids = strings.Fields(string(b))
	if i := slices.Index(pids, "all"); i >= 0 {
		return pids[:i], true
	}
	return pids, false
}

// launchLimitedAgent is an agent that rests within limits.
func launchLimitedAgent(t *testing.T, level string, limits process.Limits,
	command ...string) (process.Process, string) {
	t.Helper()
	dir, run := t.TempDir(), "run_"+strings.ReplaceAll(t.Name(), "/", "_")
	p, err := process.CommandLauncher{Command: command, Containment: level, Limits: limits}.Launch(context.Background(),
		process.Job{Dir: dir, Lease: picket.Lease{RunID: run}, Env: []string{"PICKET_RUN_ID=" + run}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Kill(); <-p.Done() })
	return p, dir
}

// A program that starts more and more processes is stopped, with all of them;
// the agent goes on. Where the kernel counts, there are never more than allowed.
func TestExecIsStoppedAtItsProcesses(t *testing.T) {
	everyLevel(t, func(t *testing.T, level string) {
		p, dir := launchLimitedAgent(t, level, process.Limits{ExecProcesses: 64}, "sleep", "1000")
		file := filepath.Join(dir, "pids")
		end, err := p.(process.Executor).Exec(t.Context(),
			process.ExecJob{ID: "c1", Argv: append(proctest.Agent("bomb"), file), Timeout: 10 * time.Minute})
		if err != nil || end.Signal != "SIGKILL" || end.LimitHit != "more than 64 processes" {
			t.Errorf("ended with %+v, %v", end, err)
		}
		pids, _ := started(file)
		if len(pids) == 0 || process.Counted(level, "pids") && len(pids) >= 64 {
			t.Errorf("it has started %d", len(pids))
		}
		for _, pid := range pids {
			proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, "what the program started goes on")
		}
		select {
		case <-p.Done():
			t.Fatal("the agent ended with the program")
		default:
		}
		var out bytes.Buffer
		if end, err := p.(process.Executor).Exec(t.Context(), shell("c2", "exit 0", &out)); err != nil ||
			end != (process.Exited{}) {
			t.Errorf("the next one ended with %+v, %v", end, err)
		}
	})
}

func TestExecIsStoppedAtItsMemory(t *testing.T) {
	everyLevel(t, func(t *testing.T, level string) {
		p, _ := launchLimitedAgent(t, level, process.Limits{ExecMemory: 256 << 20}, "sleep", "1000")
		job := process.ExecJob{ID: "c1", Argv: proctest.Agent("hog"), Timeout: 10 * time.Minute}
		end, err := p.(process.Executor).Exec(t.Context(), job)
		switch {
		case err != nil || end.Code == 0:
			t.Errorf("ended with %+v, %v", end, err)
		case process.Counted(level, "memory") &&
			(end.Signal != "SIGKILL" || end.LimitHit != "more than 256 MiB of memory"):
			t.Errorf("ended with %+v", end)
		}
		select {
		case <-p.Done():
			t.Fatal("the agent ended with the program")
		default:
		}
	})
}

// An agent's own tree is refused more processes than it may have, and lives.
func TestAgentHasSoManyProcesses(t *testing.T) {
	if !process.Counted(picket.ContainmentCgroup, "pids") {
		t.Skip("no cgroup whose processes can be limited here")
	}
	file := filepath.Join(t.TempDir(), "pids")
	p, _ := launchLimitedAgent(t, picket.ContainmentCgroup, process.Limits{Processes: 64},
		append(proctest.Agent("bomb"), file)...)
	proctest.Eventually(t, func() bool { _, all := started(file); return all }, "the agent is not through")
	if pids, _ := started(file); len(pids) == 0 || len(pids) >= 64 {
		t.Errorf("it has started %d", len(pids))
	}
	select {
	case <-p.Done():
		t.Errorf("it ended with %+v", p.Exit())
	default:
	}
}
