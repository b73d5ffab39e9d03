package process

import (
	"os"
	"strconv"
)

// HeldDirPath is a path that leads to a directory that is held open, even if the
// directory was moved or replaced. It is valid in this process and in one that
// it starts.
func HeldDirPath(dir *os.File) string {
	path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	if held, err := dir.Stat(); err == nil {
		if info, err := os.Stat(path); err == nil && os.SameFile(held, info) {
			return path
		}
	}
	return dir.Name() // /proc is not mounted
}
