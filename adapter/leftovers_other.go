//go:build !linux

package adapter

import (
	"errors"
	"os"
	"time"
)

// canSweepOrphans is false: without locks and start times a dead adapter cannot be told
// from a living one, nor a process from a later one of its number. Leases end on
// schedule here.
const canSweepOrphans = false

func lockDir(dir string) (*os.File, error) { return os.Open(dir) }

func killLeftovers(processRecord, string, time.Duration) error { return errors.ErrUnsupported }
