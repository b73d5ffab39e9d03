package main

import (
	"os"
	"syscall"

	"github.com/picket-dev/picket/cmd/picket/attach"
)

// A process that runs as picket for a script may be killed at a step of the
// handover of its key.
func init() {
	if at := os.Getenv("TEST_KILL_AT"); at != "" {
		attach.HandoverHook = func(step string) {
			if step == at {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
	}
}
