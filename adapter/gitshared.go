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

// withSharedDir calls do with the directory that all worktrees share.
func (g git) withSharedDir(do func(root *os.Root) error) error {
	root, err := os.OpenRoot(g.common)
	if err != nil {
		return err
	}
	return errors.Join(do(root), root.Close())
}

// baseFilePath notes the commit that the branch of a task began at.
func baseFilePath(taskID string) string { return path.Join("picket/base", taskID) }

func (g git) saveBase(taskID, base string) error {
	return g.withSharedDir(func(root *os.Root) error {
		file := baseFilePath(taskID)
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

// savedBase is what saveBase has noted, "" when it cannot be read.
func (g git) savedBase(taskID string) (base string) {
	_ = g.withSharedDir(func(root *os.Root) error {
		text, err := readRegularFile(root, baseFilePath(taskID))
		base = strings.TrimSpace(string(text))
		return err
	})
	return base
}

// maxGitFile bounds the files of git that are read, in bytes.
const maxGitFile = 1 << 20

// readRegularFile reads a regular file; a link, a pipe or a large file is refused.
func readRegularFile(root *os.Root, file string) ([]byte, error) {
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
	text, err := io.ReadAll(io.LimitReader(f, maxGitFile+1))
	if err == nil && len(text) > maxGitFile {
		err = fmt.Errorf("%s is larger than 1 MiB; make it smaller", filepath.Join(root.Name(), file))
	}
	return text, err
}

// exclude keeps our files in a workspace away from git, in the repository's own
// list that belongs to no commit.
func (g git) exclude() error {
	const line, file = agentFilesDir + "/", "info/exclude"
	return g.withSharedDir(func(root *os.Root) error {
		text, err := readRegularFile(root, file)
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

// removeBranchLock deletes the lock of a branch of ours that a killed git has left. Only
// one process works for a task at a time.
func (g git) removeBranchLock(branch string) error {
	return g.removeSharedFile("refs/heads/" + branch + ".lock")
}

// removeAdminFile deletes a file in git's administrative directory of the worktree.
func (g git) removeAdminFile(name string) error {
	return g.removeSharedFile(path.Join("worktrees", filepath.Base(g.admin), name))
}

func (g git) removeSharedFile(file string) error {
	return g.withSharedDir(func(root *os.Root) error {
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
func (k *lockedWorkspace) relink() error {
	return git{common: k.Common}.withSharedDir(func(root *os.Root) error {
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
