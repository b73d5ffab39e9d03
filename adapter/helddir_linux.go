package adapter

import (
	"os"
	"strconv"
)

// heldDirPath leads to a directory that is held open, whatever becomes of its path,
// in this process and in one that it starts.
func heldDirPath(dir *os.File) string {
	path := "/proc/self/fd/" + strconv.Itoa(int(dir.Fd()))
	if held, err := dir.Stat(); err == nil {
		if info, err := os.Stat(path); err == nil && os.SameFile(held, info) {
			return path
		}
	}
	return dir.Name() // /proc is not mounted
}
