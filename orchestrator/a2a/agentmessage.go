package a2a

import (
	"cmp"
	"context"
	stdjson "encoding/json"
	"errors"
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// agentMessageRequest is the body of POST a2a/messages of RFC-001: a message to one agent.
type agentMessageRequest struct {
	// MessageID is an id of the sender's own for the message. A request that repeats it sends nothing again.
	MessageID string `json:"messageId,omitempty"`
	// ToAgentID is the agent. At the endpoint of an instance it may be left out.
	ToAgentID string         `json:"toAgentId,omitempty"`
	Type      string         `json:"type"`
	Payload   picket.RawJSON `json:"payload"`
	ReplyTo   string         `json:"replyTo,omitempty"` // id of a message, as an answer or a conversation names it
}

// agentMessageAnswer answers POST a2a/messages. It is the same for a repeated request.
type agentMessageAnswer struct {
	MessageID string         `json:"messageId"` // under which the message is kept
	ToAgentID string         `json:"toAgentId"`
	SentAt    picket.Instant `json:"sentAt"`
}

// maxAgentMessageBody is how many bytes the body of POST a2a/messages has. It leaves room for a message with the most
// bytes and for its envelope.
const maxAgentMessageBody = picket.MaxMessage + 4096

// sendToAgent leaves a message in the inbox of an agent. A message of a client goes to the task of the client that the
// agent runs, and that of a peer is fenced.
func (x *exchange) sendToAgent(ctx context.Context) error {
	body, _, err := web.Decode[agentMessageRequest](x.Context, maxAgentMessageBody)
	if err != nil {
		return err
	}
	m, err := body.message()
	if err != nil {
		return err
	}
	to, err := x.receiver(ctx, body.ToAgentID)
	if err != nil {
		return err
	}
	sent, err := x.leaveMessage(ctx, to, body.MessageID, m)
	if err != nil {
		return err
	}
	return x.JSON(http.StatusAccepted,
		agentMessageAnswer{MessageID: sent.MessageID, ToAgentID: to, SentAt: sent.SentAt})
}

func (x *exchange) leaveMessage(ctx context.Context, to, messageID string,
	m picket.MessageRequest) (picket.MessageSent, error) {
	if x.isPeer() {
		return x.engine.SendMessage(ctx, x.held, peerRequest("message", messageID),
			picket.AgentMessage{To: to, MessageRequest: m})
	}
	by := x.caller()
	if messageID != "" {
		by.Idempotency.Key = digest(x.who.KeyID, "a2a agent message", messageID)
	}
	return x.engine.Tell(ctx, by, to, m)
}

// message is the message as the inbox keeps it. A payload that is a string is its text.
func (r agentMessageRequest) message() (picket.MessageRequest, error) {
	m := picket.MessageRequest{Type: r.Type, ReplyTo: r.ReplyTo}
	switch {
	case len(r.MessageID) > maxClientID:
		return m, picket.Invalid("/messageId", "Send a shorter id.", "messageId has at most %d bytes", maxClientID)
	case r.Type == "":
		return m, picket.Invalid("/type", "Send a word that the agent knows, such as hint.", "type is required")
	case r.Type == messageType:
		return m, picket.Invalid("/type", "Use another word, or call SendMessage.",
			"the type %s is that of messages of SendMessage", messageType)
	case len(r.Payload) == 0 || string(r.Payload) == "null":
		return m, picket.Invalid("/payload", "Send a text or an object.", "payload is required")
	}
	if stdjson.Unmarshal(r.Payload, &m.Body) != nil {
		m.Data = r.Payload
	}
	return m, inPayload(cmp.Or(picket.CheckOptionalID("/replyTo", "message", r.ReplyTo), m.Check()))
}

// inPayload names the member of the request that an error about the text of a message means.
func inPayload(err error) error {
	var no *picket.Error
	if errors.As(err, &no) && no.Facts["field"] == "/body" {
		return no.With("field", "/payload")
	}
	return err
}

// receiver is the agent that a message is for: that of the endpoint, or one of a pool that the caller may use.
func (x *exchange) receiver(ctx context.Context, agentID string) (string, error) {
	switch {
	case x.instance != nil && (agentID == "" || agentID == x.instance.AgentID):
		return x.instance.AgentID, nil
	case x.instance != nil:
		return "", picket.Invalid("/toAgentId", "Leave it out, or send the message to the endpoint of the pool.",
			"toAgentId is not the agent of this endpoint")
	case agentID == "":
		return "", picket.Invalid("/toAgentId", "Name an agent of the pool.", "toAgentId is required here")
	}
	if err := picket.CheckName("toAgentId", agentID); err != nil {
		return "", err
	}
	a, _, err := x.engine.Agent(ctx, agentID)
	if errors.Is(err, picket.CodeNotFound) || err == nil && !x.hasInPool(a) {
		return "", picket.Refuse(picket.CodeNotFound, "Name an agent of a pool that you may use.",
			"there is no agent %s at this endpoint", agentID).With("field", "/toAgentId")
	}
	return agentID, err
}

// hasInPool reports whether an agent is of the pool of the endpoint, or at that of the orchestrator of any pool that
// the caller may use.
func (x *exchange) hasInPool(a picket.Agent) bool {
	if x.pool != nil {
		return a.RoleID == x.pool.Role
	}
	return x.server.pools[a.RoleID] != nil && x.mayUse(a.RoleID)
}
