package adapter

import (
	"context"
	"os"
)

// SetStepHook tells f of every step of the workspaces that a makes and commits.
func SetStepHook(a *Adapter, f func(point string)) { a.cfg.onStep = f }

// CopyAtMost copies a directory of at most so many files and bytes.
func CopyAtMost(ctx context.Context, files int, bytes int64, from, to string) error {
	in, err := os.OpenRoot(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer out.Close()
	return (&copier{maxFiles: files, left: bytes}).copy(ctx, from, in, out)
}
