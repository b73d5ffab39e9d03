package orchestrator

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/budget"
	"github.com/picket-dev/picket/orchestrator/store"
)

// Acquire grants up to req.Max leases on the best tasks the agent covers. When
// there are none it waits up to req.WaitSeconds for one, then answers none.
func (e *Engine) Acquire(ctx context.Context, by picket.Caller, req picket.AcquireRequest) ([]picket.Lease, error) {
	if err := req.Normalize(); err != nil {
		return nil, err
	}
	return e.waitForLease(ctx, by, req, func(waiter string, wait time.Duration) ([]picket.Lease, error) {
		return e.grant(ctx, by, req, waiter, wait)
	})
}

// waitForLease asks for leases until there is one or the request's wait has run out.
// ask registers as waiter for the time that is left, which is negative when it asks for the first time.
func (e *Engine) waitForLease(ctx context.Context, by picket.Caller, req picket.AcquireRequest,
	ask func(waiter string, wait time.Duration) ([]picket.Lease, error)) ([]picket.Lease, error) {
	id := "waiter_" + ulid.Make().String() + " " + req.AgentID + " " + roleArg(req) + " " +
		strings.Join(req.Capabilities, ",")
	if *req.WaitSeconds == 0 {
		return ask("", 0)
	}
	// Each message is for one waiter: there is one lease to take.
	oneOf := e.records.SubscribeOne(func() store.Waiter { return waiterOf(by, req) })
	limit := time.Duration(*req.WaitSeconds) * time.Second
	deadline := time.Now().Add(limit)
	var leases []picket.Lease
	asked := false
	_, err := e.records.WaitUntil(ctx, oneOf, limit, func() (done bool, again time.Duration, err error) {
		left := max(time.Millisecond, time.Until(deadline))
		if !asked {
			left = -left // nothing is known of this waiter yet
		}
		asked = true
		leases, err = ask(id, left)
		return len(leases) > 0, 0, err
	})
	if ctx.Err() != nil && len(leases) == 0 {
		e.forgetWaiter(ctx, id)
	}
	return leases, err
}

// waiterOf says what wakes a request that waits for a lease.
func waiterOf(by picket.Caller, req picket.AcquireRequest) store.Waiter {
	w := store.Waiter{Agent: req.AgentID}
	if w.Agent != "" {
		w.Topics = append(w.Topics, agentTopic(w.Agent))
	}
	if by.Key != "" {
		w.Topics = append(w.Topics, revokedTopic(by.Key))
	}
	if !req.PinnedOnly {
		w.Class = req.Role + "|" + strings.Join(req.Capabilities, ",")
		others := picket.AcquireRequest{Role: req.Role, Capabilities: req.Capabilities}
		w.Covers = func(lane string) bool { return covers(others, lane) }
	}
	return w
}

// forgetWaiter forgets a waiter; one that cannot be forgotten ends with its wait.
func (e *Engine) forgetWaiter(ctx context.Context, waiter string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = e.run(ctx, "unwait", waiter)
}

func (e *Engine) grant(ctx context.Context, by picket.Caller, req picket.AcquireRequest, waiter string,
	wait time.Duration) ([]picket.Lease, error) {
	r, floor := e.runGrant(ctx, "grant", nil, by, req, waiter, wait)
	var g grantReply
	r.Decode(&g)
	return e.newLeases(r, g, floor, req.SeparateCredentials), r.Err
}

// runGrant runs a script that grants: first are the arguments it takes before
// those of grant. It also tells the floor that the grants are above.
func (e *Engine) runGrant(ctx context.Context, script string, first []any, by picket.Caller, req picket.AcquireRequest,
	waiter string, wait time.Duration) (r *reply, floor int64) {
	if !e.records.MayGrant() {
		return e.newReply(script, nil, picket.Refuse(picket.CodeUnavailable, "Acquire from a `picket serve orchestrator`.",
			"this process keeps no witness, so it may not grant leases")), 0
	}
	args := append(slices.Clip(first), by.Actor, req.AgentID, roleArg(req), ","+strings.Join(req.Capabilities, ",")+",",
		waiter, wait.Milliseconds(), strings.TrimSuffix(req.WorkspaceRoot, "/"), by.Idempotency.Key,
		by.Idempotency.Body, 0, 0, req.Incarnation, boolArg(by.Operator), by.Key, e.quotas().Runs)
	known := len(args) - 6
	runs := make([]string, *req.Max)
	for i := range runs {
		runs[i] = "run_" + ulid.Make().String()
		args = append(args, runs[i], e.store.cfg.Sealer.Fingerprint(e.namespace, runs[i]))
	}
	r = e.retryJudged(ctx, req.AgentID, func() *reply {
		var got any
		var err error
		got, floor, err = e.records.RunGrant(ctx, script, func(floor, grants int64) []any {
			args[known], args[known+1] = floor, grants
			return args
		})
		return e.newReply(script, got, err)
	})
	if errors.Is(r.Err, picket.ErrUnknown) && by.Idempotency.Key == "" {
		// Nobody can ask for these again, so give them back at once. Without
		// an answer the first, short deadline does it.
		back, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		_ = e.Undeliver(back, runs...)
	}
	return r, floor
}

