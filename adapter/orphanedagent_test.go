//go:build linux

package adapter_test

import (
	"context"
	stdjson "encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() {
	// adapter is an adapter in a process of its own; LEASE and URL tell it
	// what to run "agent orphan" for.
	proctest.Scripts["adapter"] = func() int {
		var lease picket.Lease
		if err := stdjson.Unmarshal([]byte(os.Getenv("LEASE")), &lease); err != nil {
			return proctest.Failed(err)
		}
		a, err := adapter.New(adapter.Config{
			BaseURL:     os.Getenv("URL"),
			StateDir:    os.Getenv("STATE"),
			Command:     proctest.Agent("orphan"),
			Env:         []string{"SIGNPOST"},
			Containment: picket.ContainmentGroup,
		})
		if err != nil {
			return proctest.Failed(err)
		}
		_, err = a.RunLease(context.Background(), lease)
		return proctest.Failed(err)
	}
	// orphan says its process id, waits, writes, and says what came of it.
	proctest.Scripts["orphan"] = func() int {
		post := os.Getenv("SIGNPOST")
		if err := os.WriteFile(post, fmt.Append(nil, os.Getpid()), 0); err != nil {
			return proctest.Failed(err)
		}
		if _, err := os.ReadFile(post + ".go"); err != nil {
			return proctest.Failed(err)
		}
		_, err := leaseProxy().Report(context.Background(), picket.Progress{Summary: "still here"})
		os.WriteFile(post, fmt.Append(nil, picket.CodeOf(err)), 0)
		return 0
	}
}

// kill -9 of the adapter where nobody else holds the agent: it lives on, the
// lease expires on its own, the task is leased again, and the old agent's write
// is refused.
func TestSIGKILLOfTheAdapter(t *testing.T) {
	s := adaptertest.Start(t)
	post := proctest.NewFIFO(t)
	if err := syscall.Mkfifo(post.Path+".go", 0o600); err != nil {
		t.Fatal(err)
	}
	lease := s.Grant(adaptertest.Task{Retries: 1})
	raw, err := stdjson.Marshal(lease)
	if err != nil {
		t.Fatal(err)
	}
	command := proctest.Agent("adapter")
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "LEASE="+string(raw), "URL="+s.URL, "STATE="+t.TempDir(), "SIGNPOST="+post.Path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	orphan, err := strconv.Atoi(post.Read(t)[0])
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(-orphan, syscall.SIGKILL)
	cmd.Process.Kill()
	cmd.Wait()
	if !proctest.Alive(strconv.Itoa(orphan)) {
		t.Fatal("the agent died with its adapter")
	}

	s.Expire(lease.TaskID) // in life: the reaper, on schedule
	if v := s.View(lease.TaskID); v.State != picket.TaskQueued || v.Runs[0].Released != nil {
		t.Fatalf("%+v", v)
	}
	ended := make(chan error, 1)
	go func() { ended <- os.WriteFile(post.Path+".go", nil, 0) }()
	if got := post.Read(t); len(got) != 1 || got[0] != string(picket.CodeLeaseExpired) {
		t.Errorf("the orphan's write was answered %v", got)
	}
	<-ended
	if v := s.View(lease.TaskID); len(v.Reports) != 0 {
		t.Errorf("the orphan's write was taken: %+v", v.Reports)
	}
}
