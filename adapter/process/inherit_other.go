//go:build !unix

package process

import (
	"os"
	"os/exec"
)

// InheritLock does nothing on this system.
func InheritLock(*exec.Cmd, *os.File) {}
