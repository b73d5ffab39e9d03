package sessions

import (
	"context"
	"errors"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
	"github.com/picket-dev/picket/internal/rig/proctest"
)

// scriptedWork is a run that a test plays.
type scriptedWork struct {
	taskID  string // that it takes; empty: none waits
	begun   chan Turn
	release chan struct{} // ends the run
	ended   chan error    // takes why the context of the run has ended; nil: it has not
}

func newScriptedWork(taskID string) *scriptedWork {
	return &scriptedWork{taskID, make(chan Turn, 10), make(chan struct{}), make(chan error, 10)}
}

func (w *scriptedWork) run(ctx context.Context, t Turn) error {
	w.begun <- t
	if w.taskID == "" {
		<-w.release
		return nil
	}
	t.Started(w.taskID)
	select {
	case <-ctx.Done():
		w.ended <- context.Cause(ctx)
	case <-w.release:
		w.ended <- nil
	}
	return nil
}

// wantWork waits for the turn of a session.
func (w *scriptedWork) wantWork(t *testing.T, session string) Turn {
	t.Helper()
	select {
	case turn := <-w.begun:
		if turn.SessionID != session {
			t.Errorf("the turn is %+v", turn)
		}
		return turn
	case <-time.After(30 * time.Second):
		t.Fatal("the session takes no task")
		return Turn{}
	}
}

const aTask = "task_01JD0000000000000000000000"

// A session takes a task once its prompt is answered and its process is dead, also if a reply is lost. While it works
// it reports the task, and a prompt that comes all the same waits for the end of the run.
func TestASessionTakesATask(t *testing.T) {
	t.Parallel()
	s, work := newScriptedServer(t), newScriptedWork(aTask)
	reserved := ""
	s.nextTask = func(id string) bool { return id == reserved }
	var lose sync.Once
	s.resultFault = func(_ string, r picket.CommandResult) (err error, taken bool) {
		if r.State == picket.PromptAnswered {
			lose.Do(func() { err = picket.ErrUnknown })
		}
		return err, true
	}
	cfg := residentConfig(s, t.TempDir())
	cfg.Work = work.run
	k, _ := start(t, cfg)
	session := s.ids(0)[0]
	s.mu.Lock()
	s.commands = append(s.commands, picket.SessionCommand{CommandID: "prompt_01JD0000000000000000000001",
		Command: picket.CommandPrompt, SessionID: session, Text: "pid", ExpiresInMs: 60_000})
	reserved = s.commands[0].CommandID
	s.change()
	s.mu.Unlock()
	turn := work.wantWork(t, session)
	if turn.Conversation != (agents.Conversation{}) {
		t.Errorf("a plain program has the conversation %+v", turn.Conversation)
	}
	_, pid := s.awaitEnd(reserved)
	awaitDead(t, pid)
	s.awaitReport(session, func(r picket.SessionReport) bool {
		return r.State == picket.SessionPrompting && r.PromptID == reserved && r.TaskID == aTask
	})
	early := s.prompt(session, "hello", time.Minute)
	late := s.prompt(session, "too late", time.Millisecond)
	for _, id := range []string{early, late} {
		proctest.Eventually(t, func() bool { return k.memory.find(id) != nil }, "the prompt does not come")
	}
	if n := promptsSeen(t, k, session); n != 1 {
		t.Errorf("the agent sees %d prompts during the run", n)
	}
	over := k.cfg.clock() + time.Millisecond
	proctest.Eventually(t, func() bool { return k.cfg.clock() >= over }, "the late prompt does not expire")
	close(work.release)
	s.answered(early, "hello")
	if last, _ := s.awaitEnd(late); last.State != picket.PromptRefused || last.Reason != "expired" {
		t.Errorf("the prompt is %s: %s", last.State, last.Reason)
	}
	s.awaitReport(session, func(r picket.SessionReport) bool { return r.State == picket.SessionIdle && r.TaskID == "" })
	if err := <-work.ended; err != nil || len(work.begun) > 0 {
		t.Errorf("the run has ended with %v, and %d more have begun", err, len(work.begun))
	}
	s.answered(s.prompt(session, "again", time.Minute), "again")
}

