package toolproxy

import (
	"context"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// messenger passes messages between a run and people or other agents. No message changes the state of
// a task.
type messenger interface {
	// SendMessage sends a message of the run; a call with an earlier requestKey is the same message.
	SendMessage(ctx context.Context, held picket.LeaseCredential, requestKey string,
		m picket.AgentMessage) (picket.MessageSent, error)
	// ReadMessages answers what waits for the run, and acknowledges it unless the request peeks.
	// A call with the requestID of the call before has the same answer.
	ReadMessages(ctx context.Context, held picket.LeaseCredential, requestID string, r picket.ReadMessages,
		wait time.Duration) (picket.MessagesRead, error)
	// DeliverMessages shows the adapter what waits, without acknowledging it.
	DeliverMessages(ctx context.Context, held picket.LeaseCredential) (picket.MessagesWaiting, error)
}

func sendMessage(ctx context.Context, messages messenger, c Call, m picket.AgentMessage) (any, error) {
	if err := m.Check(); err != nil {
		return nil, err
	}
	return messages.SendMessage(ctx, c.Held, c.requestID(), m)
}

func readMessages(ctx context.Context, messages messenger, c Call, r picket.ReadMessages) (any, error) {
	if err := r.Check(); err != nil {
		return nil, err
	}
	if r.WaitSeconds == nil {
		r.WaitSeconds = new(int)
	}
	wait, err := toolWait(r.WaitSeconds)
	if err != nil {
		return nil, err
	}
	return messages.ReadMessages(ctx, c.Held, c.requestID(), r, wait)
}

// handleDeliverMessages answers the messages that the adapter passes on to the agent.
func handleDeliverMessages(c echo.Context, messages messenger, held picket.LeaseCredential) (any, error) {
	return messages.DeliverMessages(c.Request().Context(), held)
}
