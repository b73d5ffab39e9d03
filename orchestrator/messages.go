package orchestrator

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/text"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Tell sends a message of the caller to a task or an agent, which to names. An agent that tells
// itself sends the message to those who look after it. What a client sends to an agent goes to the
// task of the client that the agent runs now. The same message again is sent once: one with the same
// MessageID, or else with the same by.Idempotency.
func (e *Engine) Tell(ctx context.Context, by picket.Caller, to string,
	m picket.MessageRequest) (picket.MessageSent, error) {
	if err := cmp.Or(picket.CheckName("to", to), m.Check()); err != nil {
		return picket.MessageSent{}, err
	}
	args := []any{to, by.Actor, boolArg(by.Operator), cmp.Or(by.Key, by.Actor)}
	args = append(append(args, messageArgs(m, by.Idempotency.Key)...), e.quotas().MessagesBytes)
	return e.retryJudged(ctx, to, func() *reply { return e.run(ctx, "tell", args...) }).messageSent()
}

// messageArgs are what the scripts read of a message. requestKey identifies a request that names
// no message; an empty one makes each request a message of its own.
func messageArgs(m picket.MessageRequest, requestKey string) []any {
	id := cmp.Or(m.MessageID, messageID(requestKey))
	return []any{id, m.Type, m.Body, string(m.Data), m.ReplyTo, contentHash(m.Type, m.Body, string(m.Data), m.ReplyTo)}
}

// messageID makes a repetition name the same message.
func messageID(requestKey string) string {
	if requestKey == "" {
		return "message_" + ulid.Make().String()
	}
	sum := sha256.Sum256([]byte(requestKey))
	return "message_" + ulid.ULID(sum[:16]).String()
}

// SendMessage sends a message of the holder of a lease, or of an agent session to another agent. The
// same requestKey again is the same message.
func (e *Engine) SendMessage(ctx context.Context, held picket.LeaseCredential, requestKey string,
	m picket.AgentMessage) (picket.MessageSent, error) {
	if err := m.Check(); err != nil {
		return picket.MessageSent{}, err
	}
	if held.OfSession() {
		return e.sendAsSession(ctx, held, requestKey, m)
	}
	seed := ""
	if requestKey != "" {
		seed = held.RunID + " " + requestKey
	}
	args := append([]any{requestKey, contentHash(m.To, m.Type, m.Body, string(m.Data), m.ReplyTo),
		describeCall("send_message", text.OneLine(m.To+" "+m.Body)), m.To}, messageArgs(m.MessageRequest, seed)...)
	r := e.runHeld(ctx, held, "send_message", append(args, e.quotas().MessagesBytes)...)
	if r.endedByLoop() {
		return picket.MessageSent{}, loopRefusal("send_message")
	}
	return r.messageSent()
}

// sendEvery is SEND_EVERY of the scripts.
const sendEvery = 2 * time.Second

func (r *reply) messageSent() (picket.MessageSent, error) {
	var v struct {
		ID     string `reply:"id"`
		Sent   int64  `reply:"sent"` // ms
		Nudge  string `reply:"nudge"`
		Unread int    `reply:"unread"`
	}
	r.Decode(&v)
	var refused *picket.Error
	if errors.As(r.Err, &refused) && refused.Code == picket.CodeRateLimited {
		refused.RetryAfter = sendEvery
	}
	return picket.MessageSent{MessageID: v.ID, SentAt: picket.Instant(v.Sent), Nudge: r.nudge(v.Nudge),
		Unread: v.Unread}, r.Err
}

// emittedRecord is what an entry of emitted:<task> has beside its run, token and instant.
type emittedRecord struct {
	Artifact *picket.ArtifactChunk `json:"artifact,omitempty"`
	Status   *picket.StatusMessage `json:"status,omitempty"`
}

// Emit tells the client of the task of a lease an artifact, or a piece of one. The same requestID among
// the run's last 32 gets the same answer; an empty one is never repeated.
func (e *Engine) Emit(ctx context.Context, held picket.LeaseCredential, requestID string,
	c picket.ArtifactChunk) (picket.Emitted, error) {
	if err := c.Normalize(); err != nil {
		return picket.Emitted{}, err
	}
	return e.emit(ctx, held, requestID, "emit", emittedRecord{Artifact: &c})
}

