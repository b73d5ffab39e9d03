package files

import (
	"context"
	"errors"
	"os"
	"time"
)

// ErrLocked reports that a file or a directory is locked already, by another process
// or by this one.
var ErrLocked = errors.New("it is in use by another process")

// LockFile opens a file, or creates it empty, and locks it. It waits for the lock until
// ctx ends and at most so long; then the error is ErrLocked. Closing the file gives the
// lock back, and so does the end of the process. Child processes do not inherit it. Where
// CanLock is false, it only opens the file.
func LockFile(ctx context.Context, path string, atMost time.Duration) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	return lock(ctx, f, atMost)
}

// LockDir is LockFile for a directory, which has to exist.
func LockDir(ctx context.Context, dir string, atMost time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return lock(ctx, f, atMost)
}