// grantReply is what the script grant answers.
type grantReply struct {
	Outcome string      `reply:"outcome"`
	Raw     int64       `reply:"raw"` // the server's own clock, ms
	Seq     int64       `reply:"seq"`
	Grants  int64       `reply:"grants"` // ever
	Leases  []leaseView `reply:"leases"`

	Instructions string `reply:"instructions"` // of the agent
}

// leaseView is what the script function lease_view shows.
type leaseView struct {
	Task      string          `reply:"task"`
	Run       string          `reply:"run"`
	Token     int64           `reply:"token"`
	Attempt   int64           `reply:"attempt"`
	Window    int64           `reply:"window"` // ms
	TTL       int64           `reply:"ttl"`    // ms
	Spec      leaseSpec       `reply:"spec,json"`
	Input     string          `reply:"input"` // as a person has edited it, if one has
	Report    string          `reply:"report"`
	Answers   []string        `reply:"answers"`
	Previous  *runView        `reply:"previous"`
	Workspace string          `reply:"workspace"`
	Fixes     string          `reply:"fixes"`
	Retries   string          `reply:"retries"`
	Note      string          `reply:"note"` // of the review that it fixes
	Envelope  budget.Envelope `reply:"envelope"`
	Messages  int             `reply:"messages"`
	Waited    string          `reply:"waited"` // ms for the first lease, "" for later ones
}

// leaseSpec is the part of a specRecord that a lease shows. Every grant reads one.
type leaseSpec struct {
	Title             string            `json:"title"`
	Role              string            `json:"role"`
	Needs             []string          `json:"needs"`
	Priority          *int              `json:"priority"`
	TimeoutSeconds    *int              `json:"timeoutSeconds"`
	StallAfterSeconds *int              `json:"stallAfterSeconds"`
	OnExit            picket.OnExit     `json:"onExit"`
	Labels            map[string]string `json:"labels"`
	Trace             *picket.Trace     `json:"trace"`
}

// newLeases makes the leases of a reply. separate gives each lease two credentials.
func (e *Engine) newLeases(r *reply, g grantReply, floor int64, separate bool) []picket.Lease {
	if r.Err != nil {
		return nil
	}
	e.records.NoteGrants(floor, g.Grants, g.Seq)
	leases := make([]picket.Lease, 0, len(g.Leases))
	for _, v := range g.Leases {
		lease := e.decodeLease(r, g.Raw, v)
		lease.Instructions = g.Instructions
		e.sealLease(&lease, separate)
		leases = append(leases, lease)
		if g.Outcome != grantRepeated {
			e.metrics.recordGrant(v.Spec.Role, v.Waited)
		}
	}
	return leases
}

// sealLease makes the credentials of a lease. They depend only on the run, so a
// repeated acquire returns the same credentials.
func (e *Engine) sealLease(l *picket.Lease, separate bool) {
	seal := func(side picket.LeaseSide) picket.Secret {
		return e.store.cfg.Sealer.LeaseTokenFor(side, e.namespace, l.TaskID, l.RunID)
	}
	if !separate {
		l.LeaseToken = seal(picket.SideBoth)
		return
	}
	l.LeaseToken, l.AgentToken = seal(picket.SideAdapter), seal(picket.SideAgent)
}

// decodeLease decodes one granted lease, without its credentials.
func (e *Engine) decodeLease(r *reply, raw int64, v leaseView) picket.Lease {
	lease := picket.Lease{
		TaskID:         v.Task,
		RunID:          v.Run,
		LeaseExpiresAt: picket.Instant(raw + v.TTL),
		FencingToken:   v.Token,
		BudgetEnvelope: v.Envelope,
		WorkspacePath:  v.Workspace,
		LeaseID:        "lease_" + strings.TrimPrefix(v.Run, "run_"),
		LeaseTTLMs:     v.TTL,
		WindowMs:       v.Window,
		Attempt:        int(v.Attempt),
		Task: picket.LeaseTask{
			Title:             v.Spec.Title,
			Role:              v.Spec.Role,
			Needs:             v.Spec.Needs,
			Labels:            v.Spec.Labels,
			TimeoutSeconds:    v.Spec.TimeoutSeconds,
			StallAfterSeconds: v.Spec.StallAfterSeconds,
			OnExit:            v.Spec.OnExit,
			Trace:             v.Spec.Trace,
			Fixes:             optionalString(v.Fixes),
			Retries:           optionalString(v.Retries),
			ReviewNote:        v.Note,
		},
		LastReport: r.report(v.Report, true),
		Answers:    r.answers(v.Answers),
		Messages:   v.Messages,
		ProxyURL:   e.store.cfg.ProxyURL,
	}
	if v.Spec.Priority != nil {
		lease.Task.Priority = *v.Spec.Priority
	}
	if lease.ProxyURL != "" {
		lease.MCPURL = strings.TrimSuffix(lease.ProxyURL, "/") + "/mcp"
	}
	if v.Input != "" {
		lease.Task.Input = picket.RawJSON(v.Input)
	}
	if v.Previous != nil {
		lease.PreviousExit = v.Previous.run().Exit
	}
	return lease
}