// EmitStatus tells the client of the task of a lease how the task goes. requestID is that of [Engine.Emit].
func (e *Engine) EmitStatus(ctx context.Context, held picket.LeaseCredential, requestID string,
	m picket.StatusMessage) (picket.Emitted, error) {
	if err := m.Check(); err != nil {
		return picket.Emitted{}, err
	}
	return e.emit(ctx, held, requestID, "emit_status", emittedRecord{Status: &m})
}

func (e *Engine) emit(ctx context.Context, held picket.LeaseCredential, requestID, tool string,
	said emittedRecord) (picket.Emitted, error) {
	body, err := json.Marshal(said, json.Deterministic(true))
	if err != nil {
		return picket.Emitted{}, fmt.Errorf("encode emission: %w", err)
	}
	facts, err := emissionFacts(said, len(body))
	if err != nil {
		return picket.Emitted{}, err
	}
	artifact, add, last := "", false, false
	if a := said.Artifact; a != nil {
		artifact, add, last = a.ArtifactID, a.Append, a.Last
	}
	r := e.runHeld(ctx, held, "emission", requestID, contentHash(string(body)), string(body),
		describeCall(tool, string(body)), artifact, boolArg(add), boolArg(last), facts, picket.MaxEmissions,
		picket.MaxEmittedBytes)
	if r.endedByLoop() {
		return picket.Emitted{}, loopRefusal(tool)
	}
	var v struct {
		Seq    int64  `reply:"seq"`
		Nudge  string `reply:"nudge"`
		Unread int    `reply:"unread"`
	}
	r.Decode(&v)
	return picket.Emitted{Seq: v.Seq, Nudge: r.nudge(v.Nudge), Unread: v.Unread}, r.Err
}

// emissionFacts are the members of an event that tell what was emitted, after a comma. None of them is content.
func emissionFacts(said emittedRecord, size int) (string, error) {
	facts := map[string]any{"bytes": size}
	if a := said.Artifact; a != nil {
		facts["artifactId"], facts["append"], facts["last"] = a.ArtifactID, a.Append, a.Last
		facts["parts"] = len(a.Parts)
	}
	b, err := json.Marshal(facts, json.Deterministic(true))
	if err != nil {
		return "", fmt.Errorf("encode facts of an emission: %w", err)
	}
	return "," + string(b[1:len(b)-1]), nil
}

// defaultMessagesRead is how many messages one call reads if it does not say.
const defaultMessagesRead = 20

// ReadMessages answers the holder of a lease the messages that have waited longest for its task and
// its agent, or an agent session those of its agent. It acknowledges them in the same step unless
// req.Peek is set. Without any it waits for wait. The same requestID again answers the same messages.
func (e *Engine) ReadMessages(ctx context.Context, held picket.LeaseCredential, requestID string,
	req picket.ReadMessages, wait time.Duration) (picket.MessagesRead, error) {
	if err := req.Check(); err != nil {
		return picket.MessagesRead{}, err
	}
	if held.OfSession() {
		return e.readAsSession(ctx, held, requestID, req, wait)
	}
	deadline := time.Now().Add(wait)
	poll := pollFirst
	if wait <= 0 {
		poll = pollOnce
	}
	var got picket.MessagesRead
	topics := e.records.Subscribe(taskTopic(held.TaskID))
	_, err := e.records.WaitUntil(ctx, topics, wait, func() (done bool, again time.Duration, err error) {
		got, err = e.pollMessages(ctx, held, requestID, req, poll, time.Until(deadline))
		done = len(got.Messages) > 0 || poll == pollOnce
		poll = pollAgain
		return done, 0, err
	})
	return got, err
}

