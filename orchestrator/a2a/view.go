package a2a

import (
	"cmp"
	stdjson "encoding/json"
	"slices"
	"strings"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
)

// metadataKey is the one member of Task.metadata that is ours.
const metadataKey = "picket"

// taskMetadata is what a client can know of a task beyond the protocol. It holds no secret.
type taskMetadata struct {
	State          picket.TaskState `json:"state"`
	Attempt        int              `json:"attempt"`
	FencingToken   int64            `json:"fencingToken"`
	LeaseExpiresAt picket.Instant   `json:"leaseExpiresAt"`
	HandoffID      *string          `json:"handoffId"`
	// Spent is what the task itself has spent, without its subtasks. Another Picket books it.
	Spent budget.Envelope `json:"spent"`
}

// stateOf is the state of a task for its client, who can do nothing about a review or an escalation.
func stateOf(t picket.Task) protocol.TaskState {
	switch t.State {
	case picket.TaskQueued:
		return protocol.TaskStateSubmitted
	case picket.TaskHandoff:
		return stateOfHandoff(t.Handoff)
	case picket.TaskCompleted:
		return protocol.TaskStateCompleted
	case picket.TaskCancelled:
		return protocol.TaskStateCanceled
	case picket.TaskFailed:
		if rejectedByAgent(t) {
			return protocol.TaskStateRejected
		}
		return protocol.TaskStateFailed
	case picket.TaskRejected:
		return protocol.TaskStateFailed
	}
	return protocol.TaskStateWorking
}

// rejectedByAgent reports whether the last run of a task has rejected it. What a reviewer rejects has failed.
func rejectedByAgent(t picket.Task) bool {
	n := len(t.Runs)
	return n > 0 && t.Runs[n-1].Exit != nil && t.Runs[n-1].Exit.Class == picket.ExitRejected
}

func stateOfHandoff(h *picket.Handoff) protocol.TaskState {
	switch {
	case h == nil || h.Kind == picket.HandoffEscalation:
		return protocol.TaskStateWorking
	case h.Kind == picket.HandoffQuestion:
		return protocol.TaskStateInputRequired
	}
	return protocol.TaskStateAuthRequired
}

// interrupted reports whether a task waits for its client or for a person.
func interrupted(s protocol.TaskState) bool {
	return s == protocol.TaskStateInputRequired || s == protocol.TaskStateAuthRequired
}

// viewOf is a task as its client sees it, without its history.
func viewOf(t picket.Task) *protocol.Task {
	at := t.UpdatedAt.Time()
	view := &protocol.Task{
		ID:        protocol.TaskID(t.TaskID),
		ContextID: contextOf(t),
		Status:    protocol.TaskStatus{State: stateOf(t), Timestamp: &at},
		Metadata:  map[string]any{metadataKey: metadataOf(t)},
	}
	if said := statusParts(t); len(said) > 0 {
		view.Status.Message = agentMessage(t, statusMessageID(t), said)
	}
	if e := lastStatus(t); e != nil {
		view.Status.Message = statusMessage(t, *e)
	}
	view.Artifacts = emittedArtifacts(t.Emitted)
	if result := resultOf(t); result != nil {
		view.Artifacts = append(view.Artifacts, result)
	}
	return view
}

// resultOf is the artifact that a task has handed in, or nil.
func resultOf(t picket.Task) *protocol.Artifact {
	parts := partsOf(t.Output)
	if t.State != picket.TaskCompleted || len(parts) == 0 {
		return nil
	}
	return &protocol.Artifact{
		ID:    protocol.ArtifactID(resultPrefix + strings.TrimPrefix(t.TaskID, "task_")),
		Name:  "output",
		Parts: parts,
	}
}

func contextOf(t picket.Task) string {
	if t.Client == nil {
		return t.TaskID
	}
	return t.Client.ContextID
}

func metadataOf(t picket.Task) taskMetadata {
	m := taskMetadata{
		State:          t.State,
		Attempt:        t.Attempts,
		FencingToken:   t.FencingToken,
		LeaseExpiresAt: t.LeaseExpiresAt,
		Spent:          t.Spent,
	}
	if t.State == picket.TaskHandoff && t.Handoff != nil {
		m.HandoffID = &t.Handoff.HandoffID
	}
	return m
}

// cancelReason is the reason of a cancellation by the client.
const cancelReason = "cancelled by the client"

// statusParts are what the agent, or the reviewer, says about the state of a task. The reason of an operator who has
// cancelled it is for other operators.
func statusParts(t picket.Task) protocol.ContentParts {
	said := ""
	switch t.State {
	case picket.TaskHandoff:
		if t.Handoff != nil && stateOfHandoff(t.Handoff) != protocol.TaskStateWorking {
			return questionParts(t.Handoff.Question, t.Handoff.Options)
		}
	case picket.TaskCompleted:
		said = t.Summary
	case picket.TaskRejected:
		if t.Review != nil {
			said = t.Review.Note
		}
	case picket.TaskFailed:
		said = t.Reason
	case picket.TaskCancelled:
		if said = "The task was cancelled."; t.Reason == cancelReason {
			said = t.Reason
		}
	}
	if said == "" {
		return nil
	}
	return protocol.ContentParts{protocol.NewTextPart(said)}
}

