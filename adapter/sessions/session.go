package sessions

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/adapter/agents"
)

// Why a prompt has ended before its answer. The texts are reasons in its result.
var (
	errTimeout     = errors.New("timeout")
	errStopped     = errors.New("session_stopped")
	errKeeperEnded = errors.New("keeper_ended")
	errUnwanted    = errors.New("not_accepted")
)

// session is one conversation.
type session struct {
	k     *Keeper
	id    string
	dir   string // its directory in the state directory
	agent agent

	mu       sync.Mutex
	record   sessionRecord
	promptID string        // under way, or answered before the turn under way; empty: none
	taskID   string        // that the session works on; empty: none
	turn     chan struct{} // of the prompt that was answered, closed at its end; nil: no turn is under way
	cancel   context.CancelCauseFunc
	idle     *time.Timer // ends the processes; nil: they are not ended
	closed   error       // errStopped or errKeeperEnded; nil: it takes prompts
	lastSign time.Duration
	silent   bool

	detached   string // why; empty: it is not
	detachedAt time.Duration

	prompts sync.WaitGroup
	closing chan struct{} // has a value while the processes are ended; room for one
}

// agent is what a session prompts. One prompt at a time.
type agent interface {
	// access is what the agent reaches Picket with while it works on a prompt that is about to be accepted.
	access(from picket.SessionCommand) access
	// prompt gives a prompt to the agent, and returns when it was answered. If ctx ends before that, it
	// returns when the processes have ended.
	prompt(ctx context.Context, p prompt) outcome
	// close ends the processes, and returns when they have ended. No prompt is under way.
	close()
}

// prompt is a prompt for an agent.
type prompt struct {
	id     string
	text   string
	access access
	killAt time.Duration      // when the shim ends the process, by the clock of the keeper
	answer func(words string) // takes the answer in pieces

	instructions string // the standing ones, which come with each prompt; empty: there are none
}

// outcome is how a prompt has ended.
type outcome struct {
	failed   string // the reason; empty: it was answered
	detached string // why the session is detached by this; empty: it is not
}

func (k *Keeper) newSession(r sessionRecord) *session {
	s := &session{k: k, id: r.SessionID, dir: filepath.Join(k.sessionsDir(), r.SessionID), record: r,
		closing: make(chan struct{}, 1)}
	kept := keptProcess{session: s}
	switch {
	case k.cfg.Kind == picket.SessionResumable:
		s.agent = &resumable{s}
	case k.cfg.Preset.CodingAgent():
		s.agent = &streaming{keptProcess: kept, news: make(chan struct{}, 1)}
	default:
		s.agent = &resident{keptProcess: kept}
	}
	return s
}

// retryDetached is how long a session is detached at most. After that the next prompt tries again.
const retryDetached = 5 * time.Minute

// describe is what is reported about the session.
func (s *session) describe() picket.SessionReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := picket.SessionReport{
		SessionID: s.id,
		Kind:      s.k.cfg.Kind,
		Preset:    string(s.k.cfg.Preset),
		State:     picket.SessionIdle,
		Metered:   s.k.metered.Load(),
	}
	switch {
	case errors.Is(s.closed, errStopped) && s.promptID == "":
		r.State = picket.SessionStopped
	case s.promptID != "":
		r.State, r.PromptID, r.Silent, r.TaskID = picket.SessionPrompting, s.promptID, s.silent, s.taskID
	case s.detached != "" && s.k.cfg.clock() < s.detachedAt+retryDetached:
		r.State, r.DetachedBecause = picket.SessionDetached, s.detached
	}
	if at := s.record.LastActivityAt; !at.IsZero() {
		idle := max(time.Since(at).Milliseconds(), 0)
		r.IdleMs = &idle
	}
	return r
}

// begin takes the prompt lock. refused is the reason if it cannot be taken.
func (s *session) begin(promptID string, cancel context.CancelCauseFunc) (refused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(s.closed, errStopped):
		return "session_not_found"
	case s.closed != nil:
		return s.closed.Error()
	case s.promptID != "":
		return "prompt_active"
	}
	s.promptID, s.cancel, s.silent = promptID, cancel, false
	s.stopIdleTimer()
	s.lastSign, s.record.LastActivityAt = s.k.cfg.clock(), time.Now().UTC().Round(0)
	s.prompts.Add(1)
	s.k.changed()
	return ""
}

