//go:build !unix

package files

import (
	"context"
	"os"
	"time"
)

// CanLock reports whether locks keep other processes out on this system.
const CanLock = false

func lock(_ context.Context, f *os.File, _ time.Duration) (*os.File, error) { return f, nil }

// syncDir does nothing: a directory cannot be synced on this system.
func syncDir(string) error { return nil }
