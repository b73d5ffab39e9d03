package a2a

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	stdjson "encoding/json"
	"errors"
	"iter"
	"mime"
	"slices"
	"strconv"
	"strings"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
	"github.com/picket-dev/picket/orchestrator"
)

const (
	maxClientID = 255     // bytes of an id that a client makes
	maxParts    = 100     // of a message
	maxHistory  = 100     // messages that are shown of a task
	maxListed   = 100     // tasks of a page
	usualListed = 50      // tasks of a page if the client does not say
	maxBody     = 1 << 20 // bytes of a request

	// maxListedHistory is how many bytes of conversations a list shows, and that of one task more.
	maxListedHistory = 2 << 20
)

// answerTime is how long a client that has waited for a task may take to read the answer.
const answerTime = 2 * time.Minute

// stream is what a streaming operation sends, after the operation has checked the request. It ends with the task, or
// with ctx. close must be called.
type stream struct {
	events iter.Seq2[protocol.Event, error]
	close  func()
}

// sendMessage takes a message: it becomes a task, the answer to a question, or something to read for the agent of a
// task that works. It waits until the client can do something again, unless it is told not to.
func (x *exchange) sendMessage(ctx context.Context,
	req *protocol.SendMessageRequest) (protocol.SendMessageResult, error) {
	cfg := sendConfig(req)
	if err := checkHistoryLength(cfg.HistoryLength); err != nil {
		return nil, err
	}
	if cfg.ReturnImmediately {
		t, err := x.take(ctx, req, answerAtOnce)
		if err != nil {
			return nil, err
		}
		return x.withHistory(ctx, t, cfg.HistoryLength)
	}
	leave, err := x.server.streams.acquire(x.who) // before the message: one that is refused has done nothing
	if err != nil {
		return nil, err
	}
	defer leave()
	t, err := x.take(ctx, req, answerWhenDone)
	if err != nil {
		return nil, err
	}
	t, err = x.awaitClient(ctx, t)
	web.ExtendWriteDeadline(x.Context, answerTime)
	if err != nil {
		return nil, err
	}
	return x.resultFor(ctx, req, t)
}

// sendStreaming takes a message, and sends what happens to its task.
func (x *exchange) sendStreaming(ctx context.Context, req *protocol.SendMessageRequest) (*stream, error) {
	cfg := sendConfig(req)
	if err := checkHistoryLength(cfg.HistoryLength); err != nil {
		return nil, err
	}
	leave, err := x.server.streams.acquire(x.who)
	if err != nil {
		return nil, err
	}
	t, err := x.take(ctx, req, answerStreamed)
	if err != nil {
		leave()
		return nil, err
	}
	s, err := x.follow(ctx, t, view{history: cfg.HistoryLength, reply: req.Message.TaskID == ""}, leave)
	if err != nil {
		leave()
	}
	return s, err
}

func sendConfig(req *protocol.SendMessageRequest) protocol.SendMessageConfig {
	if req.Config == nil {
		return protocol.SendMessageConfig{}
	}
	return *req.Config
}

// take gives a message to the engine, and returns the task that it is about.
func (x *exchange) take(ctx context.Context, req *protocol.SendMessageRequest, to answerTo) (picket.Task, error) {
	pool, err := x.poolFor(ctx, req.Message)
	if err != nil {
		return picket.Task{}, err
	}
	if err := checkMessage(req.Message, pool.inputModes()); err != nil {
		return picket.Task{}, err
	}
	push, err := x.pushConfig(ctx, sendConfig(req).PushConfig)
	if err != nil {
		return picket.Task{}, err
	}
	reply, err := takesMessage(req, to)
	if err != nil {
		return picket.Task{}, err
	}
	if req.Message.TaskID != "" {
		return x.continueTask(ctx, req, push)
	}
	s := submission{messageID: req.Message.ID, outputModes: sendConfig(req).AcceptedOutputModes, takesMessage: reply,
		push: push}
	if pool.ReusedMessageIDs {
		s.messageID = ""
	}
	return x.submitWithPush(ctx, pool, req.Message, s)
}

