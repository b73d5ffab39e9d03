package adapter

import (
	"context"
	"errors"
)

// CommandLauncher starts a program in a process group of its own.
type CommandLauncher struct {
	// Command is the program and its arguments. Required.
	Command []string
	// Env names variables passed on beside the usual ones. Defaults to none.
	Env []string
}

// Launch starts the program.
func (l CommandLauncher) Launch(ctx context.Context, job Job) (Process, error) {
	return nil, errors.New("not started")
}
