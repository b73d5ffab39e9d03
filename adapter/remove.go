package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// create makes the directory of a workspace; it may be there from an earlier
// try.
func (k *kept) create() error {
	if err := os.MkdirAll(k.root, 0o700); err != nil {
		return err
	}
	above, err := openReal(k.root)
	if err != nil {
		return fmt.Errorf("the directory of workspaces is not as it was when the adapter began: %w", err)
	}
	defer above.Close()
	root, err := rootOf(above)
	if err != nil {
		return err
	}
	defer root.Close()
	if err := root.Mkdir(k.Name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := k.hold(); err != nil {
		return err
	}
	info, err := k.dir.Stat()
	if err != nil {
		return err
	}
	k.Identity = identityOf(info)
	return k.save()
}

// remove deletes a workspace and what is in it, and nothing outside: links are
// deleted, never followed. A directory that took its place stays.
func (k *kept) remove() error {
	err := k.check()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	inside, err := k.open()
	if err != nil {
		return err
	}
	defer inside.Close()
	if err := emptyOut(inside); err != nil {
		return err
	}
	above, err := openReal(k.root)
	if err != nil {
		return err
	}
	defer above.Close()
	return removeEmpty(above, k.Name)
}

// emptyOut deletes all that is in a directory.
func emptyOut(r *os.Root) error {
	err := removeAll(r)
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
	return errors.Join(err, removeAll(r))
}

func removeAll(r *os.Root) error {
	entries, err := fs.ReadDir(r.FS(), ".")
	for _, e := range entries {
		err = errors.Join(err, r.RemoveAll(e.Name()))
	}
	return err
}
