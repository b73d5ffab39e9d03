//go:build !linux

package process

import (
	"errors"
	"time"
)

// CanSweepOrphans is false: without locks and start times a dead adapter cannot
// be told from a living one, and a process cannot be told from a later one with
// its number. Leases expire on schedule here.
const CanSweepOrphans = false

// KillLeftovers always fails with errors.ErrUnsupported on this system.
func KillLeftovers(Record, string, time.Duration) error { return errors.ErrUnsupported }
