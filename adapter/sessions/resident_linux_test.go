package sessions

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// noteOf waits for a line that a program has noted in a file.
func noteOf(t *testing.T, file string) (words []string) {
	t.Helper()
	proctest.Eventually(t, func() bool {
		text, err := os.ReadFile(file)
		words = strings.Fields(string(text))
		return err == nil && strings.HasSuffix(string(text), "\n")
	}, "nothing is noted in "+file)
	return words
}

// promptsSeen is how many prompts the processes of a session have seen.
func promptsSeen(t *testing.T, k *Keeper, session string) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(k.sessionsDir(), session, workDir, "prompts"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(text), "\n")
}

func awaitDead(t *testing.T, pids ...string) {
	t.Helper()
	for _, pid := range pids {
		proctest.Eventually(t, func() bool { return !proctest.Alive(pid) }, "process "+pid+" survives")
	}
}

// One process answers all prompts of a session. It gets neither a lease nor a key of the adapter.
func TestOneProcessAnswersThePrompts(t *testing.T) {
	t.Setenv("PICKET_LEASE_TOKEN", "pkl_secret")
	t.Setenv("MY_KEY", "secret")
	s := newScriptedServer(t)
	k, end := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	_, first := s.awaitEnd(s.prompt(session, "pid", time.Minute))
	_, second := s.awaitEnd(s.prompt(session, "pid", time.Minute))
	if first == "" || first != second {
		t.Errorf("the prompts were answered by %q and %q", first, second)
	}
	s.answered(s.prompt(session, "say: ü\n\"x\"", time.Minute), "say: ü\n\"x\"")
	_, env := s.awaitEnd(s.prompt(session, "env", time.Minute))
	if !strings.Contains(env, "PATH=") || strings.Contains(env, "MY_KEY") || strings.Count(env, "PICKET_") != 1 ||
		!strings.Contains(env, "PICKET_SESSION_ID="+session) {
		t.Errorf("the environment is %s", env)
	}
	s.awaitReport(session, func(r picket.SessionReport) bool {
		return r.State == picket.SessionIdle && r.IdleMs != nil
	})
	if info, err := os.Stat(filepath.Join(k.sessionsDir(), session, recordFile)); err != nil || info.Mode() != 0o600 {
		t.Errorf("the record has the mode %v, %v", info.Mode(), err)
	}
	if info, err := os.Stat(k.sessionsDir()); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the directory has the mode %v, %v", info.Mode(), err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	awaitDead(t, first)
}

// A process that is killed in the middle of a prompt fails the prompt. The next one starts it again, under
// the same session id.
func TestAKilledProcessIsStartedAgain(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	k, _ := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	_, first := s.awaitEnd(s.prompt(session, "pid", time.Minute))
	noted := filepath.Join(t.TempDir(), "pids")
	id := s.prompt(session, "child "+noted, time.Minute)
	pids := noteOf(t, noted)
	s.awaitReport(session, func(r picket.SessionReport) bool {
		return r.State == picket.SessionPrompting && r.PromptID == id
	})
	pid, err := strconv.Atoi(pids[0])
	if err != nil || pids[0] != first {
		t.Fatalf("the prompt is with %v, not with %s", pids, first)
	}
	proctest.Send(t, pid, syscall.SIGKILL)
	if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != "agent_ended: killed by SIGKILL" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	awaitDead(t, pids...)
	_, second := s.awaitEnd(s.prompt(session, "pid", time.Minute))
	if second == "" || second == first || k.find(session) == nil {
		t.Errorf("after %s the process is %q", first, second)
	}
	s.answered(s.prompt(session, "last", time.Minute), "good bye")
	s.answered(s.prompt(session, "again", time.Minute), "again")
	if last, _ := s.awaitEnd(s.prompt(session, "die", time.Minute)); last.State != picket.PromptFailed {
		t.Errorf("the prompt is %s", last.State)
	}
}

