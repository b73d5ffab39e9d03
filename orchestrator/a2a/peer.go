package a2a

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/internal/web"
)

// A peer is an agent that calls an endpoint from inside a run, with its lease token. What it submits is a subtask of
// its own task: the envelope is carved from that of its task, the depth is limited, and a cancellation of its task
// reaches it. Each operation is fenced by the lease, as the tools are.

// bearer is the token of the Authorization header, or "".
func bearer(x *exchange) string {
	scheme, token, _ := strings.Cut(x.Request().Header.Get(echo.HeaderAuthorization), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// refuseSession refuses the credential of an agent session, which has no envelope that a task could be carved from.
func refuseSession() error {
	return picket.Refuse(picket.CodeForbidden,
		"Reserve a task with next_task: the run of that task can call other agents.",
		"an agent session may not call endpoints")
}

// openLease authenticates a peer by its lease token. That the lease still holds is checked by each operation.
func (x *exchange) openLease(token string) error {
	held, err := x.server.cfg.Leases.OpenLeaseToken(token)
	switch {
	case err != nil:
		return picket.Refuse(picket.CodeUnauthenticated, "Send PICKET_LEASE_TOKEN of the agent's environment.",
			"the lease token is malformed or was not made here").WithCause(err)
	case held.Side == picket.SideAdapter:
		return picket.Refuse(picket.CodeForbidden, "Send the agentToken of the lease record.",
			"only the agent of a run may call endpoints, and this is the adapter's credential")
	}
	if err := web.CheckHost(x.Request(), x.server.cfg.AllowedHosts); err != nil {
		return err
	}
	if s := x.Request().Header.Get("X-Fencing-Token"); s != "" {
		if held.Fence, err = strconv.ParseInt(s, 10, 64); err != nil || held.Fence <= 0 {
			return picket.Invalid("X-Fencing-Token", "Send the fencingToken of the lease, or leave the header out.",
				"X-Fencing-Token is not a positive whole number")
		}
	}
	if err := web.MarkAuthenticated(x.Context, web.KindLease, held.RunID); err != nil {
		return err
	}
	if err := x.server.cfg.Rates.Take(web.KindLease, held.RunID+"/a2a"); err != nil {
		return err
	}
	x.engine, x.held = x.server.cfg.Engine(held.Namespace), held
	x.who = picket.Principal{KeyID: held.RunID, Name: held.RunID, Namespace: held.Namespace}
	return nil
}

// isPeer reports whether the caller is an agent inside a run.
func (x *exchange) isPeer() bool { return !x.held.IsZero() }

// delegate makes a subtask of the peer's task.
func (x *exchange) delegate(ctx context.Context, spec picket.TaskSpec, requestKey string) (picket.Task, error) {
	if spec.Client.TaskID != "" {
		return picket.Task{}, picket.Invalid("/taskId", "Leave it out.", "a subtask gets its id from the server")
	}
	parent, err := x.engine.Task(ctx, x.held.TaskID)
	if err != nil {
		return parent, err
	}
	made, err := x.engine.Delegate(ctx, x.held, requestKey, picket.Subtask{
		Title:          spec.Title,
		Input:          spec.Input,
		Role:           spec.Role,
		BudgetEnvelope: share(spec.BudgetEnvelope, parent.Available),
		TimeoutSeconds: spec.TimeoutSeconds,
		Review:         spec.Review,
		Client:         spec.Client,
	})
	if errors.Is(err, picket.CodeBudgetExceeded) {
		err = picket.Refuse(picket.CodeBudgetExceeded, "Do the work in this task, or ask a person for more money.",
			"the budget of this task has too little left for a subtask").WithCause(err)
	}
	if err != nil {
		return picket.Task{}, err
	}
	return x.engine.Task(ctx, made.TaskID)
}

// share is the envelope of a subtask: at most what the pool allows for a task, and at most half of what the caller's
// task has left, so that the caller can go on. It is never without money that the pool works for: if the caller's task
// has nothing left, the engine refuses the subtask.
func share(most *budget.Envelope, left budget.Envelope) *budget.Envelope {
	if most == nil {
		most = new(budget.Default())
	}
	return &budget.Envelope{
		Tokens: min(most.Tokens, max(left.Tokens/2, 1)),
		USD:    min(most.USD, max(left.USD/2, 1)),
	}
}

// checkPeer refuses a peer whose lease does not hold any more, and a task that is not a subtask of its own.
func (x *exchange) checkPeer(ctx context.Context, taskID string) error {
	if !x.isPeer() {
		return nil
	}
	_, err := x.engine.AwaitSubtask(ctx, x.held, taskID, 0)
	return err
}

// checkLease refuses a peer whose lease does not hold any more. Each request of a peer begins with it, and what the
// request does is fenced again.
func (x *exchange) checkLease(ctx context.Context) error {
	_, err := x.engine.AgentContext(ctx, x.held)
	return err
}

// tellPeer sends a message of the peer to a subtask that works.
func (x *exchange) tellPeer(ctx context.Context, t picket.Task, requestKey string, m picket.MessageRequest) error {
	_, err := x.engine.SendMessage(ctx, x.held, requestKey, picket.AgentMessage{To: t.TaskID, MessageRequest: m})
	return err
}

// watchLease is a context that ends when the run of the peer has ended, so that it learns nothing after its lease.
func (x *exchange) watchLease(ctx context.Context) (context.Context, func(), error) {
	seen, err := x.engine.Task(ctx, x.held.TaskID) // in which the run has begun
	if err != nil {
		return nil, nil, err
	}
	own, next, leave, err := x.server.follower(x.engine).join(ctx, seen)
	if err != nil {
		return nil, nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	if runOf(own) != x.held.RunID {
		stop()
	}
	go func() {
		defer stop()
		u := next
		next = nil // what was passed is not held
		for ; u != nil; u = u.next {
			select {
			case <-u.ready:
			case <-ctx.Done():
				return
			}
			if u.run != x.held.RunID { // or the task has ended, or is lost
				return
			}
		}
	}()
	return ctx, func() { stop(); leave() }, nil
}
