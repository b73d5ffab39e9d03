package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/internal/web"
)

// acquireLeases is the long poll. A grant whose answer cannot be written is given back, because
// nobody holds it and its first deadline is 30 s away.
func acquireLeases(r request) error {
	c, err := decodeChange[picket.AcquireRequest](r, "")
	if err != nil {
		return err
	}
	req := c.body
	if err := req.Normalize(); err != nil {
		return err
	}
	if err := r.checkAgent(req.AgentID); err != nil {
		return err
	}
	ctx, done := web.WaitContext(r.Context)
	defer done()
	leases, err := r.engine.Acquire(ctx, c.by, req)
	return r.respondGrants(ctx, leases, picket.Acquired{Leases: leases}, err)
}

// advanceLease completes a lease and acquires the next one. The key of the caller authorizes the
// new lease, and the lease token the end of the old one.
func advanceLease(r request) error {
	c, err := decodeChange[picket.AdvanceRequest](r, "")
	if err != nil {
		return err
	}
	req := c.body
	if err := req.Normalize(); err != nil {
		return err
	}
	if err := r.checkAgent(req.Acquire.AgentID); err != nil {
		return err
	}
	held, err := r.engine.OpenLeaseToken(req)
	if err != nil {
		return err
	}
	ctx, done := web.WaitContext(r.Context)
	defer done()
	got, err := r.engine.Advance(ctx, held, c.by, req)
	var refusal *picket.Error
	if errors.As(err, &refusal) && refusal.Code.Fenced() {
		r.engine.RecordRefusedWrite(r.ctx(), held, "advance", refusal)
	}
	return r.respondGrants(ctx, got.Leases, got, err)
}

// respondGrants answers with leases that were waited for.
func (r request) respondGrants(ctx context.Context, leases []picket.Lease, answer any, err error) error {
	if err != nil {
		if web.Stopping(r.Context) && ctx.Err() != nil {
			return web.StoppingError()
		}
		return err
	}
	if err := r.deliver(answer); err != nil {
		return r.undeliver(leases, err)
	}
	return nil
}

// expireBody is a picket.ExpireRequest, checked like every reason.
type expireBody struct{ picket.ExpireRequest }

func (b expireBody) check() error { return checkLength("/reason", b.Reason, maxReason) }

func expireLease(c change[expireBody]) (picket.Task, error) {
	return c.engine.ExpireRun(c.ctx(), c.by, c.id, c.body.RunID, c.body.Reason)
}

// leaseQuery reads which leases are asked for.
func leaseQuery(r request) (picket.LeaseQuery, error) {
	q := r.query("task", "agent", "order", "limit")
	return picket.LeaseQuery{
		TaskID:  q.id("task", "task"),
		AgentID: q.name("agent"),
		Order:   choice(q, "order", picket.LeasesByExpiry, picket.LeasesByExpiry, picket.LeasesByNeed),
		Limit:   int(q.number("limit", maxLeases, 1, maxLeases)),
	}, q.err
}

// maxLeases is how many leases an answer lists at most.
const maxLeases = 1000

// deliver writes and flushes, so that a client that is gone shows as an error.
func (r request) deliver(answer any) error {
	if err := r.ctx().Err(); err != nil {
		return err
	}
	if err := web.JSON(r.Context, http.StatusOK, answer); err != nil {
		return err
	}
	return http.NewResponseController(r.Response()).Flush()
}

func (r request) undeliver(leases []picket.Lease, cause error) error {
	if len(leases) == 0 {
		return cause
	}
	runs := make([]string, len(leases))
	for i, l := range leases {
		runs[i] = l.RunID
	}
	if err := r.engine.Undeliver(context.WithoutCancel(r.ctx()), runs...); err != nil {
		return err
	}
	return cause
}
