package agentclient

import (
	"context"
	"slices"
	"time"

	protocol "github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
)

// CallTimeout is how long a request may take which does not wait for the work of an agent.
const CallTimeout = time.Minute

// Agent is an agent that can be called.
type Agent struct {
	// Client makes the calls for which Agent has no method. Pass their errors to [Agent.Explain].
	Client *a2aclient.Client

	target *Target
	// streams reports whether the agent streams what happens to tasks.
	streams bool
}

// Open prepares the calls to an agent. The addresses of an agent of the Picket server are known. Those of any other
// agent stand in its card.
func Open(ctx context.Context, t *Target) (*Agent, error) {
	g := newGuard(t)
	if t.Server != nil {
		return t.dial(ctx, g, true, []*protocol.AgentInterface{
			protocol.NewAgentInterface(t.URL+"/a2a", protocol.TransportProtocolJSONRPC)})
	}
	card, _, err := readCard(ctx, g)
	if err != nil {
		return nil, err
	}
	interfaces, err := t.usable(card)
	if err != nil {
		return nil, err
	}
	if t.Credential != "" {
		if g.set, err = howToAuthenticate(card); err != nil {
			return nil, err
		}
	}
	return t.dial(ctx, g, card.Capabilities.Streaming, interfaces)
}

// dial makes the client that calls one of the interfaces.
func (t *Target) dial(ctx context.Context, g *guard, streams bool, interfaces []*protocol.AgentInterface,
) (*Agent, error) {
	c, err := a2aclient.NewFromEndpoints(ctx, interfaces, a2aclient.WithDefaultsDisabled(),
		a2aclient.WithJSONRPCTransport(g.http()), a2aclient.WithRESTTransport(g.http()))
	if err != nil {
		return nil, t.explain(err)
	}
	return &Agent{Client: c, target: t, streams: streams}, nil
}

// Task reads a task with its artifacts and its history.
func (a *Agent) Task(ctx context.Context, id protocol.TaskID) (*protocol.Task, error) {
	ctx, stop := context.WithTimeout(ctx, CallTimeout)
	defer stop()
	request := &protocol.GetTaskRequest{ID: id}
	if a.target.WithoutHistory {
		request.HistoryLength = new(0)
	}
	t, err := a.Client.GetTask(ctx, request)
	if err != nil {
		return nil, a.Explain(err)
	}
	if t.ID == "" {
		return nil, NotA2A("the task that the agent answered has no id")
	}
	return t, nil
}

// Send sends a message. The agent answers before it works on the message.
func (a *Agent) Send(ctx context.Context, m *protocol.Message) (protocol.SendMessageResult, error) {
	result, err := a.Client.SendMessage(ctx, &protocol.SendMessageRequest{Message: m,
		Config: &protocol.SendMessageConfig{ReturnImmediately: true}})
	return result, a.Explain(err)
}

// Cancel cancels a task, and returns it.
func (a *Agent) Cancel(ctx context.Context, id protocol.TaskID) (*protocol.Task, error) {
	ctx, stop := context.WithTimeout(ctx, CallTimeout)
	defer stop()
	t, err := a.Client.CancelTask(ctx, &protocol.CancelTaskRequest{ID: id})
	return t, a.Explain(err)
}

// pageSize is how many tasks are asked for at once.
const pageSize = 100

// List reads pages of tasks until there are limit tasks. more reports whether the agent has further ones.
func (a *Agent) List(ctx context.Context, req protocol.ListTasksRequest, limit int) (all []*protocol.Task, more bool,
	err error) {
	ctx, stop := context.WithTimeout(ctx, CallTimeout)
	defer stop()
	for {
		req.PageSize = min(pageSize, limit-len(all))
		page, err := a.Client.ListTasks(ctx, &req)
		if err != nil {
			return nil, false, a.Explain(err)
		}
		found := slices.DeleteFunc(page.Tasks, func(t *protocol.Task) bool { return t == nil })
		all = append(all, found[:min(len(found), limit-len(all))]...)
		more = page.NextPageToken != ""
		if !more || len(all) == limit || len(found) == 0 || page.NextPageToken == req.PageToken {
			return all, more, nil
		}
		req.PageToken = page.NextPageToken
	}
}

// Explain turns the error of a call into one for a person. That of a context stays as it is, and nil stays nil.
func (a *Agent) Explain(err error) error {
	if err == nil {
		return nil
	}
	return a.target.explain(err)
}
