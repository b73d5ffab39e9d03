package storeloss

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
	"github.com/picket-dev/picket/orchestrator/proof/kit"
)

// lossClient is a client that goes through every loss with the leases it
// holds. It knows no more than its bearers and the last token it was told.
type lossClient struct {
	l    *lossHistory
	rnd  *rand.Rand
	held []*clientLease
	n    int
	away bool // the last call was answered 503
}

// clientLease is a lease in the hands of a client.
type clientLease struct {
	picket.LeaseCredential
	agent string
	token int64  // as last told
	since int64  // when that was
	close string // a closing verb whose outcome is unknown, to be repeated
}

const maxClientLeases = 4 // how many leases a worker holds at most

func (w *lossClient) run(ctx context.Context) {
	for ctx.Err() == nil {
		err := w.step(ctx)
		if ctx.Err() != nil {
			return
		}
		w.away = err != nil
		if err == nil {
			w.l.done.add(1)
			time.Sleep(w.l.pace)
			continue
		}
		if picket.CodeOf(err) != picket.CodeUnavailable {
			w.l.promises.recordBroken("only 503 while the store is away", "%s (%v)", picket.CodeOf(err), err)
		}
		w.l.waits.add(1)
		time.Sleep(time.Millisecond) // politeness of a client that was told to wait
	}
}

// step does one thing. A definite refusal ends the lease and is not an error. The error that step
// returns is one for which a client would wait and try again.
func (w *lossClient) step(ctx context.Context) error {
	w.n++
	if len(w.held) == 0 || len(w.held) < maxClientLeases && !w.away && w.rnd.IntN(3) == 0 {
		return w.acquire(ctx)
	}
	i := w.rnd.IntN(len(w.held))
	h := w.held[i]
	if w.away { // nothing new is begun before the store is back
		return w.dropIfFenced(i, w.l.renew(ctx, h, w.l.anyProcess(w.rnd)))
	}
	if h.close != "" {
		return w.endLease(ctx, i, h.close)
	}
	switch n := w.rnd.IntN(100); {
	case n < 30:
		return w.dropIfFenced(i, w.l.renew(ctx, h, w.l.anyProcess(w.rnd)))
	case n < 60:
		return w.dropIfFenced(i, w.l.report(ctx, h, w.l.anyProcess(w.rnd), fmt.Sprint("r", w.n)))
	case n < 70: // the adapter and its agent, side by side
		var wg sync.WaitGroup
		var second error
		wg.Go(func() { second = w.l.report(ctx, h, w.l.anyProcess(nil), fmt.Sprint("r", w.n)) })
		first := w.l.renew(ctx, h, w.l.anyProcess(nil))
		wg.Wait()
		if first == nil {
			first = second
		}
		return w.dropIfFenced(i, first)
	case n < 90:
		return w.endLease(ctx, i, "release")
	case n < 93:
		return w.endLease(ctx, i, "complete")
	case n < 96:
		return w.endLease(ctx, i, "advance")
	default: // this one is silent, until it comes back as a zombie
		w.l.zombie(h)
		w.drop(i)
		return nil
	}
}

// dropIfFenced takes what a call answered: a definite refusal ends the lease.
func (w *lossClient) dropIfFenced(i int, err error) error {
	if !picket.CodeOf(err).Fenced() {
		return err
	}
	w.l.lost.add(1)
	w.drop(i)
	return nil
}

func (w *lossClient) drop(i int) { w.held = append(w.held[:i], w.held[i+1:]...) }

func (w *lossClient) acquire(ctx context.Context) error {
	since := w.l.promises.nextStamp()
	agent := fmt.Sprint("agent-", w.rnd.IntN(20))
	leases, err := w.l.anyOrchestrator(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		return e.Acquire(ctx, kit.Operator, picket.AcquireRequest{AgentID: agent, Max: kit.Ptr(1 + w.rnd.IntN(2))})
	})
	if err != nil {
		return err
	}
	if err := w.keepLeases(leases.([]picket.Lease), agent, since); err != nil {
		return err
	}
	if len(leases.([]picket.Lease)) == 0 {
		return w.l.submit(ctx, w.l.anyOrchestrator(w.rnd))
	}
	return nil
}

// keepLeases keeps the leases of an answer that was asked for at since.
func (w *lossClient) keepLeases(leases []picket.Lease, agent string, since int64) error {
	for _, lease := range leases {
		w.l.promises.recordToken(lease.TaskID, lease.FencingToken, since, "grant")
		h, err := w.l.sealer.OpenLeaseToken(lease.LeaseToken.Reveal())
		if err != nil {
			return err
		}
		w.held = append(w.held, &clientLease{
			LeaseCredential: h,
			agent:           agent,
			token:           lease.FencingToken,
			since:           w.l.promises.nextStamp(),
		})
	}
	return nil
}

// advance completes a lease and takes the next.
func (w *lossClient) advance(ctx context.Context, i int) error {
	h, since := w.held[i], w.l.promises.nextStamp()
	got, err := w.l.anyOrchestrator(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		return e.Advance(ctx, h.LeaseCredential, kit.Operator,
			picket.AdvanceRequest{Output: picket.RawJSON(`"done"`), Acquire: picket.AcquireRequest{AgentID: h.agent}})
	})
	if err != nil {
		return w.dropIfFenced(i, err)
	}
	w.drop(i)
	return w.keepLeases(got.(picket.Advanced).Leases, h.agent, since)
}

// endLease ends a lease. When the answer is lost the same is said again later.
func (w *lossClient) endLease(ctx context.Context, i int, verb string) error {
	h := w.held[i]
	h.close = verb
	if verb == "advance" {
		return w.advance(ctx, i)
	}
	_, err := w.l.anyProcess(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		if verb == "complete" {
			return e.Complete(ctx, h.LeaseCredential, picket.Completion{Output: picket.RawJSON(`"done"`)})
		}
		return e.Release(ctx, h.LeaseCredential, picket.Exit{Class: picket.ExitReleased})
	})
	if err == nil {
		w.drop(i)
		return nil
	}
	return w.dropIfFenced(i, err)
}

// promiseTokenNeverFalls is kept unless an older state is put back under a living server. A process
// that grants nothing does not notice that, and reports the token that it finds.
const promiseTokenNeverFalls = "the token of a run never falls"

// renew renews and holds the token in the answer against what was known.
func (l *lossHistory) renew(ctx context.Context, h *clientLease, p *lossProcess) error {
	got, err := p.do(func(e *orchestrator.Engine) (any, error) { return e.Renew(ctx, h.LeaseCredential) })
	if err != nil {
		return err
	}
	token := got.(picket.Renewal).FencingToken
	if token < h.token {
		l.promises.recordFall(h, token)
		return nil
	}
	if token > h.token {
		l.promises.recordToken(h.TaskID, token, h.since, "reclaim")
	}
	h.token, h.since = token, l.promises.nextStamp()
	return nil
}

func (l *lossHistory) report(ctx context.Context, h *clientLease, p *lossProcess, request string) error {
	_, err := p.do(func(e *orchestrator.Engine) (any, error) {
		return e.Report(ctx, h.LeaseCredential, request, picket.Progress{Summary: "at work"})
	})
	return err
}

// submit adds a task that may be tried for ever, by the process given.
func (l *lossHistory) submit(ctx context.Context, p *lossProcess) error {
	_, err := p.do(func(e *orchestrator.Engine) (any, error) {
		return e.Submit(ctx, kit.Operator, picket.TaskSpec{Title: "a task", Review: picket.ReviewByNone})
	})
	return err
}
