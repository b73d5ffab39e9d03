//go:build !linux

package adapter

import "os"

// heldDirPath is the path of a directory: here, a descriptor has none.
func heldDirPath(dir *os.File) string { return dir.Name() }
