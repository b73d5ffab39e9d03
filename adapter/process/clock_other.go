//go:build !linux

package process

import "time"

// BootClock is the time since this process was started.
func BootClock() time.Duration { return sinceStart() }
