package sessions

import (
	"context"
	"time"

	"github.com/picket-dev/picket"
)

const (
	// pollWait is how long the server is asked to wait for a command.
	pollWait = 50 * time.Second
	// longPoll is the longest request from whose beginning the time of a prompt is counted.
	longPoll = time.Second
	// killMargin is how much later the shim ends a process if the keeper has not done it.
	killMargin = 2 * time.Second
)

// pollAlways asks for commands until ctx ends.
func (k *Keeper) pollAlways(ctx context.Context) {
	retry := retryPace()
	idle := pace{least: 250 * time.Millisecond, most: 2 * time.Second}
	lost := false // the server did not answer
	for wait := pollWait; ctx.Err() == nil; {
		began := k.cfg.clock()
		var pending picket.PendingCommands
		err := k.call(ctx, wait+requestTimeout, func(try context.Context) (err error) {
			pending, err = k.cfg.Server.Pending(try, wait)
			return err
		})
		took := k.cfg.clock() - began
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil {
			wait, lost = 0, true // the next answer comes as soon as the server is there
			k.cfg.Log.Warn("the commands of agent sessions cannot be fetched", "err", err)
			retry.pause(ctx, err)
			continue
		}
		if ctx.Err() != nil {
			return
		}
		retry.reset()
		if lost { // a server that was started again does not count reports from before
			lost = false
			k.changed()
		}
		told := k.tellOfMessages(pending)
		if wait > 0 && took > longPoll && k.hasNewPrompt(pending) {
			// The time of a prompt counts from the answer. It is at most as long ago as the request, so
			// a short one says it better.
			wait = 0
			continue
		}
		wait = pollWait
		if len(pending.Agent) > 0 && k.cfg.AgentCommands != nil {
			k.cfg.AgentCommands(pending.Agent)
		}
		switch fresh := k.handle(pending, began); {
		case fresh || told || took > longPoll:
			idle.reset()
		default: // the server does not wait while commands have no result
			idle.pause(ctx, nil)
		}
	}
}

// tellOfMessages lets every session pass new messages on, if it works on a prompt and can. It reports whether there are
// any.
func (k *Keeper) tellOfMessages(pending picket.PendingCommands) bool {
	if pending.NewestMessage == 0 {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range k.sessions {
		if r, ok := s.agent.(*streaming); ok {
			signal(r.news)
		}
	}
	return true
}

// hasNewPrompt reports whether there is a prompt that did not come before.
func (k *Keeper) hasNewPrompt(p picket.PendingCommands) bool {
	for _, c := range p.Sessions {
		if isPrompt(c) && k.memory.find(c.CommandID) == nil {
			return true
		}
	}
	return false
}

// isPrompt reports whether a command is a prompt, of a person or to wake the session.
func isPrompt(c picket.SessionCommand) bool {
	return c.Command == picket.CommandPrompt || c.Command == picket.CommandWake
}

// handle begins what is new among commands that were asked for at began, and reports whether something
// was.
func (k *Keeper) handle(pending picket.PendingCommands, began time.Duration) (fresh bool) {
	for _, from := range pending.Sessions {
		if !commandID().MatchString(from.CommandID) {
			k.cfg.Log.Warn("a command with an impossible id is left out", "session", from.SessionID)
			continue
		}
		if known := k.memory.find(from.CommandID); known != nil {
			k.deliver(known)
			continue
		}
		fresh = true
		c := k.memory.add(from)
		c.from, c.instructions = from, pending.Instructions
		s := k.find(from.SessionID)
		deadline := began + time.Duration(from.ExpiresInMs)*time.Millisecond
		k.deliver(c)
		switch {
		case !isPrompt(from) && from.Command != picket.CommandStopSession:
			c.end(picket.PromptRefused, "unsupported_command")
		case s == nil:
			c.end(picket.PromptRefused, "session_not_found")
		case from.Command == picket.CommandStopSession:
			k.work.Go(func() { k.stop(s, c) })
		default:
			k.begin(s, c, from.Text, deadline)
		}
	}
	return fresh
}

// stop ends a session for good.
func (k *Keeper) stop(s *session, c *command) {
	s.close(errStopped)
	s.delete()
	c.end(picket.PromptAnswered, "")
}

// begin takes the prompt lock and has the prompt answered.
func (k *Keeper) begin(s *session, c *command, words string, deadline time.Duration) {
	if k.cfg.clock() >= deadline {
		c.end(picket.PromptRefused, "expired")
		return
	}
	if turn := s.turnUnderWay(); turn != nil {
		k.work.Go(func() { // the server has taken another report for the end of the turn
			<-turn
			k.begin(s, c, words, deadline)
		})
		return
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	if refused := s.begin(c.record.CommandID, cancel); refused != "" {
		cancel(nil)
		c.end(picket.PromptRefused, refused)
		return
	}
	k.work.Go(func() {
		defer cancel(nil)
		out := k.answer(ctx, cancel, s, c, words, deadline)
		cancel(nil)
		if out.failed != "" {
			s.finish(out)
			c.end(picket.PromptFailed, out.failed)
			return
		}
		s.beginTurn()
		c.end(picket.PromptAnswered, "")
		k.takeTurn(s, c)
		s.finish(out)
	})
}

// takeTurn lets a session take a task, if its agent has asked for one.
func (k *Keeper) takeTurn(s *session, c *command) {
	ctx, cancel := context.WithCancelCause(k.sending)
	defer cancel(nil)
	if !s.replaceCancel(cancel) || !c.awaitTurn(ctx) || k.cfg.Work == nil {
		return
	}
	s.closeAgent()
	err := k.cfg.Work(ctx, Turn{SessionID: s.id, Conversation: s.conversation(), Started: s.setTask})
	if err != nil {
		k.cfg.Log.Warn("an agent session cannot take a task", "session", s.id, "err", err)
	}
}

// answer has the agent answer a prompt that the server takes for accepted.
func (k *Keeper) answer(ctx context.Context, cancel context.CancelCauseFunc, s *session, c *command, words string,
	deadline time.Duration) (out outcome) {
	k.work.Go(func() { k.watch(ctx, cancel, s, c, deadline) })
	s.awaitClosing()
	reach := s.agent.access(c.from)
	if err := c.accept(reach); err != nil {
		return outcome{failed: reason(picket.CannotStart, err.Error())}
	}
	signal(c.wake)
	select {
	case <-ctx.Done():
	case <-c.accepted:
		out = s.agent.prompt(ctx, prompt{
			id:     c.record.CommandID,
			text:   words,
			access: reach,

			instructions: c.instructions,
			killAt:       deadline + killMargin,
			answer:       c.append,
		})
		if out.failed == "" {
			return out
		}
	}
	switch why := context.Cause(ctx); {
	case why != nil:
		return outcome{failed: why.Error()}
	case k.cfg.clock() >= deadline:
		return outcome{failed: errTimeout.Error()}
	}
	return out
}

// watch ends a prompt at its deadline, and when the server does not want it. It notices its silence.
func (k *Keeper) watch(ctx context.Context, cancel context.CancelCauseFunc, s *session, c *command,
	deadline time.Duration) {
	for {
		left := deadline - k.cfg.clock()
		if left <= 0 {
			cancel(errTimeout)
			return
		}
		s.checkSilence()
		select {
		case <-ctx.Done():
			return
		case <-c.unwanted:
			cancel(errUnwanted)
			return
		case <-time.After(min(left, maxPause)):
		}
	}
}
