package tools

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/toolproxy"
)

// Bounds of the tool exec.
const (
	execTimeout    = 60  // seconds a process gets by default
	maxExecTimeout = 110 // seconds: with execSlack within picket.MaxExternalCall
	maxExecArgs    = 1000
	maxExecInput   = 128 << 10 // bytes of argv and stdin together
	// execSlack is for the way of the order to the adapter and of the result back.
	execSlack = 10 * time.Second
	// orderTries is how often an order is sent whose answer is lost.
	orderTries = 3
)

// Exec is the part that offers the tool exec: the adapter of the run starts a process
// in the agent's workspace. The tool is listed if it has a price and the adapter
// starts processes.
func Exec() toolproxy.Part {
	return func(p *toolproxy.Proxy) error {
		p.AddSource(execSource{p})
		return nil
	}
}

// execSource is the tool exec.
type execSource struct{ proxy *toolproxy.Proxy }

// Tools lists exec when it has a price and the run's adapter starts processes.
func (s execSource) Tools(ctx context.Context, adapter toolproxy.ExecQueue,
	held picket.LeaseCredential) ([]toolproxy.Tool, error) {
	tool, ok := s.proxy.WithPrice(listing("exec"))
	if !ok {
		return nil, nil
	}
	can, err := adapter.CanExec(ctx, held)
	if code := picket.CodeOf(err); code.Fenced() {
		return nil, nil // an agent without a lease may list tools and call none
	}
	if err != nil || !can {
		return nil, err
	}
	return []toolproxy.Tool{tool}, nil
}

type execRequest struct {
	Argv           []string `json:"argv"`
	Stdin          string   `json:"stdin"`
	TimeoutSeconds *int     `json:"timeoutSeconds"`
}

func (s execSource) Call(ctx context.Context, c toolproxy.Call) (jsontext.Value, bool, error) {
	if c.Name != "exec" {
		return nil, false, nil
	}
	answer, err := s.call(ctx, c)
	return answer, true, err
}

func (s execSource) call(ctx context.Context, c toolproxy.Call) (jsontext.Value, error) {
	can, err := c.Backend.CanExec(ctx, c.Held)
	switch code := picket.CodeOf(err); {
	case code.Fenced(): // the reservation says what has become of the lease
	case err != nil:
		return nil, err
	case !can:
		return nil, picket.Refuse(picket.CodeNotFound, "Do without it, or start the process yourself.",
			"the adapter of this run starts no processes: there is no tool exec")
	}
	req, err := decodeExec(c.Args)
	if err != nil {
		return nil, err
	}
	args, err := toolproxy.EncodeJSON(req)
	if err != nil {
		return nil, err
	}
	order := picket.ExecRequest{Argv: req.Argv, Stdin: req.Stdin, TimeoutSeconds: *req.TimeoutSeconds}
	return s.proxy.MeteredAnswer(ctx, c, toolproxy.MeteredCall{
		Args:    args,
		Effects: picket.EffectsExternal,
		Timeout: time.Duration(order.TimeoutSeconds)*time.Second + execSlack,
		Dispatch: func(ctx context.Context, r picket.Reservation) (toolproxy.DispatchResult, error) {
			order.CallID = r.CallID
			return s.dispatch(ctx, c.Backend, c.Held, order)
		},
	})
}

func decodeExec(args jsontext.Value) (execRequest, error) {
	req, err := toolproxy.DecodeArgs[execRequest](args)
	if err != nil {
		return req, err
	}
	if req.TimeoutSeconds == nil {
		seconds := execTimeout
		req.TimeoutSeconds = &seconds
	}
	size := len(req.Stdin)
	for i, arg := range req.Argv {
		if size += len(arg); strings.ContainsRune(arg, 0) {
			return req, picket.Invalid(fmt.Sprintf("/argv/%d", i), "Send it without the character U+0000.",
				"an argument holds a null character")
		}
	}
	switch {
	case len(req.Argv) == 0 || req.Argv[0] == "":
		return req, picket.Invalid("/argv",
			`Send the program and its arguments one by one, such as ["go","test","./..."]; there is no shell.`,
			"argv names no program")
	case len(req.Argv) > maxExecArgs:
		return req, picket.Invalid("/argv",
			fmt.Sprintf("Send at most %d; a list of files can go through stdin.", maxExecArgs), "argv has %d entries",
			len(req.Argv))
	case size > maxExecInput:
		return req, picket.Refuse(picket.CodeTooLarge, "Write it into a file of the workspace and name the file.",
			"argv and stdin have %d bytes, at most %d are allowed", size, maxExecInput).With("limit", maxExecInput)
	case *req.TimeoutSeconds < 1 || *req.TimeoutSeconds > maxExecTimeout:
		return req, picket.Invalid("/timeoutSeconds",
			fmt.Sprintf("Send 1 to %d, or leave it out for %d.", maxExecTimeout, execTimeout), "timeoutSeconds is %d",
			*req.TimeoutSeconds)
	}
	return req, nil
}

