//go:build unix

package files

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// CanLock reports whether locks keep other processes out on this system.
const CanLock = true

// lock locks an open file, and closes it if that fails.
func lock(ctx context.Context, f *os.File, atMost time.Duration) (*os.File, error) {
	for end := time.Now().Add(atMost); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return f, nil
		}
		busy := errors.Is(err, unix.EWOULDBLOCK)
		if busy {
			err = ErrLocked
		}
		if !busy && !errors.Is(err, unix.EINTR) || time.Now().After(end) {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// syncDir waits until the names in a directory are on the disk.
func syncDir(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
