//go:build !linux

package process

import "time"

// BootClock is the time since this process was started. It may stand still while the
// machine is suspended.
func BootClock() time.Duration { return time.Since(processStart) }

// machineMemory is not known here.
func machineMemory() int64 { return 0 }
