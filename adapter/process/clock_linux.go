package process

import (
	"time"

	"golang.org/x/sys/unix"
)

// BootClock is the time since the machine was started. It continues while the
// machine is suspended, as leases do.
func BootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return sinceStart()
	}
	return time.Duration(ts.Nano())
}
