//go:build unix

package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// CanLock says that a lock is one, and that its holder's death ends it.
const CanLock = true

// Flock takes a directory for anyone who asks first and waits for it at most so
// long. The kernel drops it when the process ends, however it ends; closing
// the file gives it back.
func Flock(ctx context.Context, dir string, atMost time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(atMost); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			f.Close()
			return nil, err
		}
		if time.Now().After(end) || !waitOrDone(ctx, 20*time.Millisecond) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", dir, ErrInUse)
		}
	}
}

// waitOrDone waits, and reports false if ctx ends first.
func waitOrDone(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
