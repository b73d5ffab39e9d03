//go:build !unix

package workspace

import (
	"context"
	"os"
	"time"
)

const CanLock = false

// Flock cannot keep other processes out on this system.
func Flock(_ context.Context, dir string, _ time.Duration) (*os.File, error) { return os.Open(dir) }
