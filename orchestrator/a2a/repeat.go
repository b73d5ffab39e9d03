package a2a

import (
	"context"
	stdjson "encoding/json"
	"errors"
	"slices"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
)

// refusal is why a task was not made, for its client.
func (s submission) refusal(err error) error {
	switch {
	case errors.Is(err, picket.CodeBudgetExceeded): // without the sums of the installation
		return picket.Refuse(picket.CodeBudgetExceeded, "Send the message again later.",
			"there is no money for the task at present").WithCause(err)
	case errors.Is(err, picket.CodeIdempotencyConflict) && s.messageID != "":
		return picket.Refuse(picket.CodeIdempotencyConflict, "Give each message an id of its own.",
			"another message was sent with this messageId before").With("field", "/message/messageId").WithCause(err)
	}
	return err
}

// sentBefore finds a message to a task that the client sends again because the reply was lost. What it was then, an
// answer or something to read, it stays: it answers no later question. A peer answers no questions, and what it tells
// is told once.
func (x *exchange) sentBefore(ctx context.Context, t picket.Task, m *protocol.Message,
	input picket.RawJSON) (after picket.Task, was bool, err error) {
	if x.isPeer() {
		return t, false, nil
	}
	ofClient := func(a picket.Answer) bool { return a.By == x.who.KeyID }
	if i := slices.IndexFunc(t.Answers, ofClient); i >= 0 {
		// That hand-off is closed, so only an answer that was given before succeeds, and it changes nothing.
		after, err := x.answer(ctx, t, t.Answers[i].HandoffID, m.ID, input)
		if !errors.Is(err, protocol.ErrUnsupportedOperation) {
			return after, true, err
		}
	}
	if !t.State.Terminal() && stateOf(t) != protocol.TaskStateInputRequired {
		return t, false, nil // it is left for the agent once
	}
	page, err := x.engine.Messages(ctx, x.caller(), t.TaskID, picket.MessageQuery{Limit: maxHistory})
	if err != nil || !slices.ContainsFunc(page.Messages, x.isMessage(m.ID)) {
		return t, false, err
	}
	return t, true, x.tell(ctx, t, m)
}

// isMessage recognizes a message of the caller by the id that the caller gave it.
func (x *exchange) isMessage(id string) func(picket.Message) bool {
	return func(m picket.Message) bool {
		var sent clientMessage
		return m.Type == messageType && m.From.ID == x.who.KeyID && stdjson.Unmarshal(m.Data, &sent) == nil &&
			sent.MessageID == id
	}
}

// answer answers a question of a task. Of two answers the first one counts, and the other is refused.
func (x *exchange) answer(ctx context.Context, t picket.Task, handoffID, messageID string,
	input picket.RawJSON) (picket.Task, error) {
	by := x.caller()
	by.Idempotency = picket.Idempotency{
		Key:  digest(x.who.KeyID, "a2a answer", t.TaskID, messageID),
		Body: digest(string(input)),
	}
	after, err := x.engine.Answer(ctx, by, handoffID, picket.AnswerRequest{Answer: input})
	if errors.Is(err, picket.CodeStateConflict) || errors.Is(err, picket.CodeTaskClosed) { // without who did what
		return t, unsupported("the question has been answered already, or the task has ended")
	}
	return after, err
}
