//go:build unix

package adapter

import (
	"os"
	"os/exec"
)

// inheritLock lets a child hold a lock together with us.
func inheritLock(cmd *exec.Cmd, lock *os.File) {
	if lock != nil {
		cmd.ExtraFiles = []*os.File{lock}
	}
}
