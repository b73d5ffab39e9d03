//go:build linux

package process

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// startLeftovers starts a shell that says "ready" and leaves processes behind; they
// are killed at the end of the test.
func startLeftovers(t *testing.T, script string, env ...string) (id processID) {
	t.Helper()
	var tree []processID
	cmd := exec.Command("sh", "-c", script+"; echo ready; exec sleep 1000")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, id := range tree {
			id.signal(syscall.SIGKILL)
		}
		cmd.Wait()
	})
	for said := ""; !strings.Contains(said, "ready"); {
		b := make([]byte, 100)
		n, err := out.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		said += string(b[:n])
	}
	p, ok := readProcStat(cmd.Process.Pid)
	if !ok {
		t.Fatal("the process is gone")
	}
	tree = append(tree, p.processID)
	for _, child := range descendants(processes(nil), p.PID) {
		tree = append(tree, child.processID)
	}
	return p.processID
}

// A process that only has the number of a dead one is never killed.
func TestReusedPIDIsNotKilled(t *testing.T) {
	const someRun = "run_01J00000000000000000000001"
	stranger := startLeftovers(t, ":")
	before := processID{stranger.PID, stranger.Start - 1}
	for what, record := range map[string]Record{
		"leader": {BootID: BootID(), Leader: before}, "shim": {BootID: BootID(), Shim: before},
		"cgroup": {BootID: BootID(), Cgroup: "/sys/fs/cgroup"},
	} {
		if got := survivors(record, someRun); len(got) != 0 {
			t.Errorf("%s: %v are taken for survivors", what, got)
		}
		if err := KillLeftovers(record, someRun, time.Second); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	before.signal(syscall.SIGKILL)
	if before.alive() || !stranger.alive() {
		t.Fatal("the stranger was killed")
	}
}

// What a run left dies however it is known: by number and start, by its group,
// by its parents, by the run in its environment.
func TestLeftoversDie(t *testing.T) {
	for i, tt := range []struct {
		name    string
		script  string
		known   bool // the leader is noted
		marked  bool
		stopped bool
	}{
		{"by number", ":", true, false, false},
		{"by group", "env -i sleep 1001 & :", true, false, false},
		{"by parents, out of the group", "setsid env -i sleep 1002 & :", true, false, false},
		{"by the environment alone", "setsid sleep 1003 & :", false, true, false},
		{"stopped", ":", true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			someRun := fmt.Sprintf("run_01J0000000000000000000001%d", i)
			record, env := Record{BootID: BootID()}, []string{"PICKET_RUN_ID=run_01J00000000000000000000099"}
			if tt.marked {
				env[0] = "PICKET_RUN_ID=" + someRun
			}
			leader := startLeftovers(t, tt.script, env...)
			if tt.known {
				record.Leader = leader
			}
			if tt.stopped {
				leader.signal(syscall.SIGSTOP)
			}
			found := survivors(record, someRun)
			if want := 1 + strings.Count(tt.script, "sleep"); len(found) != want {
				t.Fatalf("%d survivors are found, want %d", len(found), want)
			}
			if err := KillLeftovers(record, someRun, 10*time.Second); err != nil {
				t.Fatal(err)
			}
			for _, id := range found {
				if id.alive() {
					t.Errorf("%v lives", id)
				}
			}
		})
	}
}

// A record that names nobody matches nobody.
func TestEmptyRecordMatchesNobody(t *testing.T) {
	if got := survivors(Record{}, "run_01J00000000000000000000000"); len(got) != 0 {
		t.Fatalf("%v survive of nothing", got)
	}
	if !slices.ContainsFunc(processes(nil), func(p procStat) bool { return p.PID == os.Getpid() }) {
		t.Error("the test cannot see itself")
	}
}
