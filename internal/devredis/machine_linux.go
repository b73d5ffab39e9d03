package devredis

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// machineMemory is what this process may use at most, in bytes: the memory of
// the machine, or the limit of a cgroup above it if that is lower.
func machineMemory() int64 {
	var info unix.Sysinfo_t
	least := int64(0)
	if unix.Sysinfo(&info) == nil {
		least = int64(info.Totalram) * int64(info.Unit)
	}
	text, _ := os.ReadFile("/proc/self/cgroup")
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			least = lowestLimit("/sys/fs/cgroup", path, least)
		}
	}
	return least
}

// lowestLimit returns the lowest limit of a cgroup and of all its parents.
func lowestLimit(root, path string, least int64) int64 {
	for path = filepath.Clean("/" + path); ; path = filepath.Dir(path) {
		text, err := os.ReadFile(filepath.Join(root, path, "memory.max"))
		if n, bad := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && bad == nil && n > 0 &&
			(least == 0 || n < least) {
			least = n
		}
		if path == "/" {
			return least
		}
	}
}