func (e *Engine) pollMessages(ctx context.Context, held picket.LeaseCredential, requestID string,
	req picket.ReadMessages, look string, wait time.Duration) (picket.MessagesRead, error) {
	r := e.runHeld(ctx, held, "read_messages", look, max(0, wait.Milliseconds()), requestID,
		cmp.Or(req.Max, defaultMessagesRead), boolArg(req.Peek))
	if r.endedByLoop() {
		return picket.MessagesRead{}, loopRefusal("read_messages")
	}
	var v struct {
		Rows   []messageRow `reply:"rows"`
		Nudge  string       `reply:"nudge"`
		Unread int          `reply:"unread"`
	}
	r.Decode(&v)
	return picket.MessagesRead{Messages: messages(v.Rows), Nudge: r.nudge(v.Nudge), Unread: v.Unread}, r.Err
}

// DeliverMessages shows the adapter of a run the messages that wait for its agent, at most
// picket.MaxMessagesRead of them. They stay unread.
func (e *Engine) DeliverMessages(ctx context.Context, held picket.LeaseCredential) (picket.MessagesWaiting, error) {
	r := e.runHeld(ctx, held, "deliver", picket.MaxMessagesRead)
	var v struct {
		Rows   []messageRow `reply:"rows"`
		Unread int          `reply:"unread"`
		Newest int64        `reply:"newest"`
		Past   []messageRow `reply:"history"`
	}
	r.Decode(&v)
	return picket.MessagesWaiting{Messages: messages(v.Rows), Unread: v.Unread, Newest: v.Newest,
		History: messages(v.Past)}, r.Err
}

// Messages pages through the conversation of a task or an agent. That of an agent is for the key
// that registered it, and for operators.
func (e *Engine) Messages(ctx context.Context, by picket.Caller, of string,
	q picket.MessageQuery) (picket.MessagePage, error) {
	limit, err := pageLimit(q.Limit, 50, 100)
	if err := cmp.Or(err, picket.CheckName("id", of)); err != nil {
		return picket.MessagePage{}, err
	}
	r := e.run(ctx, "conversation", of, by.Actor, boolArg(by.Operator), max(q.Before, 0), limit)
	var v struct {
		Rows   []messageRow `reply:"rows"`
		Unread int          `reply:"unread"`
		More   bool         `reply:"more"`
	}
	r.Decode(&v)
	page := picket.MessagePage{Messages: messages(v.Rows), Unread: v.Unread}
	if n := len(v.Rows); v.More && n > 0 {
		page.Before = v.Rows[n-1].Number
	}
	slices.Reverse(page.Messages)
	return page, r.Err
}

// messageRow is message_row of the scripts.
type messageRow struct {
	ID        string `reply:"id"`
	To        string `reply:"to"`
	Kind      string `reply:"kind"`
	From      string `reply:"from"`
	Name      string `reply:"name"`
	Task      string `reply:"task"`
	Type      string `reply:"type"`
	Body      string `reply:"body"`
	Data      string `reply:"data"`
	Reply     string `reply:"reply"`
	Sent      int64  `reply:"sent"` // ms
	Delivered *int64 `reply:"delivered"`
	Read      *int64 `reply:"read"`
	Number    int64  `reply:"number"`
}

func messages(rows []messageRow) []picket.Message {
	out := make([]picket.Message, len(rows))
	for i, row := range rows {
		out[i] = picket.Message{
			MessageID:   row.ID,
			To:          row.To,
			From:        picket.MessageSender{Kind: row.Kind, ID: row.From, Name: row.Name, TaskID: row.Task},
			Type:        row.Type,
			Body:        row.Body,
			Data:        picket.RawJSON(row.Data),
			ReplyTo:     row.Reply,
			SentAt:      picket.Instant(row.Sent),
			DeliveredAt: optionalInstant(row.Delivered),
			ReadAt:      optionalInstant(row.Read),
		}
		if row.Data == "" {
			out[i].Data = nil
		}
	}
	return out
}

func optionalInstant(ms *int64) *picket.Instant {
	if ms == nil {
		return nil
	}
	at := picket.Instant(*ms)
	return &at
}

// messagesCommand tells the adapter that messages wait. newest is the number of the last one, or "".
func messagesCommand(newest string) []picket.Command {
	if newest == "" {
		return nil
	}
	return []picket.Command{{Command: "messages", Number: store.ParseInt(newest)}}
}
