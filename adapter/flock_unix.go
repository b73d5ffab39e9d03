//go:build unix

package adapter

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// canLock says that a lock is one, and that its holder's death ends it.
const canLock = true

// flock takes a directory for whoever asks first and waits for it at most so
// long. The kernel drops it when the process ends, however it ends; closing
// the file gives it back.
func flock(ctx context.Context, dir string, atMost time.Duration) (*os.File, error) {
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
		if time.Now().After(end) || !sleep(ctx, 20*time.Millisecond) {
			f.Close()
			return nil, fmt.Errorf("%s: %w", dir, errInUse)
		}
	}
}
