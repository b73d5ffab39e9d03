//go:build !linux

package process

import "os"

// HeldDirPath is the path by which the directory was opened. Descriptors have no
// path of their own on this system.
func HeldDirPath(dir *os.File) string { return dir.Name() }
