package picket

import (
	"cmp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket/internal/lazyregexp"
)

// A message is something to read. It never changes the state of a task, a lease or an agent. It is
// sent to a task or to an agent, whose inbox it stays in until the agent has read it.

// Bounds of messages.
const (
	MaxMessage        = 64 << 10 // bytes of body and data together
	MaxUnreadMessages = 1000     // of one inbox
	MaxUnreadBytes    = 8 << 20  // of body and data of the unread messages of one inbox
	MaxMessagesListed = 2000     // of one conversation; older ones are deleted once they were read
	MaxMessagesRead   = 50       // that one call reads
	MaxSendsPerMinute = 30       // of one credential
	// MessageRetention is how long messages are kept. Those of a task are deleted with it.
	MessageRetention = 30 * 24 * time.Hour
)

// Message is a message as it is kept.
type Message struct {
	MessageID string        `json:"messageId"`
	To        string        `json:"to"` // id of a task or of an agent
	From      MessageSender `json:"from"`
	Type      string        `json:"type,omitempty"`
	Body      string        `json:"body"`
	Data      RawJSON       `json:"data,omitempty"`
	ReplyTo   string        `json:"replyTo,omitempty"` // id of the message that it answers
	SentAt    Instant       `json:"sentAt"`
	// DeliveredAt is when the adapter of a run got it for the agent; null: not yet.
	DeliveredAt *Instant `json:"deliveredAt"`
	ReadAt      *Instant `json:"readAt"` // when the agent read it; null: not yet
}

// Incoming reports whether the message is for the owner of the inbox. Messages that an agent sends
// to its own task are for the people who follow it, and are in no inbox.
func (m Message) Incoming(inbox string) bool {
	return m.To == inbox && m.From.ID != inbox && m.From.TaskID != inbox
}

// The kinds of senders of messages.
const (
	SenderPerson = "person" // a key of an operator or reviewer
	SenderClient = "client" // a key with scope client: the program that submitted the task
	SenderAgent  = "agent"
)

// MessageSender is who sent a message, by the credential that was used.
type MessageSender struct {
	Kind   string `json:"kind"`             // SenderPerson, SenderClient or SenderAgent
	ID     string `json:"id"`               // of the key of a person or client, or of the agent
	Name   string `json:"name,omitempty"`   // of the key, or of the agent
	TaskID string `json:"taskId,omitempty"` // whose lease the agent held
}

// MessageRequest sends a message to a task or an agent.
type MessageRequest struct {
	// MessageID is message_ and a ULID, made by the sender. A request with the id of an earlier
	// message of the sender sends nothing again, as long as that message is kept. Without it the server makes one.
	MessageID string  `json:"messageId,omitempty"`
	Type      string  `json:"type,omitempty"` // of 1 to 64 letters, digits, _ . / or -; for the receiver
	Body      string  `json:"body"`
	Data      RawJSON `json:"data,omitempty"`
	ReplyTo   string  `json:"replyTo,omitempty"`
}

var messageType = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_./-]{0,63}$`)

// Check refuses a message that is out of bounds, or has neither body nor data.
func (m MessageRequest) Check() error {
	if err := cmp.Or(CheckOptionalID("/messageId", "message", m.MessageID),
		CheckOptionalID("/replyTo", "message", m.ReplyTo)); err != nil {
		return err
	}
	if m.Type != "" && !messageType().MatchString(m.Type) {
		return Invalid("/type", "Use 1 to 64 letters, digits, _ . / or -, starting with a letter or digit.",
			"type is not valid")
	}
	if strings.TrimSpace(m.Body) == "" && len(m.Data) == 0 {
		return Invalid("/body", "Write the message.", "body is required, or data")
	}
	if !utf8.ValidString(m.Body) || strings.ContainsRune(m.Body, 0) {
		return Invalid("/body", "Send text in UTF-8 without NUL.", "body is not text")
	}
	if n := len(m.Body) + len(m.Data); n > MaxMessage {
		return Refuse(CodeTooLarge, "Write less, or put the details where the receiver can read them.",
			"body and data have %d bytes, at most %d are allowed", n, MaxMessage).With("field", "/body").
			With("limit", MaxMessage)
	}
	return nil
}

// OptionalIDs implements the check of empty ids.
func (MessageRequest) OptionalIDs() []jsontext.Pointer {
	return []jsontext.Pointer{"/messageId", "/replyTo"}
}

// AgentMessage is the body of the tool send_message.
type AgentMessage struct {
	// To is the id of an agent, of a subtask, or of the parent of the agent's task. Without it, or
	// with the id of its own task, the message is for the people who follow the task.
	To string `json:"to,omitempty"`
	MessageRequest
}

// OptionalIDs implements the check of empty ids.
func (AgentMessage) OptionalIDs() []jsontext.Pointer {
	return append(MessageRequest{}.OptionalIDs(), "/to")
}

// Check refuses a message that is out of bounds, or whose receiver is not the id of a task or agent.
func (m AgentMessage) Check() error {
	return cmp.Or(CheckOptionalName("/to", m.To), m.MessageRequest.Check())
}

// MessageSent answers a message.
type MessageSent struct {
	MessageID string  `json:"messageId"`
	SentAt    Instant `json:"sentAt"`
	Nudge     *Nudge  `json:"nudge,omitempty"` // of the tool only: the agent seems to be stuck
	Unread    int     `json:"unread,omitzero"` // of the tool only: how many messages wait for the agent
}

// MessagePage is a page of the messages from and to a task or an agent, oldest first.
type MessagePage struct {
	Messages []Message `json:"messages"`
	// Unread is how many messages wait in the inbox, in all.
	Unread int `json:"unread"`
	// Before is the cursor of the messages before these; 0: there are none.
	Before int64 `json:"before,omitzero"`
}

// MessageQuery asks for a page of messages.
type MessageQuery struct {
	Before int64 // the cursor of a page; 0: the newest messages
	Limit  int   // 1 to 100; 0: 50
}

// MessagesRead answers the tool read_messages. The messages are quoted to the agent with their
// senders. Only those of people come from somebody who may give it orders.
type MessagesRead struct {
	Messages []Message `json:"messages"` // oldest first
	Nudge    *Nudge    `json:"nudge,omitempty"`
	Unread   int       `json:"unread,omitzero"` // how many more wait
}

// MessagesWaiting is what waits for the agent of a run, for its adapter: the answer of
// GET /v1/run/messages.
type MessagesWaiting struct {
	Messages []Message `json:"messages"` // the MaxMessagesRead that have waited longest
	Unread   int       `json:"unread"`   // in all
	Newest   int64     `json:"newest"`   // number of the last one, as in the command messages; 0: none
	// History is the last messages from and to the task, oldest first, also those that were read.
	History []Message `json:"history"`
}

// ReadMessages is the body of the tool read_messages.
type ReadMessages struct {
	Max         int  `json:"max,omitzero"`          // 1 to 50; 0: 20
	WaitSeconds *int `json:"waitSeconds,omitempty"` // 0 to 50; default 0
	// Peek leaves the messages unread. Without it they are acknowledged in the same step.
	Peek bool `json:"peek,omitzero"`
}

// Check refuses a request that is out of bounds.
func (r ReadMessages) Check() error {
	if r.Max < 0 || r.Max > MaxMessagesRead {
		return Invalid("/max", "Ask for 1 to 50 messages.", "max is %d, allowed are 1 to %d", r.Max, MaxMessagesRead)
	}
	return nil
}
