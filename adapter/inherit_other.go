//go:build !unix

package adapter

import (
	"os"
	"os/exec"
)

func inheritLock(*exec.Cmd, *os.File) {}
