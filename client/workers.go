package client

import (
	"context"
	"iter"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
)

// Leases asks for leases, renews them and shows who holds what. A lease is released with
// its own token at the tool proxy, see package adapter.
type Leases struct{ c *Client }

// Acquire asks for up to req.Max leases and waits up to req.WaitSeconds for the first.
// An empty answer means that the wait ran out. Repeated with the same idempotency key it
// answers the same leases again, which repairs a lost reply.
func (l Leases) Acquire(ctx context.Context, req picket.AcquireRequest, opts ...Option) ([]picket.Lease, error) {
	ctx, cancel := l.withWait(ctx, req.WaitSeconds)
	defer cancel()
	got, err := post[picket.Acquired](ctx, l.c, route("leases"), req, opts)
	return got.Leases, err
}

// Advance completes the task of a lease and asks for the next leases in one step: both
// are done or neither. Repeated with the same idempotency key it answers the same state
// and those of its leases that still hold.
func (l Leases) Advance(ctx context.Context, req picket.AdvanceRequest, opts ...Option) (picket.Advanced, error) {
	ctx, cancel := l.withWait(ctx, req.Acquire.WaitSeconds)
	defer cancel()
	return post[picket.Advanced](ctx, l.c, route("leases", "advance"), req, opts)
}

// withWait bounds a request that the server may hold for some seconds, nil for none.
func (l Leases) withWait(ctx context.Context, seconds *int) (context.Context, context.CancelFunc) {
	patience := l.c.options.Timeout
	if seconds != nil {
		patience += time.Duration(*seconds) * time.Second
	}
	return context.WithTimeout(ctx, patience)
}

// Renewed is what one lease of [Leases.Renew] was answered.
type Renewed struct {
	picket.Renewal // zero if there is an Err
	// Err is nil, or a *[picket.Error] such as a single renewal gets. A code that is [picket.Code.Fenced] means that
	// the lease is lost. [picket.CodeUnauthenticated] means that the lease does not belong to the key.
	Err error
}

// Renew renews 1 to [picket.MaxRenewals] leases that the key of the client has acquired, and answers for each of
// them in the same order. An error means that the request failed as a whole: then some may have been renewed. The
// deadline of a lease counts from before the call. A server of an earlier version does not have the route. The
// error is then [picket.CodeNotFound] or [picket.CodeMethodNotAllowed]. The base URL of the client is that of the
// orchestrator or of the tool proxy.
func (l Leases) Renew(ctx context.Context, leases []picket.LeaseToRenew, opts ...Option) ([]Renewed, error) {
	var got struct {
		Leases []picket.RawJSON `json:"leases"`
	}
	err := l.c.Call(ctx, http.MethodPost, "/v1/leases/renew", picket.RenewRequest{Leases: leases}, &got, opts...)
	if err != nil {
		return nil, err
	}
	answers := make([]Renewed, len(got.Leases))
	for i, raw := range got.Leases {
		answers[i] = decodeRenewed(raw)
	}
	if len(answers) != len(leases) {
		err = picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the server answered for %d of %d leases", len(answers), len(leases))
	}
	return answers, err
}

// decodeRenewed decodes a renewal, or the error object in its place.
func decodeRenewed(raw picket.RawJSON) (r Renewed) {
	if e := problemOf(raw); e.Code != "" {
		r.Err = e
	} else if err := json.Unmarshal(raw, &r.Renewal); err != nil || r.LeaseTTLMs <= 0 {
		r.Err = picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the answer for a lease is neither a renewal nor an error").WithCause(err)
		r.Renewal = picket.Renewal{}
	}
	return r
}

// List reads the leases that are held now, and how their runs go.
func (l Leases) List(ctx context.Context, opts ...Option) (picket.LeasePage, error) {
	return get[picket.LeasePage](ctx, l.c, route("leases"), opts)
}

// Find reads the leases that a query selects, and how their runs go.
func (l Leases) Find(ctx context.Context, q picket.LeaseQuery, opts ...Option) (picket.LeasePage, error) {
	v := parameters("task", q.TaskID, "agent", q.AgentID, "order", string(q.Order), "limit", q.Limit)
	return query[picket.LeasePage](ctx, l.c, route("leases"), v, opts)
}

// Expire takes the lease of a task away. Its holder is refused from now on.
func (l Leases) Expire(ctx context.Context, taskID string, req picket.ExpireRequest,
	opts ...Option) (picket.Task, error) {
	return post[picket.Task](ctx, l.c, route("leases", taskID, "expire"), req, opts)
}

// Agents is the registry of agents, RFC-0016.
type Agents struct{ c *Client }

// Register registers an agent, which counts as its first heartbeat. The id of a live
// agent is refused with [picket.CodeStateConflict], except to a repetition with the same
// idempotency key. The id of a dead or deregistered agent may be registered again by the
// key that did it before; any other key is refused with [picket.CodeForbidden].
func (a Agents) Register(ctx context.Context, reg picket.Registration, opts ...Option) (picket.Agent, error) {
	return post[picket.Agent](ctx, a.c, route("agents"), reg, opts)
}

