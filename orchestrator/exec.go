package orchestrator

import (
	"context"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/lazyregexp"
	"github.com/picket-dev/picket/orchestrator/store"
)

// maxExecs is how many processes of one run may be asked for at once.
const maxExecs = 16

// execCallIDSyntax is what a call may be called in a command: the watch lists ids
// between commas.
var execCallIDSyntax = lazyregexp.New(`^[A-Za-z0-9_.-]{1,128}$`)

// OrderExec asks the adapter of the run to start a process. The adapter gets the order with the
// watch and with every renewal until its result is there or order.TTLMs have passed. The same
// CallID again is the same order. It is not_available when the adapter has not said that it starts
// processes.
func (e *Engine) OrderExec(ctx context.Context, held picket.LeaseCredential, order picket.ExecRequest) error {
	if !execCallIDSyntax().MatchString(order.CallID) {
		return picket.Invalid("callId", "Send the id of the call.", "callId is not 1 to 128 letters, digits, _ . or -")
	}
	body, err := json.Marshal(order)
	if err != nil {
		return picket.Invalid("argv", "Send text in UTF-8.", "the order is not valid text").WithCause(err)
	}
	if len(body) > picket.MaxPayload {
		return picket.TooLarge("argv", len(body))
	}
	return e.runHeld(ctx, held, "order_exec", order.CallID, string(body), order.TTLMs, maxExecs).Err
}

// ExecResult stores what became of a process that was asked for. It wakes the call
// that waits for it, in any server process. The first result counts. The lease may
// have ended. Once the deadline of the call has passed, it is state_conflict.
func (e *Engine) ExecResult(ctx context.Context, held picket.LeaseCredential, callID string,
	result picket.ExecResult) error {
	body, err := json.Marshal(result)
	if err != nil {
		return picket.Invalid("/stdout", "Send text in UTF-8.", "the result is not valid text").WithCause(err)
	}
	return e.runHeld(ctx, held, "exec_result", callID, string(body)).Err
}

// AwaitExec waits for the result of a process that was asked for; done is false
// when the wait ran out, or when the call's deadline has passed without one. It
// also waits after the end of the lease.
func (e *Engine) AwaitExec(ctx context.Context, held picket.LeaseCredential, callID string,
	wait time.Duration) (result picket.ExecResult, done bool, err error) {
	end, err := e.records.WaitUntil(ctx, e.records.Subscribe(execTopic(held.RunID, callID)), wait,
		func() (bool, time.Duration, error) {
			r := e.runHeld(ctx, held, "await_exec", callID)
			var v struct {
				Result *picket.ExecResult `reply:"result,json"`
				Left   int64              `reply:"left"` // ms to the deadline of the call
			}
			r.Decode(&v)
			if done = v.Result != nil; done {
				result = *v.Result
				return true, 0, r.Err
			}
			left := time.Duration(v.Left) * time.Millisecond
			return left <= 0, left, r.Err
		})
	if err == nil && end == store.WaitStopped {
		err = store.Stopping(picket.ErrUnknown)
	}
	return result, done && err == nil, err
}

// CanExec reports whether the adapter of the run has said that it starts
// processes for it.
func (e *Engine) CanExec(ctx context.Context, held picket.LeaseCredential) (bool, error) {
	r := e.runHeld(ctx, held, "can_exec")
	return r.Int(r.Value) == 1, r.Err
}

// execView is an entry of the script function pending_execs.
type execView struct {
	Left  int64  `reply:"left"` // ms to the deadline of the call
	Order string `reply:"order"`
}

// execCommands decodes the processes that an adapter has to start.
func (r *reply) execCommands(views []execView) []picket.Command {
	var out []picket.Command
	for _, v := range views {
		order := &picket.ExecRequest{}
		r.JSON(v.Order, order)
		order.TTLMs = v.Left
		out = append(out, picket.Command{Command: "exec", Exec: order})
	}
	return out
}
