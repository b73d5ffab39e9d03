package main

import (
	"context"
	"fmt"

	"github.com/picket-dev/picket"
	"github.com/picket-dev/picket/orchestrator"
)

// leasesTogether is how many leases one request of the scenario renew renews.
const leasesTogether = 32

// renewTogether measures renewals of many leases in one request against a bare script for each lease.
func renewTogether(ctx context.Context, b *bench, server *redisServer, site *site, e *orchestrator.Engine) error {
	groups, err := leaseGroups(ctx, b.plan, e, site)
	if err != nil {
		return err
	}
	raw, err := newRawClient(server, false)
	if err != nil {
		return err
	}
	defer raw.close()
	sha, err := raw.load(ctx, "return 1")
	if err != nil {
		return fmt.Errorf("load script: %w", err)
	}
	requests := b.plan
	requests.Tasks = max(1, b.Tasks/leasesTogether)
	together := func(ctx context.Context) (sample, error) {
		s, err := throughput(requests, func(w, _ int) error { return renewGroup(ctx, site, groups[w]) })
		s.Value *= leasesTogether
		return s, err
	}
	bare := func(ctx context.Context) (sample, error) {
		return throughput(b.plan, func(int, int) error { return raw.evalsha(ctx, sha, []string{"bare"}) })
	}
	what := fmt.Sprintf("renew %d together", leasesTogether)
	sides, err := b.inTurn(ctx, what, "leases/s", contender{what, together}, contender{"EVALSHA plain", bare})
	if err != nil {
		return err
	}
	b.add(line{
		Scenario: "renew",
		Case:     fmt.Sprintf("%d leases a request, EVALSHA plain for each", leasesTogether),
		Layer:    "http",
		Unit:     "leases/s",
		Fsync:    "off",
		Sides:    sides,
		Must:     atLeast(1),
	}, rate, server.version)
	return nil
}

// renewGroup renews leases with one request. Every one of them has to be renewed.
func renewGroup(ctx context.Context, site *site, leases []picket.LeaseToRenew) error {
	answers, err := site.client.Leases.Renew(ctx, leases)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Err != nil {
			return a.Err
		}
	}
	return nil
}

// leaseGroups leases as many tasks for every worker as one request renews.
func leaseGroups(ctx context.Context, p plan, e *orchestrator.Engine, site *site) ([][]picket.LeaseToRenew, error) {
	if err := fillQueued(ctx, p, e, p.Workers*leasesTogether); err != nil {
		return nil, err
	}
	groups := make([][]picket.LeaseToRenew, p.Workers)
	for w := range groups {
		n := leasesTogether
		leases, err := site.client.Leases.Acquire(ctx, picket.AcquireRequest{Max: &n})
		if err != nil {
			return nil, fmt.Errorf("acquire: %w", err)
		}
		if len(leases) != n {
			return nil, fmt.Errorf("%d leases granted, want %d", len(leases), n)
		}
		for _, l := range leases {
			groups[w] = append(groups[w], picket.LeaseToRenew{LeaseToken: l.LeaseToken, FencingToken: l.FencingToken})
		}
	}
	return groups, nil
}
