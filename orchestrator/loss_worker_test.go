package orchestrator_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// lossWorker is a client that goes through every loss with the leases it
// holds. It knows no more than its bearers and the last token it was told.
type lossWorker struct {
	l    *losses
	rnd  *rand.Rand
	held []*holding
	n    int
	away bool // the last call was answered 503
}

// holding is a lease in the hands of a client.
type holding struct {
	picket.Held
	agent string
	token int64  // as last told
	since int64  // when that was
	close string // a closing verb whose outcome is unknown, to be repeated
}

const lossHoldings = 4 // how many leases a worker holds at most

func (w *lossWorker) run(ctx context.Context) {
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
			w.l.mem.broke("only 503 while the store is away", "%s (%v)", picket.CodeOf(err), err)
		}
		w.l.waits.add(1)
		time.Sleep(time.Millisecond) // politeness of a client that was told to wait
	}
}

// step does one thing. A refusal that is definite ends the lease and is no
// error; what comes back is what a client would wait and try again for.
func (w *lossWorker) step(ctx context.Context) error {
	w.n++
	if len(w.held) == 0 || len(w.held) < lossHoldings && !w.away && w.rnd.IntN(3) == 0 {
		return w.acquire(ctx)
	}
	i := w.rnd.IntN(len(w.held))
	h := w.held[i]
	if w.away { // nothing new is begun before the store is back
		return w.keep(i, w.l.renew(ctx, h, w.l.any(w.rnd)))
	}
	if h.close != "" {
		return w.close(ctx, i, h.close)
	}
	switch n := w.rnd.IntN(100); {
	case n < 30:
		return w.keep(i, w.l.renew(ctx, h, w.l.any(w.rnd)))
	case n < 60:
		return w.keep(i, w.l.report(ctx, h, w.l.any(w.rnd), fmt.Sprint("r", w.n)))
	case n < 70: // the adapter and its agent, side by side
		var wg sync.WaitGroup
		var second error
		wg.Go(func() { second = w.l.report(ctx, h, w.l.any(nil), fmt.Sprint("r", w.n)) })
		first := w.l.renew(ctx, h, w.l.any(nil))
		wg.Wait()
		if first == nil {
			first = second
		}
		return w.keep(i, first)
	case n < 90:
		return w.close(ctx, i, "release")
	case n < 93:
		return w.close(ctx, i, "complete")
	case n < 96:
		return w.close(ctx, i, "advance")
	default: // this one is heard of no more, until it comes back as a zombie
		w.l.zombie(h)
		w.drop(i)
		return nil
	}
}

// keep takes what a call answered: a definite refusal ends the lease.
func (w *lossWorker) keep(i int, err error) error {
	if !picket.CodeOf(err).Fenced() {
		return err
	}
	w.l.lost.add(1)
	w.drop(i)
	return nil
}

func (w *lossWorker) drop(i int) { w.held = append(w.held[:i], w.held[i+1:]...) }

func (w *lossWorker) acquire(ctx context.Context) error {
	since := w.l.mem.now()
	agent := fmt.Sprint("agent-", w.rnd.IntN(20))
	leases, err := w.l.orchestrator(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		return e.Acquire(ctx, operator, picket.AcquireRequest{AgentID: agent, Max: ptr(1 + w.rnd.IntN(2))})
	})
	if err != nil {
		return err
	}
	if err := w.took(leases.([]picket.Lease), agent, since); err != nil {
		return err
	}
	if len(leases.([]picket.Lease)) == 0 {
		return w.l.submit(ctx, w.l.orchestrator(w.rnd))
	}
	return nil
}

// took keeps the leases of an answer that was asked for at since.
func (w *lossWorker) took(leases []picket.Lease, agent string, since int64) error {
	for _, lease := range leases {
		w.l.mem.gave(lease.TaskID, lease.FencingToken, since, "grant")
		h, err := w.l.sealer.Open(lease.LeaseToken.Reveal())
		if err != nil {
			return err
		}
		w.held = append(w.held, &holding{Held: h, agent: agent, token: lease.FencingToken, since: w.l.mem.now()})
	}
	return nil
}

// advance completes a lease and takes the next.
func (w *lossWorker) advance(ctx context.Context, i int) error {
	h, since := w.held[i], w.l.mem.now()
	got, err := w.l.orchestrator(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		return e.Advance(ctx, h.Held, operator,
			picket.AdvanceRequest{Output: picket.RawJSON(`"done"`), Acquire: picket.AcquireRequest{AgentID: h.agent}})
	})
	if err != nil {
		return w.keep(i, err)
	}
	w.drop(i)
	return w.took(got.(picket.Advanced).Leases, h.agent, since)
}

// close ends a lease. When the answer is lost the same is said again later.
func (w *lossWorker) close(ctx context.Context, i int, verb string) error {
	h := w.held[i]
	h.close = verb
	if verb == "advance" {
		return w.advance(ctx, i)
	}
	_, err := w.l.any(w.rnd).do(func(e *orchestrator.Engine) (any, error) {
		if verb == "complete" {
			return e.Complete(ctx, h.Held, picket.Completion{Output: picket.RawJSON(`"done"`)})
		}
		return e.Release(ctx, h.Held, picket.Exit{Class: picket.ExitReleased})
	})
	if err == nil {
		w.drop(i)
		return nil
	}
	return w.keep(i, err)
}

// neverFalls is kept but for a state that is put back under a living server:
// who grants nothing does not notice, and tells what stands there.
const neverFalls = "the token of a run never falls"

// renew renews and holds the token in the answer against what was known.
func (l *losses) renew(ctx context.Context, h *holding, p *lossProcess) error {
	got, err := p.do(func(e *orchestrator.Engine) (any, error) { return e.Renew(ctx, h.Held) })
	if err != nil {
		return err
	}
	token := got.(picket.Renewal).FencingToken
	if token < h.token {
		l.mem.broke(neverFalls, "%s: run %s had token %d, then %d", h.TaskID, h.RunID, h.token, token)
	}
	if token > h.token {
		l.mem.gave(h.TaskID, token, h.since, "reclaim")
	}
	h.token, h.since = token, l.mem.now()
	return nil
}

func (l *losses) report(ctx context.Context, h *holding, p *lossProcess, request string) error {
	_, err := p.do(func(e *orchestrator.Engine) (any, error) {
		return e.Report(ctx, h.Held, request, picket.Progress{Summary: "at work"})
	})
	return err
}

// submit adds a task that may be tried for ever, by the process given.
func (l *losses) submit(ctx context.Context, p *lossProcess) error {
	_, err := p.do(func(e *orchestrator.Engine) (any, error) {
		return e.Submit(ctx, operator, picket.TaskSpec{Title: "a task", Review: picket.ReviewByNone})
	})
	return err
}