// A prompt that a process has not read when it ends goes to the next process.
func TestAPromptThatWasNotReadIsNotLost(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	k, _ := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	for range 3 {
		s.answered(s.prompt(session, "ignoreNext", time.Minute), "bye")
		s.answered(s.prompt(session, "again", time.Minute), "again")
	}
	if n := promptsSeen(t, k, session); n != 6 {
		t.Errorf("the agents have seen %d prompts", n)
	}
}

// A command that comes again is not a second prompt, neither while the first is under way nor later. Its last
// result is sent again.
func TestARepeatedCommandPromptsOnce(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	s.repeat = true
	k, _ := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	id := s.prompt(session, "hello", time.Minute)
	s.answered(id, "hello")
	s.await("the result is not sent again", func() bool {
		ended := 0
		for _, r := range s.results[id] {
			if r.State.Ended() {
				ended++
			}
		}
		return ended >= 3
	})
	s.answered(id, "hello")
	if n := promptsSeen(t, k, session); n != 1 {
		t.Errorf("the agent has seen %d prompts", n)
	}
}

// The reply to a result is lost, each time: the answer arrives whole, and the prompt begins once.
func TestALostReplyToAResultDoesNoHarm(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	var calls atomic.Int64
	s.resultFault = func(string, picket.CommandResult) (error, bool) {
		switch calls.Add(1) % 3 {
		case 1:
			return picket.ErrUnknown, true
		case 2:
			return picket.CodeUnavailable, false
		}
		return nil, true
	}
	k, _ := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	id := s.prompt(session, "long", time.Minute)
	last, answer := s.awaitEnd(id)
	want := strings.Repeat("é", (picket.MaxAnswerText-len(cutNote))/2) + cutNote
	if last.State != picket.PromptAnswered || answer != want {
		t.Errorf("the prompt is %s with %d bytes, want %d", last.State, len(answer), len(want))
	}
	if n := promptsSeen(t, k, session); n != 1 {
		t.Errorf("the agent has seen %d prompts", n)
	}
}

// A prompt ends at its deadline with its processes. One that comes too late is not begun.
func TestAPromptEndsAtItsDeadline(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	k, _ := start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	noted := filepath.Join(t.TempDir(), "pids")
	id := s.prompt(session, "child "+noted, 4*time.Second)
	pids := noteOf(t, noted)
	if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != "timeout" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	awaitDead(t, pids...)
	if last, _ := s.awaitEnd(s.prompt(session, "late", 0)); last.State != picket.PromptRefused ||
		last.Reason != "expired" {
		t.Errorf("the late prompt is %s: %s", last.State, last.Reason)
	}
	s.answered(s.prompt(session, "next", time.Minute), "next")
	if n := promptsSeen(t, k, session); n != 2 {
		t.Errorf("the agent has seen %d prompts, want the first and the last", n)
	}
}

// What is not the answer is log, no matter what it looks like.
func TestGarbageIsLog(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	start(t, residentConfig(s, t.TempDir()))
	session := s.ids(0)[0]
	s.answered(s.prompt(session, "garbage", time.Minute), "at last")
	s.answered(s.prompt(session, "invalid", time.Minute), "a\uFFFDb")
	if last, _ := s.awaitEnd(s.prompt(session, "tooLong", time.Minute)); last.State != picket.PromptFailed ||
		!strings.HasPrefix(last.Reason, "answer_too_long") {
		t.Errorf("an answer that is too long is %s: %s", last.State, last.Reason)
	}
	if last, _ := s.awaitEnd(s.prompt(session, "endless", 1500*time.Millisecond)); last.Reason != "timeout" {
		t.Errorf("an endless line is %s: %s", last.State, last.Reason)
	}
	s.answered(s.prompt(session, "next", time.Minute), "next")
}

