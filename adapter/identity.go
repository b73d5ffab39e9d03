package adapter

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// identity tells a directory from every other one, whatever its path.
type identity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// check refuses a workspace whose path leads to another directory than the one
// that the adapter made, or to a link.
func (k *kept) check() error {
	info, err := os.Lstat(k.Path)
	if err != nil {
		return err
	}
	return k.checkIs(info)
}

func (k *kept) checkIs(info fs.FileInfo) error {
	if !info.IsDir() || k.Identity != nil && identityOf(info) != nil && *identityOf(info) != *k.Identity {
		return fmt.Errorf("%w: %s is not the directory that the adapter made; see what it is, and move it away", errNotUsable, k.Path)
	}
	return nil
}

// open opens the workspace. What is opened is checked, so that a later rename
// changes nothing.
func (k *kept) open() (*os.Root, error) {
	if err := k.check(); err != nil {
		return nil, err
	}
	r, err := os.OpenRoot(k.Path)
	if err != nil {
		return nil, err
	}
	info, err := r.Stat(".")
	if err == nil {
		err = k.checkIs(info)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// checkForeign is check for a worktree that git lists.
func (w *workspaces) checkForeign(path string) error {
	other := &kept{KeptWorkspace: KeptWorkspace{Path: path}}
	if known, err := readKept(w.cfg.StateDir, filepath.Base(path)); err == nil && known.Path == path {
		other.Identity = known.Identity
	}
	return other.check()
}