// poolFor is the pool that a message is for. At the endpoint of the orchestrator it is that of the task which the
// message continues. Otherwise its metadata names the role, or the client may use one pool only.
func (x *exchange) poolFor(ctx context.Context, m *protocol.Message) (*Pool, error) {
	if x.pool != nil {
		return x.pool, nil
	}
	if m != nil && m.TaskID != "" {
		return x.poolOf(ctx, string(m.TaskID))
	}
	usable := x.usablePools()
	if m != nil && m.Metadata["role"] != nil {
		role, _ := m.Metadata["role"].(string)
		for _, p := range usable {
			if p.Role == role {
				return p, nil
			}
		}
		return nil, picket.Invalid("/message/metadata/role", "Name a skill of the card.", "%.64q is not a role that "+
			"this key may use", role)
	}
	if len(usable) != 1 {
		return nil, picket.Invalid("/message/metadata/role", "Name a skill of the card, or send the message to the "+
			"endpoint of a pool.", "role is required, because the key may use %d pools", len(usable))
	}
	return usable[0], nil
}

// poolOf is the pool of a task of the caller. One that has no endpoint any more takes text and JSON.
func (x *exchange) poolOf(ctx context.Context, taskID string) (*Pool, error) {
	t, err := x.task(ctx, taskID)
	if err != nil {
		return nil, err
	}
	if p := x.server.pools[t.Client.Role]; p != nil {
		return p, nil
	}
	return &Pool{Role: t.Client.Role}, nil
}

// usablePools are the pools that the caller may use, by role.
func (x *exchange) usablePools() (list []*Pool) {
	for i := range x.server.cfg.Pools {
		if p := &x.server.cfg.Pools[i]; x.mayUse(p.Role) {
			list = append(list, p)
		}
	}
	return list
}

// submission is what identifies a task that a client submits, and what is known of it beyond its message. With the
// same messageID or taskID it is the same task; with neither, it is a new one.
type submission struct {
	title       string // empty: the beginning of the message
	messageID   string
	taskID      string
	outputModes []string
	// takesMessage says that the client takes a message as the answer.
	takesMessage bool
	push         *picket.PushConfig // nil: none
}

// submitAs makes a task of a message.
func (x *exchange) submitAs(ctx context.Context, pool *Pool, m *protocol.Message, s submission) (picket.Task, error) {
	input, err := inputOf(m, s.outputModes)
	if err != nil {
		return picket.Task{}, err
	}
	spec := pool.Task
	spec.Role, spec.Title, spec.Input = pool.Role, cmp.Or(s.title, titleOf(m.Parts)), input
	closed := x.checkTakesTasks()
	spec.Client = &picket.ClientTask{
		Role:         pool.Role,
		ContextID:    cmp.Or(m.ContextID, x.newContext(s.taskID)),
		MessageID:    m.ID,
		TaskID:       s.taskID,
		TakesMessage: s.takesMessage,
		MaxQueue:     pool.MaxQueue,
		Closed:       closed != nil,
		Push:         s.push,
	}
	if x.who.Client != nil {
		spec.Client.MaxOpen = x.who.Client.MaxOpen
	}
	if x.instance != nil {
		spec.Client.AgentID, spec.Client.Incarnation = x.instance.AgentID, x.instance.Incarnation
	}
	if x.isPeer() {
		t, err := x.delegate(ctx, spec, peerRequest(pool.Role, s.messageID))
		return t, unlessClosed(err, closed)
	}
	by := x.caller()
	by.Idempotency.Body = digest(spec.Title, string(input), m.ContextID, pool.Role)
	switch {
	case s.taskID != "":
		by.Idempotency.Key = digest(x.who.KeyID, "a2a task", s.taskID)
	case s.messageID != "":
		by.Idempotency.Key = digest(x.who.KeyID, "a2a message", pool.Role, s.messageID, spec.Client.AgentID)
	}
	t, err := x.engine.Submit(ctx, by, spec)
	return t, unlessClosed(s.refusal(err), closed)
}