// Stopping a session ends its prompt and its processes, and deletes what is stored. A new session takes
// its place at the next start.
func TestASessionIsStoppedWhilePrompting(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newScriptedServer(t)
	k, end := start(t, residentConfig(s, dir))
	session := s.ids(0)[0]
	noted := filepath.Join(t.TempDir(), "pids")
	id := s.prompt(session, "child "+noted, time.Minute)
	pids := noteOf(t, noted)
	stop := s.stop(session)
	if last, _ := s.awaitEnd(id); last.State != picket.PromptFailed || last.Reason != "session_stopped" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	if last, _ := s.awaitEnd(stop); last.State != picket.PromptAnswered {
		t.Errorf("the stop is %s: %s", last.State, last.Reason)
	}
	for _, pid := range pids {
		if proctest.Alive(pid) {
			t.Errorf("process %s survives", pid)
		}
	}
	s.await("the session stays on the list", func() bool {
		return len(s.reports) > 0 && len(s.reports[len(s.reports)-1].Sessions) == 0
	})
	s.mu.Lock()
	stopped := 0
	for _, r := range s.reports {
		for _, one := range r.Sessions {
			if one.State == picket.SessionStopped {
				stopped++
			}
		}
	}
	s.mu.Unlock()
	if stopped != 1 {
		t.Errorf("the session was reported as stopped %d times", stopped)
	}
	if last, _ := s.awaitEnd(s.prompt(session, "hello", time.Minute)); last.State != picket.PromptRefused ||
		last.Reason != "session_not_found" {
		t.Errorf("a later prompt is %s: %s", last.State, last.Reason)
	}
	if left, err := os.ReadDir(k.sessionsDir()); err != nil || len(left) > 0 {
		t.Errorf("%v is left, %v", left, err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	next, _ := start(t, residentConfig(newScriptedServer(t), dir))
	proctest.Eventually(t, func() bool { return len(next.Sessions()) == 1 }, "there is no new session")
	if next.Sessions()[0].SessionID == session {
		t.Error("the new session has the old id")
	}
}

// Two sessions work at the same time. A second prompt for one of them is refused.
func TestTwoSessionsWorkAtOnce(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	cfg := residentConfig(s, t.TempDir())
	cfg.Max = 2
	k, _ := start(t, cfg)
	ids, dir := s.ids(0), t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	first := s.prompt(ids[0], "meet "+one+" "+two, time.Minute)
	noteOf(t, one)
	if last, _ := s.awaitEnd(s.prompt(ids[0], "me, too", time.Minute)); last.State != picket.PromptRefused ||
		last.Reason != "prompt_active" {
		t.Errorf("a second prompt is %s: %s", last.State, last.Reason)
	}
	second := s.prompt(ids[1], "meet "+two+" "+one, time.Minute)
	s.answered(first, "met")
	s.answered(second, "met")
	if n := promptsSeen(t, k, ids[0]); n != 1 {
		t.Errorf("the first session has seen %d prompts", n)
	}
}

// A session that cannot be started is reported, and tries again with the next prompt.
func TestAProgramThatCannotBeStartedDetachesTheSession(t *testing.T) {
	t.Parallel()
	s := newScriptedServer(t)
	cfg := residentConfig(s, t.TempDir())
	program := filepath.Join(t.TempDir(), "agent")
	cfg.Command = []string{program}
	start(t, cfg)
	session := s.ids(0)[0]
	if last, _ := s.awaitEnd(s.prompt(session, "hello", time.Minute)); last.State != picket.PromptFailed ||
		!strings.HasPrefix(last.Reason, "cannot_start: ") {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	s.awaitReport(session, func(r picket.SessionReport) bool { return r.DetachedBecause == picket.CannotStart })
	script := "#!/bin/sh\nexec " + strings.Join(proctest.Agent("resident"), " ") + "\n"
	if err := os.WriteFile(program, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	s.answered(s.prompt(session, "hello", time.Minute), "hello")
	s.awaitReport(session, func(r picket.SessionReport) bool { return r.State == picket.SessionIdle })
}
