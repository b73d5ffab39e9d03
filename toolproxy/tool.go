package toolproxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// Tool is how a tool is listed: a name, a description written for a model, the
// JSON schema of its input, and what a call costs.
type Tool struct {
	Name         string         `json:"name"`
	Description  string         `json:"description"`
	InputSchema  jsontext.Value `json:"inputSchema"`
	OutputSchema jsontext.Value `json:"outputSchema,omitempty"`
	// Price is absent for the free tools that every lease has. Any other tool has one,
	// which may be zero.
	Price *budget.Price `json:"price,omitempty"`
	// Effects is external if the next lease of the task waits for a call under way.
	Effects picket.Effects `json:"effects,omitempty"`
}

// Call is one call of a tool by a run.
type Call struct {
	Backend Backend
	Held    picket.LeaseCredential
	Name    string
	Args    jsontext.Value // a JSON object as it was sent; empty: {}
	// Key is the caller's idempotency key, "" for none. The same key and the same
	// arguments are the same call.
	Key string
}

// Source offers tools beside the built-in ones.
type Source interface {
	// Tools lists what the run may call now. If two sources list the same name, the
	// tool of the first source is listed. What is listed may depend on the adapter.
	Tools(ctx context.Context, adapter ExecQueue, held picket.LeaseCredential) ([]Tool, error)
	// Call makes a call; mine is false when c.Name is not a tool of this source. A
	// tool that is not free goes through [Proxy.MeteredAnswer]. The answer is a JSON
	// object, and a refusal is a *picket.Error.
	Call(ctx context.Context, c Call) (answer jsontext.Value, mine bool, err error)
}

//go:embed tools.json
var toolsJSON []byte

// freeTools are listed in the order in which an agent usually needs them.
var freeTools = ParseTools(toolsJSON)

// ParseTools reads a JSON array of tools that was embedded in the program. It panics
// if the array is malformed.
func ParseTools(raw []byte) (list []Tool) {
	if err := json.Unmarshal(raw, &list, json.RejectUnknownMembers(true)); err != nil {
		panic("toolproxy: description of tools: " + err.Error())
	}
	return list
}

// Tools lists the free tools of this version, which every run has.
func Tools() []Tool { return openTools(picket.LeaseCredential{}) }

// SessionTools lists the free tools that an agent session has while it works on a prompt.
func SessionTools() []Tool { return openTools(picket.LeaseCredential{PromptID: "prompt_"}) }

// openTools are the free tools that are there for the holder of a credential.
func openTools(held picket.LeaseCredential) []Tool {
	return slices.DeleteFunc(slices.Clone(freeTools), func(t Tool) bool { return !isOpen(held, t.Name) })
}

// EncodeJSON writes a value as JSON whose object members are sorted, so that equal
// values have equal bytes.
func EncodeJSON(v any) (jsontext.Value, error) { return json.Marshal(v, json.Deterministic(true)) }

// DecodeArgs reads the arguments of a call as strictly as the body of a request.
// Empty arguments are {}. Errors are *picket.Error.
func DecodeArgs[T any](args jsontext.Value) (v T, err error) {
	if len(bytes.TrimLeft(args, " \t\r\n")) > 0 {
		err = web.Unmarshal(args, &v)
	}
	return v, err
}

// requestID identifies a report. It is a hash of the idempotency key, which may be any text, or
// without a key a new id.
func (c Call) requestID() string {
	if c.Key == "" {
		return rand.Text()
	}
	sum := sha256.Sum256([]byte(c.Key))
	return hex.EncodeToString(sum[:16])
}

// freeToolHandler is what a call of a free tool does.
type freeToolHandler struct {
	recordRefusal bool  // a refusal is recorded
	limit         int64 // of the arguments, in bytes
	call          func(ctx context.Context, c Call) (any, error)
}

// handedTool is a tool that is handed its arguments and the part of the backend that it
// needs.
func handedTool[B, A any](part func(Backend) B,
	call func(context.Context, B, Call, A) (any, error)) func(context.Context, Call) (any, error) {
	return func(ctx context.Context, c Call) (any, error) {
		args, err := DecodeArgs[A](c.Args)
		if err != nil {
			return nil, err
		}
		return call(ctx, part(c.Backend), c, args)
	}
}

// IsFreeTool reports whether a name is that of a free tool.
func IsFreeTool(name string) bool {
	_, ok := freeToolHandlers[name]
	return ok
}

var freeToolHandlers = map[string]freeToolHandler{
	"get_context":        {false, smallBody, handedTool(contexts, getContext)},
	"next_task":          {true, smallBody, handedTool(contexts, nextTask)},
	"get_task":           {false, smallBody, handedTool(tasks, getTask)},
	"report_progress":    {true, picket.MaxPayload, handedTool(tasks, reportProgress)},
	"emit":               {true, picket.MaxEmission + smallBody, handedTool(tasks, emitArtifact)},
	"emit_status":        {true, smallBody, handedTool(tasks, emitStatus)},
	"request_human_help": {true, picket.MaxPayload, handedTool(tasks, requestHumanHelp)},
	"find_agents":        {false, smallBody, handedTool(subtasks, findAgents)},
	"delegate_subtask":   {true, picket.MaxPayload + smallBody, handedTool(subtasks, delegateSubtask)},
	"await_subtask":      {false, smallBody, handedTool(subtasks, awaitSubtask)},
	"review_subtask":     {true, smallBody, handedTool(subtasks, reviewSubtask)},
	"await_top_up":       {false, smallBody, handedTool(envelopes, awaitTopUp)},
	"send_message":       {true, picket.MaxMessage + smallBody, handedTool(messages, sendMessage)},
	"read_messages":      {false, smallBody, handedTool(messages, readMessages)},
	"mark_complete":      {true, completeBody, handedTool(tasks, markComplete)},
	"reply":              {true, completeBody, handedTool(tasks, replyToClient)},
	"mark_failed":        {true, smallBody, handedTool(tasks, markFailed)},
}