// newContext is the id of a context that begins with a task. If the client chose the id of the task, it is made of that
// id, so that a repeated request has the same one.
func (x *exchange) newContext(taskID string) string {
	id := ulid.Make().String()
	if taskID != "" {
		id = strings.TrimPrefix(orchestrator.ClientTaskID(x.who.KeyID, taskID), "task_")
	}
	return "context_" + id
}

// continueTask gives a message to a task: as the answer to its question, or as something to read. The push
// configuration of the message is set first, so that it is told what the message leads to.
func (x *exchange) continueTask(ctx context.Context, req *protocol.SendMessageRequest,
	push *picket.PushConfig) (picket.Task, error) {
	m := req.Message
	t, err := x.task(ctx, string(m.TaskID))
	if err != nil {
		return t, err
	}
	if m.ContextID != "" && m.ContextID != contextOf(t) {
		return t, picket.Invalid("/message/contextId", "Send the contextId of the task, or leave it out.",
			"the task is of another context")
	}
	input, err := inputOf(m, sendConfig(req).AcceptedOutputModes)
	if err != nil {
		return t, err
	}
	if again, was, err := x.sentBefore(ctx, t, m, input); was || err != nil {
		return again, err
	}
	if t.State.Terminal() {
		return t, unsupported("the task has ended, so it takes no messages")
	}
	if _, err := x.putPush(ctx, t.TaskID, push); err != nil {
		return t, err
	}
	switch {
	case stateOf(t) == protocol.TaskStateInputRequired && x.isPeer():
		return t, unsupported("the question is left to people")
	case stateOf(t) == protocol.TaskStateInputRequired:
		return x.answer(ctx, t, t.Handoff.HandoffID, m.ID, input)
	}
	return t, x.tell(ctx, t, m)
}

// tell leaves a message for the agent of a task.
func (x *exchange) tell(ctx context.Context, t picket.Task, m *protocol.Message) error {
	data, err := stdjson.Marshal(clientMessage{MessageID: m.ID, Message: messageInput{
		Parts:            exactParts(m.Parts),
		Metadata:         m.Metadata,
		Extensions:       m.Extensions,
		ReferenceTaskIDs: m.ReferenceTasks,
	}})
	if err != nil {
		return err
	}
	req := picket.MessageRequest{Type: messageType, Body: textOf(m.Parts), Data: data}
	if x.isPeer() {
		return x.tellPeer(ctx, t, peerRequest(t.TaskID, m.ID), req)
	}
	by := x.caller()
	by.Idempotency.Key = digest(x.who.KeyID, "a2a message", t.TaskID, m.ID)
	_, err = x.engine.Tell(ctx, by, t.TaskID, req)
	return err
}

// task reads a task that the caller may see at this endpoint, by its id or by the one that the caller gave it. Any
// other task is not found, in the same words as one that does not exist.
func (x *exchange) task(ctx context.Context, id string) (t picket.Task, err error) {
	err = protocol.ErrTaskNotFound
	if picket.CheckID("id", "task", id) == nil {
		t, err = x.visibleTask(ctx, id)
	}
	if errors.Is(err, protocol.ErrTaskNotFound) && id != "" && !x.isPeer() {
		t, err = x.visibleTask(ctx, orchestrator.ClientTaskID(x.who.KeyID, id))
	}
	return t, err
}

func (x *exchange) visibleTask(ctx context.Context, id string) (picket.Task, error) {
	t, err := x.engine.Task(ctx, id)
	if errors.Is(err, picket.CodeNotFound) || err == nil && !x.maySee(t) {
		return picket.Task{}, protocol.ErrTaskNotFound
	}
	if err == nil {
		err = x.checkPeer(ctx, id)
	}
	return t, err
}

