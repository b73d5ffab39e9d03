//go:build unix

package process

import (
	"os"
	"os/exec"
)

// InheritLock passes a lock on to a command that is not yet started: the lock
// is held until both the command and this process have closed it.
func InheritLock(cmd *exec.Cmd, lock *os.File) {
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
}
