//go:build !linux

package process

import (
	"errors"
	"time"
)

// CanSweepOrphans is false. Without locks and start times, a dead adapter looks like a living one,
// and a process looks like a later one with the same number. Leases expire on schedule here.
const CanSweepOrphans = false

// KillLeftovers always fails with errors.ErrUnsupported on this system.
func KillLeftovers(Record, string, time.Duration) error { return errors.ErrUnsupported }
