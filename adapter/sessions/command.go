package sessions

import (
	"context"
	"io"
	"strings"
	"sync"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
)

// command is a command of the server, what has become of it, and how much of that the server knows.
type command struct {
	memory *memory
	// from is the command itself, and instructions are the standing ones, with which the agent answers it. They are
	// set before the delivery begins.
	from         picket.SessionCommand
	instructions string
	wake         chan struct{} // there may be something to send; room for one

	accepted chan struct{} // closed: the server has taken the prompt for accepted
	unwanted chan struct{} // closed: the server refuses results
	settled  chan struct{} // closed: the server has the end, or refuses it

	mu         sync.Mutex
	access     access // of the agent, for this prompt; set before it is accepted
	record     commandRecord
	redactor   redactor // of the answer
	cut        bool     // the answer was longer
	sent       int      // bytes of the answer that the server has
	sentState  picket.PromptState
	delivering bool
	nextTask   bool // the session has to take a task; valid once it is settled
}

func newCommand(m *memory, r commandRecord) *command {
	c := &command{
		memory:   m,
		wake:     make(chan struct{}, 1),
		accepted: make(chan struct{}),
		unwanted: make(chan struct{}),
		settled:  make(chan struct{}),
		record:   r,
	}
	c.redactor.to = answerWriter{c}
	return c
}

const (
	// maxPiece bounds a piece of an answer, in bytes.
	maxPiece = 16 << 10
	// cutNote ends an answer that was longer than the bound.
	cutNote = "\n[picket: the rest of the answer was too long]"
)

// accept remembers that the prompt is about to begin, for an agent with this access.
func (c *command) accept(a access) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.access = a
	c.record.State = picket.PromptAccepted
	return c.memory.save(c.record)
}

// append adds words to the answer.
func (c *command) append(words string) {
	words = strings.ToValidUTF8(words, "\uFFFD")
	c.mu.Lock()
	defer c.mu.Unlock()
	_, _ = io.WriteString(&c.redactor, words)
	signal(c.wake)
}

// answerWriter adds to the answer of a command that the caller has locked.
type answerWriter struct{ command *command }

func (w answerWriter) Write(p []byte) (int, error) {
	w.command.add(string(p))
	return len(p), nil
}

// add adds words to the answer. The caller has locked the command.
func (c *command) add(words string) {
	if c.cut || c.record.State.Ended() {
		return
	}
	if free := picket.MaxAnswerText - len(cutNote) - len(c.record.Answer); len(words) > free {
		words, c.cut = text.Head(words, free)+cutNote, true
	}
	c.record.Answer += words
}

// end remembers what has become of the command.
func (c *command) end(state picket.PromptState, reason string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.redactor.Flush()
	c.record.State, c.record.Reason = state, redact(reason)
	c.save()
	signal(c.wake)
}

// save writes the record. The caller has locked the command.
func (c *command) save() {
	if err := c.memory.save(c.record); err != nil {
		c.memory.log.Warn("a command of an agent session cannot be remembered", "command", c.record.CommandID, "err", err)
	}
}

// next is what the server does not know yet; ok is false if it knows everything.
func (c *command) next() (r picket.CommandResult, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.record.State == picket.PromptQueued {
		return r, false
	}
	r.State, r.Offset = c.record.State, c.sent
	r.Output = text.Head(c.record.Answer[c.sent:], maxPiece)
	if r.State.Ended() && c.sent+len(r.Output) < len(c.record.Answer) {
		r.State = picket.PromptAccepted
	}
	if r.State.Ended() {
		r.Reason = c.record.Reason
	} else {
		r.CapabilityHash = c.access.hash()
	}
	return r, r.Output != "" || r.State != c.sentState
}

// acknowledge takes note of what the server has got.
func (c *command) acknowledge(r picket.CommandResult, taken picket.ResultTaken) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent, c.sentState = r.Offset+len(r.Output), r.State
	closeOnce(c.accepted)
	if r.State.Ended() {
		c.nextTask = c.nextTask || taken.NextTask
		closeOnce(c.settled)
	}
}

// refuse takes note that the server does not want results of this command.
func (c *command) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	closeOnce(c.unwanted)
	closeOnce(c.settled)
}

// awaitTurn waits until the server has the end of the prompt, and reports whether the session has to take a task. It
// gives up when ctx ends.
func (c *command) awaitTurn(ctx context.Context) bool {
	select {
	case <-c.settled:
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.nextTask && ctx.Err() == nil
}

// closeOnce closes a channel that nothing is sent to. The caller has locked its owner.
func closeOnce(c chan struct{}) {
	select {
	case <-c:
	default:
		close(c)
	}
}

// startDelivery reports whether a delivery has to be started. It has the last result sent again.
func (c *command) startDelivery() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.delivering {
		c.sentState = ""
		signal(c.wake)
		return false
	}
	c.sent, c.sentState, c.delivering = 0, "", true
	return true
}

// stopDelivery ends the delivery. If it is not forced, it reports false if something is left to send.
func (c *command) stopDelivery(forced bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	done := c.record.State.Ended() && c.sentState == c.record.State && c.sent == len(c.record.Answer)
	if !done && !forced {
		return false
	}
	c.delivering = false
	if done && !c.record.Delivered {
		c.record.Delivered = true
		c.save()
	}
	return true
}

// giveUpDelivery has the result not sent again, except to a server that asks for it.
func (c *command) giveUpDelivery() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.delivering = false
	if c.record.State.Ended() && !c.record.Delivered {
		c.record.Delivered = true
		c.save()
	}
}

// isDelivered reports whether the server has the result.
func (c *command) isDelivered() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.Delivered
}

// isOver reports whether the command may be forgotten.
func (c *command) isOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.record.State.Ended() && !c.delivering
}
