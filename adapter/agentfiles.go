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

// agentFilesDir is in every workspace that is the agent's own, with what it
// needs to know. It is replaced when a run begins.
const agentFilesDir = ".picket"

// writeAgentFiles writes the files into .picket of at, a directory in top, and
// answers where they are. An agent of an earlier run may have put anything
// there: nothing outside of top is written.
func writeAgentFiles(k *lockedWorkspace, at string, files map[string]any) (string, error) {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", agentFilesDir, err)
	}
	defer r.Close()
	if info, err := r.Lstat(agentFilesDir); err == nil && !info.IsDir() {
		if err := r.Remove(agentFilesDir); err != nil {
			return "", fmt.Errorf("write %s: %w", agentFilesDir, err)
		}
	}
	if err := r.Mkdir(agentFilesDir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", fmt.Errorf("write %s: %w", agentFilesDir, err)
	}
	for name, v := range files {
		if err := writeJSONIn(r, filepath.Join(agentFilesDir, name), v); err != nil {
			return "", fmt.Errorf("write %s: %w", agentFilesDir, err)
		}
	}
	return filepath.Join(at, agentFilesDir), nil
}

// replaceAgentFile replaces one file in .picket while the agent runs.
func replaceAgentFile(k *lockedWorkspace, at, name string, v any) error {
	r, err := openWorkspaceDir(k, at)
	if err != nil {
		return err
	}
	defer r.Close()
	file := filepath.Join(agentFilesDir, name)
	if err := writeJSONIn(r, file+".new", v); err != nil {
		return err
	}
	return r.Rename(file+".new", file)
}

// openWorkspaceDir opens a directory in top, and makes it if it is not there.
func openWorkspaceDir(k *lockedWorkspace, at string) (*os.Root, error) {
	top := k.Path
	r, err := k.openRoot()
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

// writeJSONIn replaces a file, whatever was there.
func writeJSONIn(r *os.Root, name string, v any) error {
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
