//go:build !linux

package adapter

import "time"

func bootClock() time.Duration { return sinceStart() }
