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
		return time.Since(processStart)
	}
	return time.Duration(ts.Nano())
}

// machineMemory is what the machine has, in bytes, or 0 if that is unknown.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
