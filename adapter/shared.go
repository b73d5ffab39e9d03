package adapter

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// All worktrees of a repository share one directory, and the agents can write in
// it. Files in it are therefore named relative to it and opened through os.Root:
// a link that leads out of it is refused.

// inShared calls do with the directory that all worktrees share.
func (g git) inShared(do func(root *os.Root) error) error {
	root, err := os.OpenRoot(g.common)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// baseFile notes the commit that the branch of a task began at.
func baseFile(taskID string) string { return path.Join("picket/base", taskID) }

func (g git) noteBase(taskID, base string) error {
	return g.inShared(func(root *os.Root) error {
		file := baseFile(taskID)
		if err := root.MkdirAll(path.Dir(file), 0o700); err != nil {
			return err
		}
		if err := root.RemoveAll(file + ".new"); err != nil {
			return err
		}
		f, err := root.OpenFile(file+".new", os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = f.WriteString(base + "\n")
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
		return root.Rename(file+".new", file)
	})
}

// notedBase is what noteBase has noted, "" when it cannot be read.
func (g git) notedBase(taskID string) (base string) {
	_ = g.inShared(func(root *os.Root) error {
		text, err := readRegular(root, baseFile(taskID))
		base = strings.TrimSpace(string(text))
		return err
	})
	return base
}

// mostGitFile bounds the files of git that are read, in bytes.
const mostGitFile = 1 << 20

// readRegular reads a regular file; a link, a pipe or a large file is refused.
func readRegular(root *os.Root, file string) ([]byte, error) {
	info, err := root.Lstat(file)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file; replace it by one", filepath.Join(root.Name(), file))
	}
	f, err := root.OpenFile(file, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe by now
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostGitFile+1))
	if err == nil && len(text) > mostGitFile {
		err = fmt.Errorf("%s is larger than 1 MiB; make it smaller", filepath.Join(root.Name(), file))
	}
	return text, err
}

// exclude keeps our files in a workspace away from git, in the repository's own
// list that belongs to no commit.
func (g git) exclude() error {
	const line, file = briefingDir + "/", "info/exclude"
	return g.inShared(func(root *os.Root) error {
		text, err := readRegular(root, file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for have := range strings.Lines(string(text)) {
			if strings.TrimSpace(have) == line {
				return nil
			}
		}
		if err := root.MkdirAll(path.Dir(file), 0o755); err != nil {
			return err
		}
		f, err := root.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		more := line + "\n"
		if len(text) > 0 && !strings.HasSuffix(string(text), "\n") {
			more = "\n" + more
		}
		_, err = f.WriteString(more)
		return errors.Join(err, f.Close())
	})
}

// unlock deletes the lock of a branch of ours that a killed git has left. Only
// one process works for a task at a time.
func (g git) unlock(branch string) error { return g.remove("refs/heads/" + branch + ".lock") }

// removeOfTree deletes a file in git's administrative directory of the worktree.
func (g git) removeOfTree(name string) error {
	return g.remove(path.Join("worktrees", filepath.Base(g.admin), name))
}

func (g git) remove(file string) error {
	return g.inShared(func(root *os.Root) error {
		if err := root.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
}

// linkFile in git's part of a worktree leads to the part that all share.
const linkFile, linkText = "commondir", "../..\n"

// relink lets git's part of a worktree belong to its repository again, whatever
// the agent has made of it.
func (k *kept) relink() error {
	return git{common: k.Common}.inShared(func(root *os.Root) error {
		admin, err := root.OpenRoot(path.Join("worktrees", filepath.Base(k.Admin)))
		if err != nil {
			return err
		}
		defer admin.Close()
		info, err := admin.Lstat(linkFile)
		if err == nil && info.Mode().IsRegular() && info.Size() == int64(len(linkText)) {
			if text, err := admin.ReadFile(linkFile); err == nil && string(text) == linkText {
				return nil
			}
		}
		if err := admin.RemoveAll(linkFile); err != nil {
			return err
		}
		return admin.WriteFile(linkFile, []byte(linkText), 0o644)
	})
}
