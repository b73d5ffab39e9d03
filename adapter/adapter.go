package adapter

import (
	"context"

	"github.com/picket-dev/picket"
)

// Run leases tasks and runs them until ctx is cancelled, which drains: no new
// leases are taken and what runs is left to finish. It returns nil after a
// drain, and an error when the orchestrator refuses the adapter for good, such
// as for a revoked key.
func (a *Adapter) Run(ctx context.Context) error { return nil }

// ReleaseNow ends every run at once: process trees are killed and leases given
// back with class released. Run takes no more leases and returns.
func (a *Adapter) ReleaseNow() { a.killed() }

// RunLease runs one lease to its end. Cancelling ctx kills the process tree
// and gives the lease back with class released. The error says why a run could
// not be started or reported; the result is valid beside it.
func (a *Adapter) RunLease(ctx context.Context, lease picket.Lease) (Result, error) {
	return Result{}, nil
}
