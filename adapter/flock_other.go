//go:build !unix

package adapter

import (
	"context"
	"os"
	"time"
)

const canLock = false

// flock cannot keep other processes out on this system.
func flock(_ context.Context, dir string, _ time.Duration) (*os.File, error) { return os.Open(dir) }
