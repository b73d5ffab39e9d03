//go:build linux

package adapter_test

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter"
	"github.com/picket-dev/picket/adapter/adaptertest"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// The adapter's credential is nowhere in what an agent can look at: in no
// environment, argument, descriptor or memory of its tree, which has the shim in
// it, and in no file of its workspace or of its run's state.
func TestTheAgentCannotFindTheCredentialOfItsAdapter(t *testing.T) {
	s, fifos := adaptertest.Start(t), t.TempDir()
	said, goOn := filepath.Join(fifos, "said"), filepath.Join(fifos, "go-on")
	for _, f := range []string{said, goOn} {
		if err := syscall.Mkfifo(f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id := s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete})
	state := t.TempDir()
	a := newAdapter(t, s, []string{"sh", "-c",
		`(read x <"` + goOn + `.child") & echo $$ $! >"` + said + `"; read x <"` + goOn + `"; kill $!`},
		func(c *adapter.Config) { c.StateDir, c.AgentID = state, "agent_x" })
	if err := syscall.Mkfifo(goOn+".child", 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, drain := context.WithCancel(proctest.Patience(t))
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	text, err := os.ReadFile(said) // waits for the agent
	if err != nil {
		t.Fatal(err)
	}
	run := s.View(id).Runs[0]
	secrets := leaseCredentials{adapters: run.LeaseToken.Reveal(), agents: run.AgentToken.Reveal()}
	if secrets.agents == "" {
		t.Fatal("the adapter did not ask for two credentials")
	}
	pids := strings.Fields(string(text))
	for at := pids[0]; ; { // everything between the agent and this process
		if at = parentOf(t, at); at == strconv.Itoa(os.Getpid()) || at == "1" || at == "0" {
			break
		}
		pids = append(pids, at)
	}
	found := 0
	for _, pid := range pids {
		found += secrets.inProcess(t, pid)
	}
	if found == 0 {
		t.Error("not even the agent's own credential was found, so nothing shows that the search can find one")
	}
	secrets.inFiles(t, state)
	notes, _ := filepath.Glob(filepath.Join(state, "*", "lease.json"))
	if len(notes) != 1 {
		t.Fatalf("the lease is noted in %v", notes)
	}
	if b, err := os.ReadFile(notes[0]); err != nil || secrets.look(t, notes[0], b) != 0 {
		t.Errorf("the note of the lease holds the agent's credential, where other agents can read it: %v", err)
	}
	if err := os.WriteFile(goOn, []byte("go\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Await(proctest.Patience(t), id,
		func(v adaptertest.View) bool { return v.State == picket.TaskReview }); err != nil {
		t.Error(err)
	}
	drain()
	if err := <-ended; err != nil && ctx.Err() == nil {
		t.Error(err)
	}
	secrets.inFiles(t, state)
	t.Logf("looked at %d processes", len(pids))
}

func parentOf(t *testing.T, pid string) string {
	t.Helper()
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.Fields(rest)[1]
}

// leaseCredentials are the two credentials of a lease.
type leaseCredentials struct {
	adapters string
	agents   string
}

// look reports a place that holds the adapter's credential, and whether it holds
// the agent's.
func (s leaseCredentials) look(t *testing.T, where string, in []byte) (agents int) {
	t.Helper()
	if bytes.Contains(in, []byte(s.adapters)) {
		t.Errorf("the credential of the adapter is in %s", where)
	}
	return min(bytes.Count(in, []byte(s.agents)), 1)
}

func (s leaseCredentials) inProcess(t *testing.T, pid string) (agents int) {
	t.Helper()
	dir := "/proc/" + pid
	for _, name := range []string{"environ", "cmdline"} {
		b, err := os.ReadFile(dir + "/" + name)
		if err != nil {
			t.Error(err)
		}
		agents += s.look(t, dir+"/"+name, b)
	}
	descriptors, _ := os.ReadDir(dir + "/fd")
	for _, fd := range descriptors {
		file := dir + "/fd/" + fd.Name()
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			continue
		}
		if b, err := os.ReadFile(file); err == nil {
			agents += s.look(t, file, b)
		}
	}
	return agents + s.inMemory(t, pid)
}

func (s leaseCredentials) inMemory(t *testing.T, pid string) (agents int) {
	t.Helper()
	maps, err := os.ReadFile("/proc/" + pid + "/maps")
	if err != nil {
		t.Error(err)
	}
	memory, err := os.Open("/proc/" + pid + "/mem")
	if err != nil {
		t.Error(err)
		return 0
	}
	defer memory.Close()
	for line := range strings.Lines(string(maps)) {
		var from, to int64
		var mode string
		if _, err := fmt.Sscanf(line, "%x-%x %s", &from, &to, &mode); err != nil || mode[:2] != "rw" ||
			to-from > 256<<20 {
			continue
		}
		part := make([]byte, to-from)
		n, _ := memory.ReadAt(part, from)
		agents += s.look(t, "the memory of process "+pid, part[:n])
	}
	return agents
}

func (s leaseCredentials) inFiles(t *testing.T, root string) {
	t.Helper()
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		s.look(t, path, b)
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A server of an earlier version does not know separateCredentials: its leases
// have one credential, and work goes on.
func TestAServerThatKnowsOneCredential(t *testing.T) {
	s := adaptertest.Start(t)
	s.SupportSeparateCredentials(false)
	var ids []string
	for range 2 { // the second comes with the end of the first
		ids = append(ids, s.Queue(adaptertest.Task{OnExit: picket.OnExitComplete}))
	}
	ctx, drain := context.WithCancel(proctest.Patience(t))
	ended := make(chan error, 1)
	a := newAdapter(t, s, []string{"true"})
	go func() { ended <- a.Run(ctx) }()
	for _, id := range ids {
		v, err := s.Await(ctx, id, func(v adaptertest.View) bool { return v.State == picket.TaskReview })
		if err != nil {
			t.Fatal(err)
		}
		if v.Runs[0].AgentToken != "" {
			t.Error("a second credential was granted")
		}
	}
	drain()
	<-ended
}
