package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// createDir makes the directory of a workspace; it may be there from an earlier
// try.
func (k *lockedWorkspace) createDir() error {
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
	return k.save()
}

// removeDir deletes a workspace and what is in it, and nothing outside: links are
// deleted, never followed. A directory that took its place stays.
func (k *lockedWorkspace) removeDir() error {
	err := k.verify()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	inside, err := k.openRoot()
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