// Heartbeat tells that an agent is alive, and what it does. A command is in every answer
// until it was handled. [picket.CodeAgentGone] means that the agent is dead,
// deregistered or superseded: it must stop its work before it registers again. Its facts
// "agent_status" and "reason" are those of the record. A heartbeat whose answer is lost is
// repeated like a change, and arrives later than it was made. A program that sends
// heartbeats on a schedule sets [Options.Attempts] to 1: its next heartbeat is newer.
func (a Agents) Heartbeat(ctx context.Context, id string, hb picket.Heartbeat,
	opts ...Option) (picket.HeartbeatAnswer, error) {
	return post[picket.HeartbeatAnswer](ctx, a.c, route("agents", id, "heartbeat"), hb, opts)
}

// Get reads the record of an agent.
func (a Agents) Get(ctx context.Context, id string, opts ...Option) (picket.Agent, error) {
	return get[picket.Agent](ctx, a.c, route("agents", id), opts)
}

// List reads a page of agents. The server ignores the owner of the query: it shows what
// the key may see.
func (a Agents) List(ctx context.Context, q picket.AgentQuery, opts ...Option) (picket.AgentPage, error) {
	v := parameters("capabilities", joined(q.Capabilities), "status", joined(q.Statuses), "role_id", q.Role,
		"limit", q.Limit, "cursor", q.Cursor)
	if q.MinAvailable != nil {
		v.Set("min_available_capacity", strconv.Itoa(*q.MinAvailable))
	}
	if q.Attached {
		v.Set("attached", "true")
	}
	return query[picket.AgentPage](ctx, a.c, route("agents"), v, opts)
}

// All reads the agents of all pages from the one that the query begins with.
func (a Agents) All(ctx context.Context, q picket.AgentQuery, opts ...Option) iter.Seq2[picket.AgentRow, error] {
	return all(q.Cursor, func(cursor string) ([]picket.AgentRow, *string, error) {
		q.Cursor = cursor
		page, err := a.List(ctx, q, opts...)
		return page.Agents, &page.NextCursor, err
	})
}

// ChangeStatus changes the status of an agent to draining or deregistered. It takes effect only
// while the record has this version, 0 for any, and the incarnation of the change, if it names one.
// Otherwise it is refused with [picket.CodeVersion], whose fact "current" is the version of the
// record. A status that the agent has already is not an error. A status that it cannot take is
// refused with [picket.CodeStateConflict]. It is sent once.
func (a Agents) ChangeStatus(ctx context.Context, id string, version int64, change picket.AgentStatusChange,
	opts ...Option) (agent picket.Agent, err error) {
	opts = append([]Option{WithIfMatch(version)}, opts...)
	err = a.c.Call(ctx, http.MethodPatch, route("agents", id, "status"), change, &agent, opts...)
	return agent, err
}

// Drain lets an agent finish what it has and take nothing more. What it holds after the
// timeout, in whole seconds, is taken from it; a negative timeout stands for the one that
// it was registered with. The version is as for ChangeStatus.
func (a Agents) Drain(ctx context.Context, id string, version int64, timeout time.Duration,
	opts ...Option) (picket.Agent, error) {
	change := picket.AgentStatusChange{Status: picket.AgentDraining}
	if timeout >= 0 {
		seconds := int(timeout / time.Second)
		change.DrainTimeoutSeconds = &seconds
	}
	return a.ChangeStatus(ctx, id, version, change, opts...)
}

// Deregister takes an agent out of the registry at once, and what it holds ends. It may
// be repeated. [WithIfMatch] binds it to a version of the record. A dead agent is
// [picket.CodeStateConflict].
func (a Agents) Deregister(ctx context.Context, id string, opts ...Option) (agent picket.Agent, err error) {
	err = a.c.Call(ctx, http.MethodDelete, route("agents", id), nil, &agent, opts...)
	return agent, err
}

// Command leaves a command for an agent, which gets it with the answers to its heartbeats.
func (a Agents) Command(ctx context.Context, id string, command picket.AgentCommand,
	opts ...Option) (picket.CommandAccepted, error) {
	return post[picket.CommandAccepted](ctx, a.c, route("agents", id, "commands"), command, opts)
}

// Pools shows the agents of each role together.
type Pools struct{ c *Client }

// Get reads the pool of a role.
func (p Pools) Get(ctx context.Context, role string, opts ...Option) (picket.Pool, error) {
	return get[picket.Pool](ctx, p.c, route("pools", role), opts)
}

// List reads the pools of all roles.
func (p Pools) List(ctx context.Context, opts ...Option) ([]picket.Pool, error) {
	got, err := get[picket.PoolList](ctx, p.c, route("pools"), opts)
	return got.Pools, err
}

// Tell sends a message to an agent. The key of the agent itself tells those who look after it. One
// with the MessageID of an earlier message is sent once.
func (a Agents) Tell(ctx context.Context, id string, m picket.MessageRequest,
	opts ...Option) (picket.MessageSent, error) {
	return post[picket.MessageSent](ctx, a.c, route("agents", id, "messages"), m, opts)
}

// Messages reads a page of the messages from and to an agent, oldest first.
func (a Agents) Messages(ctx context.Context, id string, q picket.MessageQuery,
	opts ...Option) (picket.MessagePage, error) {
	return query[picket.MessagePage](ctx, a.c, route("agents", id, "messages"),
		parameters("before", q.Before, "limit", q.Limit), opts)
}
