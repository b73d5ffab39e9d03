package foreign

import (
	"context"
	stdjson "encoding/json"
	"os"
	"path/filepath"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/cmd/picket/cli"
)

// clientMessageType is the type of messages that clients of A2A have sent. Their data has the parts.
const clientMessageType = "a2a"

const maxMessages = 20 // that are passed on at once

// passMessages passes the messages of the task on to the foreign agent until ctx ends. The adapter writes a file when
// messages wait, so nothing is asked as long as there are none.
func (w *work) passMessages(ctx context.Context) {
	var seen time.Time
	for first := true; ctx.Err() == nil; first = false {
		changed := w.inboxChanged(&seen)
		if (first || changed) && w.emptyInbox(ctx) != nil {
			seen = time.Time{} // again at the next look
		}
		if cli.Sleep(ctx, w.limits.first) != nil {
			return
		}
	}
}

// inboxChanged reports whether the adapter has announced messages since the last look.
func (w *work) inboxChanged(seen *time.Time) bool {
	file := filepath.Join(filepath.Dir(variable(w.job.Env, "PICKET_TASK_FILE")), "messages.json")
	info, err := os.Stat(file)
	if err != nil || info.ModTime().Equal(*seen) {
		return false
	}
	*seen = info.ModTime()
	return true
}

// emptyInbox passes on all messages that wait. A message is marked as read when the foreign agent has it. If it is
// passed on again, it has the same id.
func (w *work) emptyInbox(ctx context.Context) error {
	for {
		got, err := w.readMessages(ctx, picket.ReadMessages{Max: maxMessages, Peek: true})
		if err != nil || len(got.Messages) == 0 {
			return err
		}
		for _, m := range got.Messages {
			if err := w.passMessage(ctx, m); err != nil {
				return err
			}
		}
		if _, err := w.readMessages(ctx, picket.ReadMessages{Max: len(got.Messages)}); err != nil {
			return err
		}
	}
}

func (w *work) readMessages(ctx context.Context, r picket.ReadMessages) (got picket.MessagesRead, err error) {
	err = w.tool(ctx, func(ctx context.Context) error { return w.proxy.Tool(ctx, "read_messages", r, &got) })
	return got, err
}

// passMessage passes a message on. If the foreign agent refuses it, the sender finds that in the output of the run.
func (w *work) passMessage(ctx context.Context, m picket.Message) error {
	sent := protocol.NewMessage(protocol.MessageRoleUser, messageParts(m)...)
	w.mu.Lock()
	sent.ID, sent.TaskID, sent.ContextID = w.saved.messageID(m.MessageID), w.saved.Remote, w.saved.ContextID
	w.mu.Unlock()
	_, err := w.send(ctx, sent)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		w.say(w.job.Stderr, "%s was not passed on: %v", m.MessageID, err)
		return nil
	}
	w.say(w.job.Stdout, "passed %s on", m.MessageID)
	return nil
}

// messageParts are a message as a foreign agent gets it. That of another agent names its sender.
func messageParts(m picket.Message) protocol.ContentParts {
	var ofClient struct {
		Message struct {
			Parts []exactPart `json:"parts"`
		} `json:"message"`
	}
	if m.Type == clientMessageType && stdjson.Unmarshal(m.Data, &ofClient) == nil {
		if sent, ok := partsOf(ofClient.Message.Parts); ok && len(sent) > 0 {
			return sent
		}
	}
	var parts protocol.ContentParts
	body := m.Body
	if m.From.Kind == picket.SenderAgent && body != "" {
		body = "Another agent, " + m.From.ID + ", writes: " + body
	}
	if body != "" {
		parts = append(parts, protocol.NewTextPart(body))
	}
	if len(m.Data) > 0 {
		parts = append(parts, protocol.NewDataPart(m.Data))
	}
	return parts
}
