package adapter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// briefingDir is in every workspace that is the agent's own, with what it
// needs to know; it is written anew when a run begins.
const briefingDir = ".picket"

// writeBrief writes the files into .picket of at, a directory in top, and
// answers where they are. An agent of an earlier run may have put anything
// there: nothing outside of top is written.
func writeBrief(k *kept, at string, files map[string]any) (string, error) {
	r, err := openBelow(k, at)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", briefingDir, err)
	}
	defer r.Close()
	if info, err := r.Lstat(briefingDir); err == nil && !info.IsDir() {
		if err := r.Remove(briefingDir); err != nil {
			return "", fmt.Errorf("write %s: %w", briefingDir, err)
		}
	}
	if err := r.Mkdir(briefingDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write %s: %w", briefingDir, err)
	}
	for name, v := range files {
		if err := writeIn(r, filepath.Join(briefingDir, name), v); err != nil {
			return "", fmt.Errorf("write %s: %w", briefingDir, err)
		}
	}
	return filepath.Join(at, briefingDir), nil
}

// replaceBrief replaces one file in .picket while the agent runs.
func replaceBrief(k *kept, at, name string, v any) error {
	r, err := openBelow(k, at)
	if err != nil {
		return err
	}
	defer r.Close()
	file := filepath.Join(briefingDir, name)
	if err := writeIn(r, file+".new", v); err != nil {
		return err
	}
	return r.Rename(file+".new", file)
}

// openBelow opens a directory in top, and makes it if it is not there.
func openBelow(k *kept, at string) (*os.Root, error) {
	top := k.Path
	r, err := k.open()
	if err != nil || at == top {
		return r, err
	}
	defer r.Close()
	below, err := filepath.Rel(top, at)
	if err != nil {
		return nil, err
	}
	if err := r.MkdirAll(below, 0o700); err != nil {
		return nil, err
	}
	return r.OpenRoot(below)
}

// writeIn replaces a file, whatever was there.
func writeIn(r *os.Root, name string, v any) error {
	text, err := json.Marshal(v, jsontext.WithIndent("  "))
	if err != nil {
		return err
	}
	if err := r.RemoveAll(name); err != nil {
		return err
	}
	f, err := r.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}