// pinnedOnly stands for the role of an agent that takes only tasks pinned to it. It is not a valid
// name of a role.
const pinnedOnly = "!"

func roleArg(req picket.AcquireRequest) string {
	if req.PinnedOnly {
		return pinnedOnly
	}
	return req.Role
}

// waitedFor reports whether one of the requests that wait for a lease covers a lane. The waiters are as
// [Engine.Acquire] writes them: an id, the agent, its role and its capabilities.
func waitedFor(waiters []string, lane string) bool {
	for _, w := range waiters {
		part := strings.SplitN(w, " ", 4)
		if len(part) == 4 && covers(picket.AcquireRequest{
			AgentID:      part[1],
			Role:         part[2],
			Capabilities: strings.Split(part[3], ","),
			PinnedOnly:   part[2] == pinnedOnly,
		}, lane) {
			return true
		}
	}
	return false
}

// covers is grant.lua's rule of the same name, for wake-ups: a wrong answer
// here costs a delay, there it would cost a wrong grant.
func covers(req picket.AcquireRequest, lane string) bool {
	if agent, ok := strings.CutPrefix(lane, "agent:"); ok {
		return agent == req.AgentID
	}
	agent, lane := store.SplitLane(lane)
	if agent != "" && agent == req.AgentID {
		return true
	}
	if req.PinnedOnly {
		return false
	}
	role, needs, _ := strings.Cut(lane, "|")
	if role != "" && role != req.Role {
		return false
	}
	if needs == "" {
		return true
	}
	for need := range strings.SplitSeq(needs, ",") {
		if !slices.Contains(req.Capabilities, need) {
			return false
		}
	}
	return true
}

// Undeliver gives back grants whose answer did not reach anybody, as long as
// nobody has used them.
func (e *Engine) Undeliver(ctx context.Context, runIDs ...string) error {
	args := []any{"server"}
	for _, id := range runIDs {
		args = append(args, id)
	}
	return e.run(ctx, "undeliver", args...).Err
}

// Expire ends the lease of a task by an operator's decision; it counts no
// failure.
func (e *Engine) Expire(ctx context.Context, by picket.Caller, taskID, reason string) (picket.Task, error) {
	return e.ExpireRun(ctx, by, taskID, "", reason)
}

// ExpireRun is Expire of the lease of one run: once the task has been given to
// another, that one keeps it, and the answer is state_conflict. Without a run it
// is whichever has the task.
func (e *Engine) ExpireRun(ctx context.Context, by picket.Caller, taskID, runID, reason string) (picket.Task, error) {
	return e.changeTask(ctx, by, cmp.Or(picket.CheckID("taskId", "task", taskID),
		picket.CheckOptionalID("run", "run", runID)), "expire", taskID, reason, runID)
}

// errNoMoreLeases ends a wait that nothing can come of: the leases that this request
// was given have ended, or its agent takes no more.
var errNoMoreLeases = errors.New("this request gets no more leases")

// Advance completes a lease and acquires the next in one step: the worker that goes from task to
// task saves a round trip each time. Both are done or, when an error comes back before the wait,
// neither. A repeated call returns the same state. Under by.Once it shows the leases of the first
// call again; otherwise it grants new ones.
func (e *Engine) Advance(ctx context.Context, held picket.LeaseCredential, by picket.Caller,
	req picket.AdvanceRequest) (picket.Advanced, error) {
	who, err := credentialArgs(held)
	if err != nil {
		return picket.Advanced{}, err
	}
	if err := req.Acquire.Normalize(); err != nil {
		return picket.Advanced{}, err
	}
	complete := picket.Completion{Output: req.Output, Summary: req.Summary, Children: req.Children}
	args, err := completionArgs(complete)
	if err != nil {
		return picket.Advanced{}, err
	}
	var done picket.Advanced
	next := req.Acquire
	done.Leases, err = e.waitForLease(ctx, by, next, func(waiter string, wait time.Duration) ([]picket.Lease, error) {
		if done.State != "" {
			return e.acquireMore(ctx, by, next, waiter, wait)
		}
		state, leases, how, err := e.advance(ctx, held, append(who, args...), by, next, waiter, wait)
		done.State = state
		switch {
		case err != nil:
			return nil, err
		case how == grantExhausted: // it is registered as a waiter now
			return e.acquireMore(ctx, by, next, waiter, max(wait, -wait))
		case how == grantBarred, how == grantRepeated && len(leases) == 0:
			return nil, errNoMoreLeases
		}
		return leases, nil
	})
	if errors.Is(err, errNoMoreLeases) {
		return done, nil
	}
	if !errors.Is(err, picket.CodeStoreFull) {
		return done, err
	}
	// A full store lets leases end, and grants none.
	done.State, err = e.Complete(ctx, held, complete)
	return done, err
}

