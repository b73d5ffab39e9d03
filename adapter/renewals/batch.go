package renewals

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/client"
)

// batch is leases that are renewed by one request. One lease alone is renewed by its own route.
type batch struct {
	group   *Group
	timeout time.Duration // of the request
	entries []entry
}

// entry is one lease of a batch.
type entry struct {
	member  *Member
	attempt *Attempt
	timeout func(now time.Duration) time.Duration
}

func (b *batch) add(m *Member) *Attempt {
	a := &Attempt{done: make(chan Result, 1)}
	a.Done = a.done
	a.ctx, a.Abort = context.WithCancel(context.Background())
	b.entries = append(b.entries, entry{m, a, m.timing.Timeout})
	return a
}

// run renews the leases of a batch.
func (b *batch) run() {
	if len(b.entries) == 1 {
		b.entries[0].renewAlone()
		return
	}
	sent := b.group.cfg.Clock()
	answers, err := b.send()
	for i, e := range b.entries {
		r := Result{Sent: sent, Err: err}
		if err == nil {
			r.Renewal, r.Err = answers[i].Renewal, answers[i].Err
		}
		if e.needsOwnRequest(r.Err, err == nil) {
			go e.renewAlone()
		} else {
			e.finish(r)
		}
	}
}

// send sends the request. It is given up when no member waits for it any more.
func (b *batch) send() ([]client.Renewed, error) {
	ctx, cancel := context.WithTimeout(context.Background(), b.timeout)
	defer cancel()
	var waiting atomic.Int32
	waiting.Store(int32(len(b.entries)))
	leases := make([]picket.LeaseToRenew, len(b.entries))
	for i, e := range b.entries {
		leases[i] = e.member.lease.Credential
		forget := context.AfterFunc(e.attempt.ctx, func() {
			if waiting.Add(-1) == 0 {
				cancel()
			}
		})
		defer forget()
	}
	server := b.entries[0].member.lease.Server
	answers, err := b.group.cfg.Send(ctx, server, leases)
	if err == nil && len(answers) != len(leases) {
		err = picket.Refuse(picket.CodeInternal, "Check that the URL is that of a Picket server of this version.",
			"the server answered for %d of %d leases", len(answers), len(leases))
	}
	if waiting.Load() > 0 { // an aborted request says nothing about the server
		b.group.recordRequest(server, err)
	}
	return answers, err
}

// needsOwnRequest reports whether a lease is renewed alone at once, since an error of a request for several leases
// does not tell what its own request will be answered. answered is set if the error is about this lease.
func (e entry) needsOwnRequest(err error, answered bool) bool {
	code := picket.CodeOf(err)
	switch {
	case err == nil || isRetryable(err) || code.Fenced() || answered && code == picket.CodeInternal:
		return false // the keeper handles it as after a request of its own
	case !answered || code == picket.CodeReclaimRequired || code == picket.CodeTooLarge: // the next one may succeed
	default: // such as a lease that another key has acquired
		e.member.group.mu.Lock()
		e.member.alone = true
		e.member.group.mu.Unlock()
	}
	return true
}

// renewAlone renews the lease by its own route.
func (e entry) renewAlone() {
	sent := e.member.group.cfg.Clock()
	ctx, cancel := context.WithTimeout(e.attempt.ctx, e.timeout(sent))
	defer cancel()
	renewal, err := e.member.lease.Alone(ctx)
	e.finish(Result{sent, renewal, err})
}

// finish hands the result over. The channel has room, so an aborted attempt ends as well.
func (e entry) finish(r Result) {
	e.attempt.done <- r
	e.attempt.Abort() // releases the context
}