// maySee reports whether the caller may see a task at this endpoint.
func (x *exchange) maySee(t picket.Task) bool {
	mine := x.isOperator() || t.CreatedBy == x.who.KeyID
	if x.isPeer() {
		mine = t.Parent != nil && *t.Parent == x.held.TaskID
	}
	here := x.pool == nil || t.Client != nil && x.pool.Role == t.Client.Role
	return mine && t.Client != nil && here && (x.instance == nil || x.instance.AgentID == t.Client.AgentID)
}

// getTask shows a task.
func (x *exchange) getTask(ctx context.Context, req *protocol.GetTaskRequest) (*protocol.Task, error) {
	if err := checkHistoryLength(req.HistoryLength); err != nil {
		return nil, err
	}
	t, err := x.task(ctx, string(req.ID))
	if err != nil {
		return nil, err
	}
	return x.withHistory(ctx, t, req.HistoryLength)
}

func checkHistoryLength(n *int) error {
	if n != nil && *n < 0 {
		return picket.Invalid("/historyLength", "Send 0 or more.", "historyLength is negative")
	}
	return nil
}

// withHistory is the view of a task with as much of its history as is asked for; nil: all that is shown.
func (x *exchange) withHistory(ctx context.Context, t picket.Task, length *int) (*protocol.Task, error) {
	view := viewOf(t)
	limit := maxHistory
	if length != nil {
		limit = min(*length, maxHistory)
	}
	if limit == 0 {
		return view, nil
	}
	page, err := x.engine.Messages(ctx, x.caller(), t.TaskID, picket.MessageQuery{Limit: maxHistory})
	if err != nil {
		return nil, err
	}
	for _, m := range page.Messages {
		x.conversationBytes += len(m.Body) + len(m.Data)
	}
	view.History = historyOf(t, page.Messages, limit)
	return view, nil
}

// cancelTask ends a task.
func (x *exchange) cancelTask(ctx context.Context, req *protocol.CancelTaskRequest) (*protocol.Task, error) {
	t, err := x.task(ctx, string(req.ID))
	if err != nil {
		return nil, err
	}
	if x.isPeer() {
		return nil, unsupported("a subtask is cancelled with its parent, or by a person")
	}
	t, err = x.engine.Cancel(ctx, x.caller(), t.TaskID, cancelReason)
	if errors.Is(err, picket.CodeTaskClosed) || errors.Is(err, picket.CodeStateConflict) {
		return nil, protocol.NewError(protocol.ErrTaskNotCancelable, "the task has ended, so it cannot be cancelled")
	}
	if err != nil {
		return nil, err
	}
	return x.withHistory(ctx, t, nil)
}

// subscribe sends what happens to a task from now on.
func (x *exchange) subscribe(ctx context.Context, req *protocol.SubscribeToTaskRequest) (*stream, error) {
	t, err := x.task(ctx, string(req.ID))
	if err != nil {
		return nil, err
	}
	if t.State.Terminal() {
		return nil, unsupported("the task has ended, so nothing more happens to it")
	}
	leave, err := x.server.streams.acquire(x.who)
	if err != nil {
		return nil, err
	}
	s, err := x.follow(ctx, t, view{}, leave)
	if err != nil {
		leave()
	}
	return s, err
}

// peerRequest identifies a request of a peer by the id of its message. Without one, each request is another one.
func peerRequest(about, messageID string) string {
	if messageID == "" {
		return ""
	}
	return "a2a-" + digest(about, messageID)[:32]
}

// digest is the hex SHA-256 of the parts, each with its length before it.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(strconv.Itoa(len(p)) + ":" + p))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// inputModes are the media types that the pool takes.
func (p *Pool) inputModes() []string {
	modes := slices.Clone(defaultModes)
	for _, s := range p.Skills {
		for _, mode := range s.InputModes {
			if base, _, err := mime.ParseMediaType(mode); err == nil {
				modes = append(modes, base)
			}
		}
	}
	slices.Sort(modes)
	return slices.Compact(modes)
}

// defaultModes are the media types of text and JSON, which every pool takes and makes.
var defaultModes = []string{"application/json", "text/plain"}
