// Package files writes, replaces and locks the files that Picket keeps for itself. Only
// their user can read them.
package files

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Replace replaces a file, or creates it, in an existing directory. A reader finds the
// old or the new content whole, and the new content survives a power failure once Replace
// has returned. The file gets the mode 0600. After an error the old content is there, or
// the new one if only the directory could not be written to the disk.
func Replace(path string, content []byte) error { return ReplaceInSteps(path, content, nil) }

// ReplaceInSteps is Replace that asks before each step: "write", "fsync", "rename" and
// "dirsync". An error of before ends it there.
func ReplaceInSteps(path string, content []byte, before func(step string) error) error {
	return replace(path, content, true, before)
}

// WriteJSON is Replace with v as indented JSON, except that it does not wait for the disk.
// After a power failure the file may have any earlier content, or none. It is for files
// that are written often, or are of no use then.
func WriteJSON(path string, v any) error {
	b, err := marshal(v)
	if err != nil {
		return err
	}
	return replace(path, b, false, nil)
}

// WritePrivate is Replace that also creates the directories above the file, with the mode
// 0700.
func WritePrivate(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return Replace(path, content)
}

// WritePrivateJSON is WriteJSON that also creates the directories above the file, with the
// mode 0700.
func WritePrivateJSON(path string, v any) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return WriteJSON(path, v)
}

// ReadJSON reads a file that holds v as JSON.
func ReadJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	return json.Unmarshal(b, v)
}

// CreateIn makes a file in a directory, in the place of whatever was there. It follows no
// link, and writes nothing outside of the directory.
func CreateIn(root *os.Root, name string, content []byte) error {
	if err := root.RemoveAll(name); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// Truncate cuts an open file off at a size, and waits for the disk.
func Truncate(f *os.File, size int64) error { return errors.Join(f.Truncate(size), f.Sync()) }

// Remove deletes a file, and returns when that is on the disk.
func Remove(path string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func marshal(v any) ([]byte, error) {
	b, err := json.Marshal(v, jsontext.WithIndent("  "))
	return append(b, '\n'), err
}

// replace writes a new file beside the old one, under a name that nobody can foresee, and
// renames it.
func replace(path string, content []byte, durable bool, before func(step string) error) error {
	var f *os.File
	steps := []struct {
		name string
		skip bool
		do   func() error
	}{
		{"write", false, func() (err error) {
			if f, err = os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*"); err != nil { // mode 0600
				return err
			}
			_, err = f.Write(content)
			return err
		}},
		{"fsync", !durable, func() error { return f.Sync() }},
		{"rename", false, func() error { return errors.Join(f.Close(), os.Rename(f.Name(), path)) }},
		{"dirsync", !durable, func() error { return syncDir(filepath.Dir(path)) }},
	}
	for _, s := range steps {
		var err error
		if before != nil {
			err = before(s.name)
		}
		if err == nil && !s.skip {
			err = s.do()
		}
		if err != nil {
			if f != nil && s.name != "dirsync" {
				f.Close()
				os.Remove(f.Name())
			}
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
