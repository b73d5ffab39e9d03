//go:build !linux

package process

import (
	"errors"
	"os"
	"time"
)

// CanSweepOrphans is false: without locks and start times a dead adapter cannot
// be told from a living one, and a process cannot be told from a later one with
// its number. Leases expire on schedule here.
const CanSweepOrphans = false

// LockDir opens the directory. It locks nothing on this system.
func LockDir(dir string) (*os.File, error) { return os.Open(dir) }

// KillLeftovers always fails with errors.ErrUnsupported on this system.
func KillLeftovers(Record, string, time.Duration) error { return errors.ErrUnsupported }
