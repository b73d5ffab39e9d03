package mcp

import (
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/picket-dev/picket"
)

const sessionInstructions = "Tools of an agent session. You hold no task. get_context tells who you are and what waits for you. " +
	"read_messages and send_message are for messages. next_task asks for a task: if it is reserved, end this prompt, and you are started " +
	"again with the task. A tool that needs a lease is refused with lease_required."

// sessionMethods are the methods that an agent session may call. What tools it has is decided with each call.
var sessionMethods = map[string]bool{"initialize": true, "server/discover": true, "ping": true,
	"logging/setLevel": true, "tools/list": true, "tools/call": true}

// checkSession refuses a message of an agent session that needs a lease.
func checkSession(method string, req mcp.Request) error {
	held, ok := heldOf(req.GetExtra())
	if !ok || !held.OfSession() || sessionMethods[method] || strings.HasPrefix(method, "notifications/") {
		return nil
	}
	return protocolError(picket.LeaseRequired())
}

// instructSession tells an agent session what it has, in place of what a run has.
func instructSession(req mcp.Request, result mcp.Result) mcp.Result {
	if held, ok := heldOf(req.GetExtra()); !ok || !held.OfSession() {
		return result
	}
	switch r := result.(type) {
	case *mcp.InitializeResult:
		told := *r
		told.Instructions = sessionInstructions
		return &told
	case *mcp.DiscoverResult:
		told := *r
		told.Instructions = sessionInstructions
		return &told
	}
	return result
}