// finish gives the prompt lock back.
func (s *session) finish(out outcome) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.taskID != "" {
		s.record.LastActivityAt = time.Now().UTC().Round(0)
	}
	if s.turn != nil {
		close(s.turn)
	}
	s.promptID, s.cancel, s.silent, s.taskID, s.turn = "", nil, false, "", nil
	s.detached, s.detachedAt = out.detached, s.k.cfg.clock()
	s.saveOrWarn()
	s.startIdleTimer()
	s.prompts.Done()
	s.k.changed()
}

// close ends the prompt under way, for a reason, and the processes. Every later prompt is refused.
func (s *session) close(why error) {
	s.mu.Lock()
	if s.closed == nil {
		s.closed = why
	}
	if s.cancel != nil {
		s.cancel(why)
	}
	s.stopIdleTimer()
	s.mu.Unlock()
	s.prompts.Wait()
	s.closeAgent()
}

// closeAgent ends the processes between prompts.
func (s *session) closeAgent() {
	defer s.lockClosing()()
	s.agent.close()
}

// lockClosing lets one at a time end the processes, until it calls the function.
func (s *session) lockClosing() (unlock func()) {
	s.closing <- struct{}{}
	return func() { <-s.closing }
}

// startIdleTimer has the processes ended if no prompt comes in time. The caller has locked the session.
func (s *session) startIdleTimer() {
	if s.k.cfg.IdleStop > 0 && s.closed == nil {
		s.idle = time.AfterFunc(s.k.cfg.IdleStop, s.stopIdle)
	}
}

// stopIdleTimer lets the processes go on. The caller has locked the session.
func (s *session) stopIdleTimer() {
	if s.idle != nil {
		s.idle.Stop()
		s.idle = nil
	}
}

// stopIdle ends the processes, unless a prompt has come meanwhile. One that comes now waits for it: see awaitClosing.
func (s *session) stopIdle() {
	defer s.lockClosing()()
	s.mu.Lock()
	late := s.promptID != "" || s.closed != nil
	s.mu.Unlock()
	if !late {
		s.agent.close()
	}
}

// awaitClosing waits until processes that are being ended have ended. The caller has the prompt lock, so no other end
// of them begins.
func (s *session) awaitClosing() { s.lockClosing()() }

// beginTurn keeps the prompt lock of an answered prompt, until the session takes the next one.
func (s *session) beginTurn() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.turn, s.silent = make(chan struct{}), false
}

// turnUnderWay is closed at the end of the turn under way; nil: there is none.
func (s *session) turnUnderWay() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.turn
}

// replaceCancel has the end of the session end the turn. It reports false if the session has ended.
func (s *session) replaceCancel(cancel context.CancelCauseFunc) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancel = cancel
	return s.closed == nil
}

// setTask notes that the session works on a task.
func (s *session) setTask(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taskID = id
	s.k.changed()
}

// conversation is what a run of a coding agent goes on with.
func (s *session) conversation() agents.Conversation {
	if !s.k.cfg.Preset.CodingAgent() {
		return agents.Conversation{}
	}
	return agents.Conversation{Dir: filepath.Join(s.dir, conversationDir), Workspace: s.workDir()}
}

// delete removes all that is stored about the session.
func (s *session) delete() {
	if err := os.RemoveAll(s.dir); err != nil {
		s.k.cfg.Log.Warn("an agent session that was stopped cannot be deleted", "session", s.id, "err", err)
	}
	s.k.changed()
}

// touch takes note of a sign of life.
func (s *session) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastSign = s.k.cfg.clock()
	if s.promptID == "" {
		return
	}
	s.record.LastActivityAt = time.Now().UTC().Round(0)
	if s.silent {
		s.silent = false
		s.k.changed()
	}
}

// checkSilence looks whether the prompt under way shows no output for too long.
func (s *session) checkSilence() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent && s.promptID != "" && s.k.cfg.clock() >= s.lastSign+s.k.cfg.StallAfter {
		s.silent = true
		s.k.changed()
	}
}

// watch lets what is written count as a sign of life.
func (s *session) watch(to io.Writer) io.Writer { return &watchedWriter{s, to} }

type watchedWriter struct {
	session *session
	to      io.Writer
}

func (w *watchedWriter) Write(p []byte) (int, error) {
	w.session.touch()
	return w.to.Write(p)
}