// questionParts are a question, and the options that its answer can choose.
func questionParts(question string, options []string) protocol.ContentParts {
	parts := protocol.ContentParts{protocol.NewTextPart(question)}
	if len(options) > 0 {
		parts = append(parts, protocol.NewDataPart(map[string]any{"options": options}))
	}
	return parts
}

// statusMessageID names the message of a status, the same each time it is shown.
func statusMessageID(t picket.Task) string {
	if t.State == picket.TaskHandoff {
		return t.Handoff.HandoffID
	}
	return t.TaskID + "-" + string(t.State)
}

func agentMessage(t picket.Task, id string, parts protocol.ContentParts) *protocol.Message {
	return message(t, protocol.MessageRoleAgent, id, parts)
}

func message(t picket.Task, role protocol.MessageRole, id string, parts protocol.ContentParts) *protocol.Message {
	return &protocol.Message{
		ID:        id,
		Role:      role,
		Parts:     parts,
		TaskID:    protocol.TaskID(t.TaskID),
		ContextID: contextOf(t),
	}
}

// clientMessage is the data of a message that a client sends to a task which works: what the history shows again.
type clientMessage struct {
	MessageID string       `json:"messageId"`
	Message   messageInput `json:"message"`
}

// messageType is the type of messages of clients.
const messageType = "a2a"

// turn is a message of the history with its instant.
type turn struct {
	at  picket.Instant
	msg *protocol.Message
}

// historyOf is what was said about a task, oldest first: what the client has sent, and what the agent has asked and
// said. What people have written to the agent is not for the client. It has at most limit messages, the latest.
func historyOf(t picket.Task, conversation []picket.Message, limit int) []*protocol.Message {
	turns := []turn{{t.CreatedAt, firstMessage(t)}}
	for _, a := range t.Answers {
		if a.By != t.CreatedBy {
			continue // of people, to whom it was left
		}
		turns = append(turns,
			turn{a.At, agentMessage(t, a.HandoffID, protocol.ContentParts{protocol.NewTextPart(a.Question)})},
			turn{a.At, message(t, protocol.MessageRoleUser, a.HandoffID+"-answer", answerParts(a))})
	}
	if t.State == picket.TaskHandoff && t.Handoff != nil && stateOfHandoff(t.Handoff) != protocol.TaskStateWorking {
		turns = append(turns, turn{t.Handoff.CreatedAt, agentMessage(t, t.Handoff.HandoffID, statusParts(t))})
	}
	for _, m := range conversation {
		if said := conversationMessage(t, m); said != nil {
			turns = append(turns, turn{m.SentAt, said})
		}
	}
	for _, e := range t.Emitted {
		if e.Status != nil {
			turns = append(turns, turn{e.At, statusMessage(t, e)})
		}
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	turns = turns[max(0, len(turns)-limit):]
	history := make([]*protocol.Message, len(turns))
	for i, said := range turns {
		history[i] = said.msg
	}
	return history
}

// firstMessage is the message that became the task.
func firstMessage(t picket.Task) *protocol.Message {
	id := t.TaskID
	if t.Client != nil {
		id = t.Client.MessageID
	}
	m := message(t, protocol.MessageRoleUser, id, partsOf(t.Input))
	if sent, ok := structured(t.Input); ok {
		m.Metadata, m.Extensions, m.ReferenceTasks = sent.Metadata, sent.Extensions, sent.ReferenceTaskIDs
	}
	return m
}

func answerParts(a picket.Answer) protocol.ContentParts {
	parts := partsOf(a.Answer)
	if a.Option != nil {
		parts = append(protocol.ContentParts{protocol.NewTextPart(*a.Option)}, parts...)
	}
	return parts
}

// conversationMessage is a message of the client, or of the agent to those who follow its task. It is nil for any
// other message.
func conversationMessage(t picket.Task, m picket.Message) *protocol.Message {
	ofPeer := t.Parent != nil && m.From.TaskID == *t.Parent
	if m.From.Kind == picket.SenderAgent && !ofPeer {
		toParent := t.Parent != nil && m.To == *t.Parent
		if m.From.TaskID != t.TaskID || m.To != t.TaskID && !toParent {
			return nil // of or to another agent
		}
		parts := partsOf(m.Data)
		if m.Body != "" {
			parts = append(protocol.ContentParts{protocol.NewTextPart(m.Body)}, parts...)
		}
		return agentMessage(t, m.MessageID, parts)
	}
	var sent clientMessage
	if m.Type != messageType || !ofPeer && m.From.ID != t.CreatedBy || stdjson.Unmarshal(m.Data, &sent) != nil {
		return nil
	}
	said := message(t, protocol.MessageRoleUser, sent.MessageID, sent.Message.Parts)
	said.Metadata, said.Extensions = sent.Message.Metadata, sent.Message.Extensions
	said.ReferenceTasks = sent.Message.ReferenceTaskIDs
	return said
}
