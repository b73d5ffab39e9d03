package sessions

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/adapter/process"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// claudeProgram prints what Claude Code prints. Its second argument is the prompt.
const claudeProgram = `#!/bin/sh
id=conversation-1 prompt=$2 resumed=no
echo "$@" >>arguments
while [ $# -gt 0 ]; do
	if [ "$1" = --resume ]; then id=$2 resumed=yes; fi
	shift
done
case $prompt in
lost) echo "No conversation found with session ID: $id" >&2; exit 1 ;;
esac
echo '{"type":"system","subtype":"init","session_id":"'$id'","mcp_servers":[]}'
case $prompt in
session) prompt=$PICKET_SESSION_ID ;;
hang) sleep 600 & echo $$ $! >pids; wait ;;
broke) echo '{"type":"result","session_id":"'$id'","is_error":true,"result":"no credit","total_cost_usd":0}'; exit 1 ;;
esac
echo '{"type":"assistant","session_id":"'$id'","message":{"content":[{"type":"text","text":"Resumed: '$resumed'."}]}}'
echo '{"type":"assistant","session_id":"'$id'","message":{"content":[{"type":"text","text":"You said '$prompt'."}]}}'
echo '{"type":"result","session_id":"'$id'","result":"You said '$prompt'.","total_cost_usd":0.01}'
`

func resumableConfig(t *testing.T, s Server, stateDir string) Config {
	t.Helper()
	program := filepath.Join(t.TempDir(), "claude")
	if err := os.WriteFile(program, []byte(claudeProgram), 0o700); err != nil {
		t.Fatal(err)
	}
	return Config{Server: s, Incarnation: 7, StateDir: stateDir, Preset: agents.PresetClaude,
		Command: []string{program}}
}

// Each prompt goes on with the conversation of the one before, also after a restart of the keeper. Between
// prompts no process runs.
func TestAConversationIsResumed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScriptedServer(t)
	k, end := start(t, resumableConfig(t, s, dir))
	session := s.ids(0)[0]
	s.answered(s.prompt(session, "one", time.Minute), "Resumed: no.\n\nYou said one.")
	s.answered(s.prompt(session, "two", time.Minute), "Resumed: yes.\n\nYou said two.")
	left, err := process.ReadRecord(filepath.Join(k.sessionsDir(), session, processDir))
	if err != nil || left.Leader.PID == 0 {
		t.Fatalf("the process was not recorded: %+v, %v", left, err)
	}
	if err := syscall.Kill(left.Leader.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process runs between prompts: %v", err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	again := newScriptedServer(t)
	k, _ = start(t, resumableConfig(t, again, dir))
	if ids := again.ids(0); len(ids) != 1 || ids[0] != session {
		t.Fatalf("the sessions are %v, want %s", ids, session)
	}
	again.answered(again.prompt(session, "three", time.Minute), "Resumed: yes.\n\nYou said three.")
	again.awaitReport(session, func(r picket.SessionReport) bool {
		return r.State == picket.SessionIdle && r.Kind == picket.SessionResumable && r.Preset == "claude"
	})
	arguments, err := os.ReadFile(filepath.Join(k.sessionsDir(), session, workDir, "arguments"))
	if err != nil || strings.Count(string(arguments), "--resume conversation-1") != 2 {
		t.Errorf("the program was called with %s, %v", arguments, err)
	}
}

// A coding agent that gives up fails the prompt and keeps its conversation. One that finds no conversation
// detaches the session.
func TestACodingAgentFails(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	start(t, resumableConfig(t, s, t.TempDir()))
	session := s.ids(0)[0]
	for _, c := range []struct{ prompt, reason, detached string }{
		{"lost", "agent_ended: exit code 1: No conversation found", ""}, // there was none to lose
		{"broke", "agent_ended: Claude Code stopped: no credit", ""},
		{"lost", "conversation_lost: No conversation found", picket.ConversationLost},
	} {
		last, _ := s.awaitEnd(s.prompt(session, c.prompt, time.Minute))
		if last.State != picket.PromptFailed || !strings.HasPrefix(last.Reason, c.reason) {
			t.Errorf("the prompt %s is %s: %s", c.prompt, last.State, last.Reason)
		}
		s.awaitReport(session, func(r picket.SessionReport) bool { return r.DetachedBecause == c.detached })
	}
	s.answered(s.prompt(session, "again", time.Minute), "Resumed: yes.\n\nYou said again.")
	s.awaitReport(session, func(r picket.SessionReport) bool { return r.State == picket.SessionIdle })
}

// The deadline ends the whole tree of the coding agent.
func TestACodingAgentEndsAtTheDeadline(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	k, _ := start(t, resumableConfig(t, s, t.TempDir()))
	session := s.ids(0)[0]
	id := s.prompt(session, "hang", 4*time.Second)
	pids := noteOf(t, filepath.Join(k.sessionsDir(), session, workDir, "pids"))
	if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != "timeout" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	for _, pid := range pids {
		if proctest.Alive(pid) {
			t.Errorf("process %s survives", pid)
		}
	}
	s.answered(s.prompt(session, "on", time.Minute), "Resumed: yes.\n\nYou said on.")
}

// Each prompt comes with the standing instructions as they are then.
func TestAPromptComesWithInstructions(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	k, _ := start(t, resumableConfig(t, s, t.TempDir()))
	session := s.ids(0)[0]
	for _, instructions := range []string{"Be brief.", "Be thorough.", ""} {
		s.mu.Lock()
		s.instructions = instructions
		s.mu.Unlock()
		s.awaitEnd(s.prompt(session, "one", time.Minute))
		file := filepath.Join(k.sessionsDir(), session, workDir, "arguments")
		arguments, err := os.ReadFile(file)
		want := "-p " + agents.WithInstructions(instructions, "one")
		if err != nil || !strings.HasPrefix(string(arguments), want) {
			t.Errorf("the arguments are %s, %v; want %q", arguments, err, want)
		}
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}
