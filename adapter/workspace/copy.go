package workspace

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/picket-dev/picket"
)

// Bounds of a copy.
const (
	maxCopyFiles = 200_000
	maxCopyBytes = 4 << 30
)

// copier copies the files of one directory into another. Both are held open:
// whatever is renamed or linked meanwhile, nothing outside is read or written.
type copier struct {
	from        *os.Root
	to          *os.Root
	except      []string // absolute directories that are left out
	missing     bool     // what is there already stays
	maxFiles    int      // of what is copied
	left        int64    // bytes that may still be copied
	files       int
	fromDir     string
	directories []copiedDir
}

type copiedDir struct {
	name string
	info fs.FileInfo
}

// copyDir copies the directory of the adapter, except its own state.
func (w *Store) copyDir(ctx context.Context, k *Locked) error {
	from, err := os.OpenRoot(w.Dir)
	if err != nil {
		return fmt.Errorf("copy %s: %w", w.Dir, err)
	}
	defer from.Close()
	return copyInto(ctx, k, w.Dir, from, copier{except: []string{w.Root, w.StateDir}})
}

// copyMissingFiles copies what is not there yet, without what belongs to git.
func copyMissingFiles(ctx context.Context, before, k *Locked) error {
	from, err := before.OpenRoot()
	if err != nil {
		return err
	}
	defer from.Close()
	return copyInto(ctx, k, before.Path, from, copier{
		missing: true,
		except:  []string{filepath.Join(before.Path, ".git")},
	})
}

// copyInto copies what is in from, whose path is dir, into a workspace.
func copyInto(ctx context.Context, k *Locked, dir string, from *os.Root, c copier) error {
	to, err := k.OpenRoot()
	if err != nil {
		return err
	}
	defer to.Close()
	c.maxFiles, c.left = maxCopyFiles, maxCopyBytes
	return c.copy(ctx, dir, from, to)
}

// copy copies what is in from, whose path is dir.
func (c *copier) copy(ctx context.Context, dir string, from, to *os.Root) error {
	c.fromDir, c.from, c.to = dir, from, to
	err := fs.WalkDir(c.from.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went while we looked
		case err != nil:
			return err
		case name == ".":
			return nil
		case c.excepted(name):
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		return c.entry(name, d)
	})
	for _, made := range c.directories { // last, for the copying itself needs to write in them
		c.copyModeAndTime(made.name, made.info)
	}
	if err != nil {
		return fmt.Errorf("copy %s: %w", dir, err)
	}
	return nil
}

func (c *copier) excepted(name string) bool {
	full := filepath.Join(c.fromDir, name)
	for _, dir := range c.except {
		if full == dir || strings.HasPrefix(full, dir+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func (c *copier) entry(name string, d fs.DirEntry) error {
	info, err := d.Info()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err := c.to.Lstat(name); err == nil && c.missing {
		return nil
	}
	if c.files++; c.files > c.maxFiles {
		return copyTooLarge("more than %d files", c.maxFiles)
	}
	switch {
	case d.IsDir():
		c.directories = append(c.directories, copiedDir{name, info})
		if err := c.to.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		return nil
	case d.Type()&fs.ModeSymlink != 0:
		target, err := c.from.Readlink(name)
		if err != nil {
			return err
		}
		return c.to.Symlink(target, name)
	case d.Type().IsRegular():
		if c.left -= info.Size(); c.left < 0 {
			return copyTooLarge("more than %s", "4 GiB")
		}
		return c.file(name, info)
	}
	return nil // a socket, a pipe or a device is not work
}

func copyTooLarge(format string, args ...any) error {
	return picket.Invalid("Workspace", "Use a workspace of kind worktree or here, or start in a smaller directory.",
		"the directory is too large to be copied: it has "+format, args...)
}

func (c *copier) file(name string, info fs.FileInfo) error {
	in, err := c.from.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := c.to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err == nil {
		c.copyModeAndTime(name, info)
	}
	return err
}

// copyModeAndTime gives a copy mode and time of the original, for build tools look at
// both. A system that has no such thing does without.
func (c *copier) copyModeAndTime(name string, info fs.FileInfo) {
	_ = c.to.Chmod(name, info.Mode().Perm())
	_ = c.to.Chtimes(name, info.ModTime(), info.ModTime())
}
