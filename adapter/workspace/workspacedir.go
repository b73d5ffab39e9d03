package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/picket-dev/picket/adapter/process"
)

// dirIdentity distinguishes a directory from every other one, whatever its path.
type dirIdentity struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
}

// openDir opens the workspace and keeps it open until release. The opened directory is compared
// with the one that the adapter made. Files are named relative to it and programs are started in
// it, so a later rename or link changes nothing.
func (k *Locked) openDir() error {
	if k.dir != nil {
		return nil
	}
	if err := k.verifyPath(); err != nil {
		return err
	}
	dir, err := openNoFollow(k.root, k.Name)
	if errors.Is(err, fs.ErrPermission) && k.Identity != nil && k.makeReadable() {
		dir, err = openNoFollow(k.root, k.Name)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil {
		return k.replacedError(err)
	}
	info, err := dir.Stat()
	if err == nil {
		err = k.verifyIdentity(info)
	}
	if err != nil {
		dir.Close()
		return err
	}
	k.dir = dir
	return nil
}

// makeReadable lets the adapter read a workspace whose mode the agent has
// changed.
func (k *Locked) makeReadable() bool {
	above, err := openRealDir(k.root)
	if err != nil {
		return false
	}
	defer above.Close()
	root, err := openRootOf(above)
	if err != nil {
		return false
	}
	defer root.Close()
	info, err := root.Lstat(k.Name)
	return err == nil && k.verifyIdentity(info) == nil && root.Chmod(k.Name, 0o700) == nil
}

// verifyPath refuses a record of a directory that is not one of the root.
func (k *Locked) verifyPath() error {
	above := filepath.Dir(k.Path)
	if real, err := filepath.EvalSymlinks(above); err == nil {
		above = real // the record may be from before links were resolved
	}
	if above == k.root && filepath.Base(k.Path) == k.Name {
		k.Path = filepath.Join(k.root, k.Name)
		return nil
	}
	return fmt.Errorf("%w: the record %s names the directory %q, which is outside %q; if it is yours, delete both yourself",
		ErrNotUsable, filepath.Join(k.recordDir, recordFile), k.Path, k.root)
}

// verify refuses a workspace whose path leads to another directory than the one
// that the adapter made, or to a link.
func (k *Locked) verify() error {
	if err := k.openDir(); err != nil {
		return err
	}
	now, err := os.Lstat(k.Path)
	if err != nil {
		return err
	}
	return k.verifySame(now)
}

// verifySame compares a directory with the workspace.
func (k *Locked) verifySame(info fs.FileInfo) error {
	held, err := k.dir.Stat()
	if err == nil && !os.SameFile(held, info) {
		err = k.replacedError(nil)
	}
	return err
}

func (k *Locked) verifyIdentity(info fs.FileInfo) error {
	if !info.IsDir() || k.Identity != nil && identityOf(info) != nil && *identityOf(info) != *k.Identity {
		return k.replacedError(nil)
	}
	return nil
}

func (k *Locked) replacedError(err error) error {
	why := ""
	if err != nil {
		why = fmt.Sprintf(" (%v)", err)
	}
	return fmt.Errorf("%w: %q is not the directory that the adapter made%s; see what it is, and move it away",
		ErrNotUsable, k.Path, why)
}

// OpenRoot opens the workspace for access to its files. Nothing outside of it can be
// reached through the root. The error is ErrNotUsable if another directory stands in its
// place.
func (k *Locked) OpenRoot() (*os.Root, error) {
	if err := k.openDir(); err != nil {
		return nil, err
	}
	return openRootOf(k.dir)
}

// openRootOf opens a directory that is held open once more, for its files.
func openRootOf(dir *os.File) (*os.Root, error) {
	r, err := os.OpenRoot(process.HeldDirPath(dir))
	if err != nil {
		return nil, err
	}
	held, err := dir.Stat()
	var now fs.FileInfo
	if err == nil {
		now, err = r.Stat(".")
	}
	if err == nil && !os.SameFile(held, now) {
		err = fmt.Errorf("%q was replaced", dir.Name())
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// openRealDir opens a directory by a path that holds no link.
func openRealDir(path string) (*os.File, error) {
	top := filepath.VolumeName(path) + string(filepath.Separator)
	below, err := filepath.Rel(top, path)
	if err != nil {
		return nil, err
	}
	return openNoFollow(top, below)
}

// RealPath returns a path without links. The end of the path need not exist yet.
func RealPath(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) && filepath.Dir(path) != path {
		if real, err = RealPath(filepath.Dir(path)); err == nil {
			real = filepath.Join(real, filepath.Base(path))
		}
	}
	return real, err
}

// createDir makes the directory of a workspace; it may be there from an earlier
// try.
func (k *Locked) createDir() error {
	if err := os.MkdirAll(k.root, 0o700); err != nil {
		return err
	}
	above, err := openRealDir(k.root)
	if err != nil {
		return fmt.Errorf("the directory of workspaces is not as it was when the adapter began: %w", err)
	}
	defer above.Close()
	root, err := openRootOf(above)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(k.Name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := k.openDir(); err != nil {
		return err
	}
	info, err := k.dir.Stat()
	if err != nil {
		return err
	}
	k.Identity = identityOf(info)
	return k.Save()
}

// removeDir deletes a workspace and what is in it, and nothing outside: links are
// deleted, never followed. A directory that took its place stays.
func (k *Locked) removeDir() error {
	err := k.verify()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	inside, err := k.OpenRoot()
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := removeContents(inside); err != nil {
		return err
	}
	above, err := openRealDir(k.root)
	if err != nil {
		return err
	}
	defer above.Close()
	return removeEmptyDir(above, k.Name)
}

// removeContents deletes all that is in a directory.
func removeContents(r *os.Root) error {
	err := removeEntries(r)
	if err == nil || !errors.Is(err, fs.ErrPermission) {
		return err
	}
	// A directory that may not be written keeps what is in it, such as a module cache.
	err = fs.WalkDir(r.FS(), ".", func(path string, d fs.DirEntry, err error) error {
		if d != nil && d.IsDir() {
			_ = r.Chmod(path, 0o700)
		}
		return nil
	})
	return errors.Join(err, removeEntries(r))
}

func removeEntries(r *os.Root) error {
	entries, err := fs.ReadDir(r.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, r.RemoveAll(e.Name()))
	}
	return err
}

// IsEmpty reports whether there is nothing in the workspace except AgentFilesDir.
func (k *Locked) IsEmpty() bool {
	r, err := k.OpenRoot()
	if err != nil {
		return false
	}
	defer r.Close()
	entries, err := fs.ReadDir(r.FS(), ".")
	return err == nil && (len(entries) == 0 || len(entries) == 1 && entries[0].Name() == AgentFilesDir)
}