// OpenLeaseToken opens the lease token of a request.
func (e *Engine) OpenLeaseToken(req picket.AdvanceRequest) (picket.LeaseCredential, error) {
	held, err := e.store.cfg.Sealer.OpenLeaseToken(req.LeaseToken.Reveal())
	if err != nil || held.Namespace != e.namespace {
		return picket.LeaseCredential{}, picket.Invalid("/leaseToken",
			"Send the leaseToken of a lease of your key's namespace; it starts with "+picket.LeaseTokenPrefix+".",
			"the lease token is malformed or was not made here").WithCause(err)
	}
	if held.Side == picket.SideAgent {
		return picket.LeaseCredential{}, picket.Refuse(picket.CodeForbidden,
			"Send the leaseToken of the lease. An agent completes its task with the tool mark_complete.",
			"leaseToken is the credential of an agent, and only an adapter may advance")
	}
	held.Fence = req.FencingToken
	return held, nil
}

// RenewToken is Renew by the lease token of the adapter, for the API key that has acquired the lease. A token
// that was not made here and the lease of another key are refused in the same words, whatever has become of it.
func (e *Engine) RenewToken(ctx context.Context, keyID string, l picket.LeaseToRenew) (picket.Renewal, error) {
	held, err := e.store.cfg.Sealer.OpenLeaseToken(l.LeaseToken.Reveal())
	switch {
	case err != nil || held.Namespace != e.namespace || keyID == "":
		return picket.Renewal{}, store.ParseRefusal("unauthenticated kind=lease")
	case held.Side == picket.SideAgent:
		return picket.Renewal{}, picket.Refuse(picket.CodeForbidden,
			"Send the leaseToken of the lease record, and not its agentToken.",
			"only the adapter of the run may renew its lease, and this is the agent's credential").
			With("needs", string(picket.SideAdapter))
	case l.FencingToken < 0 || l.FencingToken > picket.MaxNumber:
		return picket.Renewal{}, picket.Invalid("/fencingToken", "Send the fencingToken of the lease, or leave it out.",
			"the fencing token is not a positive whole number below 2^53")
	}
	held.Fence = l.FencingToken
	return e.renew(ctx, held, keyID)
}

// How the leases of an advance came about, where that matters.
const (
	grantRepeated  = "repeated"  // they are those of the same request made before
	grantExhausted = "exhausted" // there are none before a grant has brought a new floor
	grantBarred    = "barred"    // there are none for this agent: it drains, is gone or is another key's
)

// acquireMore acquires more work after a task was completed. If the agent or its key
// may not get more, it returns no leases and no error: with an error the caller
// would lose the answer to the completion.
func (e *Engine) acquireMore(ctx context.Context, by picket.Caller, req picket.AcquireRequest, waiter string,
	wait time.Duration) ([]picket.Lease, error) {
	leases, err := e.grant(ctx, by, req, waiter, wait)
	switch picket.CodeOf(err) {
	case picket.CodeAgentDraining, picket.CodeAgentGone, picket.CodeForbidden, picket.CodeUnauthenticated:
		return nil, errNoMoreLeases
	}
	return leases, err
}

func (e *Engine) advance(ctx context.Context, held picket.LeaseCredential, complete []any, by picket.Caller,
	req picket.AcquireRequest, waiter string,
	wait time.Duration) (state picket.TaskState, leases []picket.Lease, how string, err error) {
	var floor int64
	r := e.retryReclaimed(ctx, held, func() (r *reply) {
		r, floor = e.runGrant(ctx, "advance", complete, by, req, waiter, wait)
		return r
	})
	var a struct {
		State string     `reply:"state"`
		Grant grantReply `reply:"grant"`
	}
	r.Decode(&a)
	leases = e.newLeases(r, a.Grant, floor, req.SeparateCredentials)
	return picket.TaskState(a.State), leases, a.Grant.Outcome, r.Err
}
