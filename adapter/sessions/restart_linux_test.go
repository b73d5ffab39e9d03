package sessions

import (
	"bufio"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

func init() { proctest.Scripts["keeper"] = keeperProgram }

// keeperProgram is an adapter that gets one prompt. It prints what it sends to the server.
func keeperProgram() int {
	text, err := hex.DecodeString(os.Args[5])
	if err != nil {
		return proctest.Failed(err)
	}
	server := &printingServer{id: os.Args[4], text: string(text), session: make(chan string, 64)}
	k, err := New(residentConfig(server, os.Args[3]))
	if err != nil {
		return proctest.Failed(err)
	}
	return proctest.Failed(k.Run(context.Background()))
}

// printingServer is a server that has one prompt for the first session that is reported.
type printingServer struct {
	id, text string
	session  chan string
}

func (s *printingServer) Report(_ context.Context, r picket.SessionsReport) error {
	fmt.Println("session", r.Sessions[0].SessionID)
	s.session <- r.Sessions[0].SessionID
	return nil
}

func (s *printingServer) Pending(ctx context.Context, _ time.Duration) (p picket.PendingCommands, err error) {
	select {
	case session := <-s.session:
		p.Sessions = []picket.SessionCommand{{CommandID: s.id, Command: picket.CommandPrompt, SessionID: session,
			Text: s.text, ExpiresInMs: 600_000}}
	case <-ctx.Done():
	}
	return p, ctx.Err()
}

func (s *printingServer) Result(_ context.Context, _ string,
	r picket.CommandResult) (taken picket.ResultTaken, err error) {
	fmt.Println("result", r.State)
	return taken, nil
}

// A keeper that is killed takes the processes of its sessions with it. The next one goes on with the same
// session, reports the prompt as failed, and does not give it to the agent again.
func TestAKilledKeeperLeavesNoProcess(t *testing.T) {
	t.Parallel()
	dir, noted := t.TempDir(), filepath.Join(t.TempDir(), "pids")
	id := "prompt_01JD0000000000000000000000"
	command := append(proctest.Agent("keeper"), dir, id, hex.EncodeToString([]byte("child "+noted)))
	cmd := exec.Command(command[0], command[1:]...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	session := ""
	for lines.Scan() && lines.Text() != "result accepted" {
		if name, ok := strings.CutPrefix(lines.Text(), "session "); ok {
			session = name
		}
	}
	pids := noteOf(t, noted)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()

	s := newScriptedServer(t)
	s.command(picket.SessionCommand{CommandID: id, Command: picket.CommandPrompt, SessionID: session,
		Text: "child " + noted, ExpiresInMs: 600_000})
	k, _ := start(t, residentConfig(s, dir))
	if ids := s.ids(0); len(ids) != 1 || ids[0] != session {
		t.Errorf("the sessions are %v, want %s", ids, session)
	}
	for _, pid := range pids {
		if proctest.Alive(pid) {
			t.Errorf("process %s survives", pid)
		}
	}
	if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != "keeper_restarted" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	s.answered(s.prompt(session, "next", time.Minute), "next")
	if n := promptsSeen(t, k, session); n != 2 {
		t.Errorf("the agent has seen %d prompts, want one of each keeper", n)
	}
}

// A keeper that ends reports the prompt under way as failed. The next one remembers its commands: what the
// server did not get is sent, and what is repeated is not done again.
func TestAKeeperGoesOnWithTheStateOfTheLast(t *testing.T) {
	t.Parallel()
	dir, noted := t.TempDir(), filepath.Join(t.TempDir(), "pids")
	s := newScriptedServer(t)
	_, end := start(t, residentConfig(s, dir))
	session := s.ids(0)[0]
	done := s.prompt(session, "hello", time.Minute)
	s.answered(done, "hello")
	open := s.prompt(session, "child "+noted, time.Minute)
	pids := noteOf(t, noted)
	if err := end(); err != nil {
		t.Fatal(err)
	}
	for _, pid := range pids {
		if proctest.Alive(pid) {
			t.Errorf("process %s survives", pid)
		}
	}
	if last, _ := s.awaitEnd(open); last.State != picket.PromptFailed || last.Reason != "keeper_ended" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}

	again := newScriptedServer(t)
	s.mu.Lock()
	again.commands = s.commands
	s.mu.Unlock()
	cfg := residentConfig(again, dir)
	cfg.Max = 2
	k, end := start(t, cfg)
	ids := again.ids(0)
	if len(ids) != 2 || ids[0] != session {
		t.Errorf("the sessions are %v, want %s and another", ids, session)
	}
	again.answered(done, "hello")
	if last, _ := again.awaitEnd(open); last.Reason != "keeper_ended" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	if n := promptsSeen(t, k, session); n != 2 {
		t.Errorf("the agents have seen %d prompts", n)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	fewer, _ := start(t, residentConfig(newScriptedServer(t), dir))
	proctest.Eventually(t, func() bool { return len(fewer.Sessions()) == 1 }, "there are too many sessions")
	if left, err := os.ReadDir(fewer.sessionsDir()); err != nil || len(left) != 1 || left[0].Name() != session {
		t.Errorf("%v is left, %v", left, err)
	}
}

// Two keepers do not share a directory.
func TestAStateDirectoryHasOneKeeper(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScriptedServer(t)
	start(t, residentConfig(s, dir))
	s.ids(0)
	second, err := New(residentConfig(newScriptedServer(t), dir))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := second.Run(ctx); err == nil {
		t.Error("a second keeper runs")
	}
}