var errNoExecResult = errors.New("no result of the process came")

// dispatch orders the process and waits for its result. What ends the call
// early does not end the wait: the adapter kills the process with its lease and
// reports it, and only then has the call no more effects.
func (s execSource) dispatch(ctx context.Context, queue toolproxy.ExecQueue, held picket.LeaseCredential,
	order picket.ExecRequest) (toolproxy.DispatchResult, error) {
	deadline, _ := ctx.Deadline()
	ctx, cancel := context.WithDeadline(context.WithoutCancel(ctx), deadline)
	defer cancel()
	began := time.Now()
	if err := s.order(ctx, queue, held, order, deadline); err != nil {
		return toolproxy.DispatchResult{}, err
	}
	result, err := s.await(ctx, queue, held, order.CallID, deadline)
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	raw, err := toolproxy.EncodeJSON(result)
	if err != nil {
		return toolproxy.DispatchResult{}, err
	}
	failed := result.Code == nil || *result.Code != 0
	// It pays by this clock, not by durationMs: the result comes with a token that
	// the agent has, too.
	return toolproxy.DispatchResult{
		Result: picket.RawJSON(raw),
		Failed: failed,
		Detail: exitSummary(result),
		Used: budget.Usage{
			Millis: max(time.Since(began).Milliseconds(), 1),
			Bytes:  int64(len(result.Stdout) + len(result.Stderr)),
		},
	}, nil
}

// order hands the order in. A definite refusal means that nothing was started;
// without an answer that is open.
func (s execSource) order(ctx context.Context, queue toolproxy.ExecQueue, held picket.LeaseCredential,
	order picket.ExecRequest, deadline time.Time) (err error) {
	for range orderTries {
		order.TTLMs = time.Until(deadline).Milliseconds()
		if err = queue.OrderExec(ctx, held, order); !errors.Is(err, picket.ErrUnknown) {
			break
		}
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, picket.ErrUnknown):
		s.proxy.Log().WarnContext(ctx, "it is not known whether a process was ordered", "task", held.TaskID, "run",
			held.RunID, "call", order.CallID, "err", err)
		return nil
	}
	return toolproxy.NotSent(err)
}

// await goes on while the store is away, up to the call's deadline.
func (s execSource) await(ctx context.Context, queue toolproxy.ExecQueue, held picket.LeaseCredential, callID string,
	deadline time.Time) (picket.ExecResult, error) {
	for {
		result, done, err := queue.AwaitExec(ctx, held, callID, time.Until(deadline))
		switch {
		case done:
			return result, nil
		case err == nil:
			return result, errors.Join(errNoExecResult, context.DeadlineExceeded)
		case !errors.Is(err, picket.ErrUnknown) && picket.CodeOf(err) != picket.CodeUnavailable:
			return result, err
		}
		select {
		case <-ctx.Done():
			return result, cmp.Or(ctx.Err(), err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// exitSummary is how a process ended, for the ledger.
func exitSummary(r picket.ExecResult) string {
	switch {
	case r.Failed != "":
		return "not started"
	case r.Stopped != "":
		return strings.TrimPrefix(r.Stopped, "the command was ")
	case r.Signal != nil:
		return *r.Signal
	case r.Code != nil:
		return fmt.Sprintf("exit %d", *r.Code)
	}
	return ""
}
