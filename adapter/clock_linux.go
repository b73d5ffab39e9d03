package adapter

import (
	"time"

	"golang.org/x/sys/unix"
)

// bootClock goes on while the machine is suspended, as leases do.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return sinceStart()
	}
	return time.Duration(ts.Nano())
}
