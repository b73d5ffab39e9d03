package toolproxy

import (
	"context"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
)

// A session capability is admitted where a lease token is. It opens what is listed here, and nothing else.

// sessionRoutes are the core routes that a session capability opens. Which tools it opens is in sessionTools.
var sessionRoutes = map[string]bool{"/v1/tools": true, "/v1/tools/:name": true, contextPath: true}

// sessionTools are the tools that a session capability opens. The value is true for those of sessions alone.
var sessionTools = map[string]bool{"get_context": false, "read_messages": false, "send_message": false,
	"next_task": true}

// isOpen reports whether a tool is there for the holder of a credential.
func isOpen(held picket.LeaseCredential, tool string) bool {
	onlySessions, sessions := sessionTools[tool]
	if held.OfSession() {
		return sessions
	}
	return !onlySessions
}

// refuseTool refuses a tool that is not there for the holder of a credential.
func refuseTool(held picket.LeaseCredential) error {
	if held.OfSession() {
		return picket.LeaseRequired()
	}
	return picket.Refuse(picket.CodeNotFound,
		"Go on with your task. A worker takes its next task when this one is over.",
		"this tool is for agent sessions, and you hold a task")
}

// contextPath answers what get_context answers.
const contextPath = "/agent/context"

// contextReader is what the proxy asks about the holder of a credential.
type contextReader interface {
	// SessionCapability says whose a session capability is; one that is not valid is refused.
	SessionCapability(ctx context.Context, held picket.LeaseCredential) (picket.SessionGrant, error)
	// AgentContext shows the holder of a lease or of a session capability what it needs to know.
	AgentContext(ctx context.Context, held picket.LeaseCredential) (picket.AgentContext, error)
	// NextTask reserves the next turn of the holder of a session capability.
	NextTask(ctx context.Context, held picket.LeaseCredential) (picket.NextTask, error)
}

func contexts(b Backend) contextReader { return b }

// openCapability finds the credential of a session capability, which the store has to know. That of a process is
// for the prompt that is open now, and stays with it until the request has ended.
func (p *Proxy) openCapability(ctx context.Context, token string) (picket.LeaseCredential, error) {
	held, ok := picket.ParseSessionCapability(token)
	if !ok {
		return held, Unauthenticated("the session capability is malformed")
	}
	backend, err := p.BackendOf(held)
	if err != nil { // anybody can write such a token, and it must not tell which namespaces there are
		return held, picket.Refuse(picket.CodeSessionCapability, "Send the capability exactly as it came with the prompt.",
			"the session capability was not made for a prompt of this server, or its prompt is not known any more")
	}
	grant, err := backend.SessionCapability(ctx, held)
	if held.SessionID != "" {
		held.PromptID = grant.PromptID
	}
	return held, err
}

func nextTask(ctx context.Context, reader contextReader, c Call, _ struct{}) (any, error) {
	return reader.NextTask(ctx, c.Held)
}

func getContext(ctx context.Context, reader contextReader, c Call, _ struct{}) (any, error) {
	return reader.AgentContext(ctx, c.Held)
}

func handleContext(c echo.Context, reader contextReader, held picket.LeaseCredential) (any, error) {
	return reader.AgentContext(c.Request().Context(), held)
}
