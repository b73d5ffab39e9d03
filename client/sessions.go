package client

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/picket-dev/picket"
)

// AgentSessions are the conversations of coding agents that adapters keep.
type AgentSessions struct{ c *Client }

// List reads a page of the sessions that have not ended, newest first.
func (a AgentSessions) List(ctx context.Context, q picket.AgentSessionQuery,
	opts ...Option) (picket.AgentSessionPage, error) {
	return query[picket.AgentSessionPage](ctx, a.c, route("agent-sessions"),
		parameters("agentId", q.AgentID, "cursor", q.Cursor, "limit", q.Limit), opts)
}

// Get reads a session. One that has ended is kept for a week if it was ever prompted.
func (a AgentSessions) Get(ctx context.Context, id string, opts ...Option) (picket.AgentSession, error) {
	return get[picket.AgentSession](ctx, a.c, route("agent-sessions", id), opts)
}

// Stop orders the adapter of a session to end it. It answers the session as it is before that.
func (a AgentSessions) Stop(ctx context.Context, id string, opts ...Option) (picket.AgentSession, error) {
	return post[picket.AgentSession](ctx, a.c, route("agent-sessions", id, "stop"), struct{}{}, opts)
}

// Prompt sends a prompt to a session. It is delivered when those before it have ended.
func (a AgentSessions) Prompt(ctx context.Context, id string, p picket.PromptRequest,
	opts ...Option) (picket.SessionPrompt, error) {
	return post[picket.SessionPrompt](ctx, a.c, route("agent-sessions", id, "prompts"), p, opts)
}

// Prompts reads a page of the prompts of a session, newest first. cursor is that of the page before; 0: none.
func (a AgentSessions) Prompts(ctx context.Context, id string, cursor int64, limit int,
	opts ...Option) (picket.PromptPage, error) {
	return query[picket.PromptPage](ctx, a.c, route("agent-sessions", id, "prompts"),
		parameters("cursor", cursor, "limit", limit), opts)
}

// GetPrompt reads a prompt with its answer from the byte offset on. It waits up to wait, at most 50 s, until
// there is more of the answer or the prompt has ended.
func (a AgentSessions) GetPrompt(ctx context.Context, id, promptID string, offset int, wait time.Duration,
	opts ...Option) (picket.SessionPrompt, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.options.Timeout+wait)
	defer cancel()
	return query[picket.SessionPrompt](ctx, a.c, route("agent-sessions", id, "prompts", promptID),
		parameters("offset", offset, "waitSeconds", int(wait/time.Second)), opts)
}

// Report stores the whole list of the sessions that the adapter of an agent keeps. A session that is not
// in it has ended.
func (a AgentSessions) Report(ctx context.Context, agentID string, r picket.SessionsReport, opts ...Option) error {
	return a.c.change(ctx, http.MethodPut, route("agents", agentID, "sessions"), r, nil, opts)
}

// Pending reads what waits for the sessions of an agent, apart from the commands that are known. If there is
// nothing, it waits up to q.Wait, at most 50 s. It can also wait for messages to the agent.
func (a AgentSessions) Pending(ctx context.Context, agentID string, q picket.PendingQuery,
	opts ...Option) (picket.PendingCommands, error) {
	ctx, cancel := context.WithTimeout(ctx, a.c.options.Timeout+q.Wait)
	defer cancel()
	after := ""
	if q.MessagesAfter != nil {
		after = strconv.FormatInt(*q.MessagesAfter, 10)
	}
	return query[picket.PendingCommands](ctx, a.c, route("agents", agentID, "commands", "pending"),
		parameters("incarnation", q.Incarnation, "known", strings.Join(q.Known, ","), "waitSeconds",
			int(q.Wait/time.Second), "messagesAfter", after), opts)
}

// Result says what became of a prompt. The answer says whether the session has to take a task now.
func (a AgentSessions) Result(ctx context.Context, agentID, commandID string, r picket.CommandResult,
	opts ...Option) (picket.ResultTaken, error) {
	return post[picket.ResultTaken](ctx, a.c, route("agents", agentID, "commands", commandID, "result"), r, opts)
}
