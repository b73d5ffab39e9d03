package adapter

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/picket-dev/picket"
)

// WithIfMatch lets a change of an agent's record take effect only while the
// record has this version; 0 is any.
func WithIfMatch(version int64) Option {
	if version == 0 {
		return WithHeader("If-Match", "*")
	}
	return WithHeader("If-Match", `"`+strconv.FormatInt(version, 10)+`"`)
}

// Register registers an agent, which counts as its first heartbeat. With
// [WithIdempotencyKey] a repetition after a lost reply answers the same record
// instead of [picket.CodeStateConflict], which an id meets that is alive. The
// id of a dead or deregistered agent may be registered again, by the key that
// did it before; any other is refused with [picket.CodeForbidden].
func (c *Client) Register(ctx context.Context, reg picket.Registration, opts ...Option) (picket.Agent, error) {
	var got picket.Agent
	err := c.Call(ctx, http.MethodPost, "/api/v1/agents", reg, &got, opts...)
	return got, err
}

// Heartbeat tells that an agent is alive, and what it does. The commands of the
// answer come again until they were honoured. [picket.CodeAgentGone] means that
// the agent is dead, deregistered or superseded: it must stop its work before it
// registers again. Its facts "agent_status" and "reason" are those of the record.
func (c *Client) Heartbeat(ctx context.Context, id string, hb picket.Heartbeat,
	opts ...Option) (picket.HeartbeatAnswer, error) {
	var got picket.HeartbeatAnswer
	err := c.Call(ctx, http.MethodPost, agentPath(id)+"/heartbeat", hb, &got, opts...)
	return got, err
}

// Agent answers the record of an agent.
func (c *Client) Agent(ctx context.Context, id string, opts ...Option) (picket.Agent, error) {
	var got picket.Agent
	err := c.Call(ctx, http.MethodGet, agentPath(id), nil, &got, opts...)
	return got, err
}

// AgentStatus changes the status of an agent to draining or deregistered. It
// takes effect only while the record has this version, 0 for any, and the
// incarnation of the change, if it names one: versions begin again with every
// registration. Otherwise it is refused
// with [picket.CodeVersion], whose fact "current" is the version there is. The
// status that the agent has already is neither a change nor an error; one that it
// cannot take is [picket.CodeStateConflict].
func (c *Client) AgentStatus(ctx context.Context, id string, version int64, change picket.AgentStatusChange,
	opts ...Option) (picket.Agent, error) {
	var got picket.Agent
	opts = append([]Option{WithIfMatch(version)}, opts...)
	err := c.Call(ctx, http.MethodPatch, agentPath(id)+"/status", change, &got, opts...)
	return got, err
}

// Drain lets an agent finish what it has and take nothing more. What it holds
// after the timeout, in whole seconds, is taken from it; negative means the
// timeout that it was registered with. The version is as for AgentStatus.
func (c *Client) Drain(ctx context.Context, id string, version int64, timeout time.Duration,
	opts ...Option) (picket.Agent, error) {
	change := picket.AgentStatusChange{Status: picket.AgentDraining}
	if timeout >= 0 {
		seconds := int(timeout / time.Second)
		change.DrainTimeoutSeconds = &seconds
	}
	return c.AgentStatus(ctx, id, version, change, opts...)
}

// Deregister takes an agent out of the registry at once; what it holds ends.
// It may be repeated. [WithIfMatch] binds it to a version of the record. A dead
// agent is [picket.CodeStateConflict].
func (c *Client) Deregister(ctx context.Context, id string, opts ...Option) (picket.Agent, error) {
	var got picket.Agent
	err := c.Call(ctx, http.MethodDelete, agentPath(id), nil, &got, opts...)
	return got, err
}

// CommandAgent leaves a command for an agent, which gets it with the answers to
// its heartbeats, and answers the command's id.
func (c *Client) CommandAgent(ctx context.Context, id string, command picket.AgentCommand,
	opts ...Option) (string, error) {
	var got picket.CommandAccepted
	err := c.Call(ctx, http.MethodPost, agentPath(id)+"/commands", command, &got, opts...)
	return got.CommandID, err
}

func agentPath(id string) string { return "/api/v1/agents/" + url.PathEscape(id) }

// Evidence answers what the runs of a task have changed, the latest run first.
func (c *Client) Evidence(ctx context.Context, taskID string) ([]picket.Evidence, error) {
	var list struct {
		Evidence []picket.Evidence `json:"evidence"`
	}
	err := c.Call(ctx, http.MethodGet, "/api/v1/tasks/"+taskID+"/evidence", nil, &list)
	return list.Evidence, err
}

// RunsOfTask answers the runs of a task and the server's time, for Shelf.Ask.
func (c *Client) RunsOfTask(ctx context.Context, taskID string) ([]picket.Run, time.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var task picket.Task
	var header http.Header
	err := c.Call(ctx, http.MethodGet, "/api/v1/tasks/"+taskID, nil, &task, WithResponseHeader(&header))
	now, bad := http.ParseTime(header.Get("Date"))
	if bad != nil {
		now = time.Now()
	}
	return task.Runs, now, err
}
