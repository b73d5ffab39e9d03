package orchestrator

import (
	"sync/atomic"
	"time"

	"github.com/picket-dev/picket"
)

// LeaseMetrics is what this process has done in one namespace since it began.
type LeaseMetrics struct {
	Grants   int64
	Renewals int64
	// PickUp are the seconds from when a task could first run, submitted and its
	// start come, to its first lease.
	PickUp Distribution
	// Renew are the seconds that renewals took, LeaseLeft the part of the window
	// that was left when they came, 0 to 1. The first one of a lease is no part of
	// LeaseLeft: it only confirms the grant.
	Renew     Distribution
	LeaseLeft Distribution
}

type leaseMetrics struct {
	grants    atomic.Int64
	renewals  atomic.Int64
	pickUp    *histogram
	renew     *histogram
	leaseLeft *histogram
}

func newLeaseMetrics() *leaseMetrics {
	return &leaseMetrics{
		pickUp:    newHistogram(.01, .05, .2, 1, 5, 15, 60, 300, 1800, 7200),
		renew:     newHistogram(.001, .002, .005, .02, .1, .5, 2),
		leaseLeft: newHistogram(.05, .1, .2, .3, .4, .5, .7, .9),
	}
}

// LeaseMetrics shows the counters of this process.
func (e *Engine) LeaseMetrics() LeaseMetrics {
	a := e.metrics
	return LeaseMetrics{
		Grants:    a.grants.Load(),
		Renewals:  a.renewals.Load(),
		PickUp:    a.pickUp.snapshot(),
		Renew:     a.renew.snapshot(),
		LeaseLeft: a.leaseLeft.snapshot(),
	}
}

// recordGrant counts a lease that was given now; v is its row in the reply.
func (a *leaseMetrics) recordGrant(r *reply, v any) {
	a.grants.Add(1)
	if waited := r.text(r.at(r.list(v), 16)); waited != "" {
		a.pickUp.observe(float64(parseInt(waited)) / 1000)
	}
}

// recordRenewal counts a renewal that was answered.
func (a *leaseMetrics) recordRenewal(got any, out picket.Renewal, took time.Duration) {
	a.renewals.Add(1)
	a.renew.observe(took.Seconds())
	r := &reply{script: "renew"}
	if left := r.text(r.at(r.list(got), 6)); left != "" && out.LeaseTTLMs > 0 {
		a.leaseLeft.observe(float64(parseInt(left)) / float64(out.LeaseTTLMs))
	}
}
