package process

import "golang.org/x/sys/unix"

// machineMemory is what the machine has, in bytes.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int64(info.Totalram) * int64(info.Unit)
}