// A prompt that comes before it is known whether the session works waits for that.
func TestAPromptWaitsForTheTurn(t *testing.T) {
	t.Parallel()
	s, work := newScriptedServer(t), newScriptedWork("")
	const first, second = "prompt_01JD0000000000000000000001", "prompt_01JD0000000000000000000002"
	session := ""
	s.nextTask = func(id string) bool {
		if id == first { // the server sends the next prompt in the same step
			s.commands = append(s.commands, picket.SessionCommand{CommandID: second, Command: picket.CommandPrompt,
				SessionID: session, Text: "second", ExpiresInMs: 60_000})
			s.change()
		}
		return id == first
	}
	cfg := residentConfig(s, t.TempDir())
	cfg.Work = work.run
	k, _ := start(t, cfg)
	session = s.ids(0)[0]
	s.command(picket.SessionCommand{CommandID: first, Command: picket.CommandPrompt, SessionID: session, Text: "first",
		ExpiresInMs: 60_000})
	work.wantWork(t, session)
	proctest.Eventually(t, func() bool { return k.memory.find(second) != nil }, "the second prompt does not come")
	close(work.release)
	s.answered(second, "second")
}

// A prompt that fails takes no task, and the end of the session or of the keeper ends the run.
func TestTheRunEndsWithItsSession(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]struct {
		act func(s *scriptedServer, session string, end func() error)
		why error
	}{
		"stopped": {func(s *scriptedServer, session string, _ func() error) { s.awaitEnd(s.stop(session)) },
			errStopped},
		"keeper": {func(_ *scriptedServer, _ string, end func() error) { _ = end() }, errKeeperEnded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, work := newScriptedServer(t), newScriptedWork(aTask)
			s.nextTask = func(string) bool { return true }
			cfg := residentConfig(s, t.TempDir())
			cfg.Work = work.run
			_, stop := start(t, cfg)
			session := s.ids(0)[0]
			if last, _ := s.awaitEnd(s.prompt(session, "die", time.Minute)); last.State != picket.PromptFailed {
				t.Errorf("the prompt is %s", last.State)
			}
			s.awaitReport(session, func(r picket.SessionReport) bool { return r.State == picket.SessionIdle })
			if len(work.begun) > 0 {
				t.Error("a prompt that has failed takes a task")
			}
			s.answered(s.prompt(session, "go", time.Minute), "go")
			work.wantWork(t, session)
			s.awaitReport(session, func(r picket.SessionReport) bool { return r.TaskID == aTask })
			end.act(s, session, stop)
			if err := <-work.ended; !errors.Is(err, end.why) {
				t.Errorf("the run has ended with %v, want %v", err, end.why)
			}
		})
	}
}

// A coding agent goes on with the conversation of its session. Without work to be done, sessions take no task.
func TestTheTurnOfACodingAgent(t *testing.T) {
	t.Parallel()
	s, work := newScriptedServer(t), newScriptedWork(aTask)
	s.nextTask = func(string) bool { return true }
	cfg := resumableConfig(t, s, t.TempDir())
	cfg.Work = work.run
	k, _ := start(t, cfg)
	session := s.ids(0)[0]
	s.prompt(session, "one", time.Minute)
	want := agents.Conversation{Dir: filepath.Join(k.sessionsDir(), session, conversationDir),
		Workspace: filepath.Join(k.sessionsDir(), session, workDir)}
	if turn := work.wantWork(t, session); turn.Conversation != want {
		t.Errorf("the conversation is %+v, want %+v", turn.Conversation, want)
	}
	close(work.release)

	none := newScriptedServer(t)
	none.nextTask = s.nextTask
	start(t, resumableConfig(t, none, t.TempDir()))
	idle := none.ids(0)[0]
	none.answered(none.prompt(idle, "one", time.Minute), "Resumed: no.\n\nYou said one.")
	none.answered(none.prompt(idle, "two", time.Minute), "Resumed: yes.\n\nYou said two.")
}
